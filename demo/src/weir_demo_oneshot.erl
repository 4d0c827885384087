%% @doc Section of the demo: a crowd of processes, each with one request, all at once, on one connection.
%%
%% N processes are spawned, each stores one value and ends; then every value is read back and compared. Every key has
%% a value of its own, so a reply that reached the wrong process, or a value under the wrong key, shows. weir_memcached
%% does it for two N; the old design ({@link weir_kit_old_client}) on a gen_server gets the smaller one, and is stopped
%% after some seconds: its time grows with the square of N.
-module(weir_demo_oneshot).

-behaviour(weir_demo_part).

-export([title/0, hurts/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{callers => 25_000, more => 50_000, plain_ms => 2_000}).

%% Before anything is measured, so that the first measurement does not pay for loading code and for memory that the node
%% and memcached get from the operating system once.
-define(WARM_UP, 2_000).

-define(DEADLINE_MS, 180_000).
-define(MAX_PENDING, 200_000).
-define(SAMPLE_MS, 5).

%% Keys of one get_many, when values are read back.
-define(CHUNK, 100).

%% Items vanish by themselves, also from a memcached that is not ours.
-define(TTL, 300).

-type sizes() :: #{
    callers := pos_integer(),
    more := pos_integer(),
    %% How long the old design may take, milliseconds.
    plain_ms := pos_integer()
}.

-type figures() :: #{
    callers := pos_integer(),
    %% How many had the reply `ok' at the end, and how many another.
    answered := non_neg_integer(),
    failed := non_neg_integer(),
    %% Microseconds from the first spawn to the last reply, or to the stop.
    us := pos_integer(),
    is_stopped := boolean(),
    %% {Seconds, answered, messages in the mailbox of the client}.
    samples := [{float(), non_neg_integer(), non_neg_integer()}]
}.

%% @doc The section's name.
-spec title() -> string().
title() -> "25,000 callers at once, one connection to memcached".

%% @doc What hurts.
-spec hurts() -> string().
hurts() ->
    "A client that waits for each reply inside a callback looks through all calls that wait behind it, so twice as many"
    " callers take four times as long.".

%% @doc Runs both.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(Context) -> run(Context, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(weir_demo_part:context(), sizes()) -> weir_demo_part:outcome().
run(#{server := Server, prefix := Prefix}, #{callers := Callers, more := More, plain_ms := PlainMs}) ->
    _ = weir(?WARM_UP, Server, <<Prefix/binary, "warm:">>),
    {First, WrongFirst} = weir(Callers, Server, <<Prefix/binary, "first:">>),
    {Second, WrongSecond} = weir(More, Server, <<Prefix/binary, "second:">>),
    Plain = plain(Callers, PlainMs, Server, <<Prefix/binary, "plain:">>),
    Answered = maps:get(answered, First) + maps:get(answered, Second),
    All = Callers + More,
    Of = [" of ", weir_kit_text:integer(All)],
    #{
        said => [
            [weir_kit_text:integer(Callers), " callers were answered in ", took(First), ", "],
            [weir_kit_text:integer(More), " in ", took(Second), "; a plain gen_server ", plain_said(Plain), "."]
        ],
        promises => [
            {[weir_kit_text:integer(Answered), Of, " callers answered"], Answered =:= All},
            {
                [weir_kit_text:integer(WrongFirst + WrongSecond), Of, " values wrong when read back"],
                WrongFirst + WrongSecond =:= 0
            }
        ],
        plots => plots(First, Second, Plain)
    }.

took(#{us := Us}) -> weir_kit_text:seconds(Us).

plain_said(#{is_stopped := false} = Plain) -> ["took ", took(Plain)];
plain_said(#{answered := Answered, callers := Callers} = Plain) ->
    Of = [weir_kit_text:integer(Answered), " of ", weir_kit_text:integer(Callers)],
    ["was stopped after ", took(Plain), ", ", Of, " answered"].

weir(Callers, Server, Keys) ->
    Client = weir_demo_oneshot_client,
    ok = weir_kit_client:start(Client, Server, #{
        max_pending => ?MAX_PENDING, request_timeout => ?DEADLINE_MS, stall_timeout => infinity
    }),
    [Pid] = weir_kit_client:pids(Client),
    Set = fun(Key, Value) -> weir_memcached:set(Client, Key, Value, #{ttl => ?TTL}) end,
    Figures = burst("weir_memcached", Callers, ?DEADLINE_MS, Keys, Set, Pid),
    Read = counters:new(1, []),
    Wrong = weir_demo_screen:watch(
        ["reading ", weir_kit_text:integer(Callers), " values back"],
        Callers,
        fun() -> counters:get(Read, 1) end,
        fun() -> read_back(1, Callers, Keys, Client, Read, 0) end
    ),
    ok = weir_memcached:stop(Client),
    {Figures, Wrong}.

plain(Callers, Ms, #{host := Host, port := Port}, Keys) ->
    {ok, Pid} = gen_server:start(weir_kit_old_client, {Host, Port}, []),
    Set = fun(Key, Value) -> weir_kit_old_client:set(Pid, Key, Value, ?TTL) end,
    Figures = burst("a plain gen_server", Callers, Ms, Keys, Set, Pid),
    exit(Pid, kill),
    Figures.

%% What has not been answered in time is ended by killing the client, and counts for nothing.
-spec burst(string(), pos_integer(), pos_integer(), binary(), fun((binary(), binary()) -> term()), pid()) -> figures().
burst(Name, Callers, Ms, Keys, Set, Pid) ->
    Count = counters:new(2, []),
    Call = fun(I) ->
        try Set(key(Keys, I), value(Keys, I)) of
            ok -> counters:add(Count, 1, 1);
            _ -> counters:add(Count, 2, 1)
        catch
            _:_ -> counters:add(Count, 2, 1)
        end
    end,
    Answered = fun() -> counters:get(Count, 1) end,
    weir_demo_screen:watch([weir_kit_text:integer(Callers), " callers of ", Name], Callers, Answered, fun() ->
        Sampler = weir_kit_sampler:start(?SAMPLE_MS, fun() ->
            {erlang:monotonic_time(microsecond), Answered(), weir_kit_sampler:mailbox(Pid)}
        end),
        Crowd = weir_kit_crowd:start(Callers, Call),
        Start = weir_kit_crowd:started(Crowd),
        End = weir_kit_crowd:await(Crowd, max(0, Ms - (erlang:monotonic_time(microsecond) - Start) div 1_000)),
        Now = erlang:monotonic_time(microsecond),
        {Done, Failed} = {Answered(), counters:get(Count, 2)},
        Samples = weir_kit_sampler:stop(Sampler),
        Us =
            case End of
                {ok, Ns} ->
                    max(1, Ns div 1_000);
                timeout ->
                    exit(Pid, kill),
                    {ok, _} = weir_kit_crowd:await(Crowd, ?DEADLINE_MS),
                    Now - Start
            end,
        #{
            callers => Callers,
            answered => Done,
            failed => Failed,
            us => Us,
            is_stopped => End =:= timeout,
            samples => [
                {(At - Start) / 1.0e6, N, Mailbox}
             || {At, N, Mailbox} <- Samples, At >= Start, At =< Start + Us
            ]
        }
    end).

read_back(From, Callers, _Keys, _Client, _Read, Wrong) when From > Callers ->
    Wrong;
read_back(From, Callers, Keys, Client, Read, Wrong) ->
    To = min(Callers, From + ?CHUNK - 1),
    Expected = maps:from_list([{key(Keys, I), value(Keys, I)} || I <- lists:seq(From, To)]),
    {ok, Values} = weir_memcached:get_many(Client, maps:keys(Expected)),
    Differ = length([Key || {Key, Value} <- maps:to_list(Expected), maps:get(Key, Values, missing) =/= Value]),
    Foreign = map_size(maps:without(maps:keys(Expected), Values)),
    counters:add(Read, 1, To - From + 1),
    read_back(To + 1, Callers, Keys, Client, Read, Wrong + Differ + Foreign).

key(Keys, I) -> <<Keys/binary, (integer_to_binary(I))/binary>>.

%% Between 30 and 130 bytes, another one for each key.
value(Keys, I) ->
    Key = key(Keys, I),
    Hash = erlang:phash2(Key),
    <<(integer_to_binary(Hash))/binary, " is for ", Key/binary, (binary:copy(<<".">>, Hash rem 100))/binary>>.

%% ---------------------------------------------------------------- plots

plots(#{callers := Callers} = First, #{callers := More} = Second, Plain) ->
    Bar = fun(Name, Side, #{us := Us, is_stopped := IsStopped} = Figures) ->
        Text =
            case IsStopped of
                true -> plain_said(Figures);
                false -> took(Figures)
            end,
        #{name => Name, side => Side, value => Us, text => Text, open => IsStopped}
    end,
    [
        #{
            kind => bars,
            title => "Time until all are answered",
            bars => [
                Bar(["Weir, ", weir_kit_text:integer(Callers)], weir, First),
                Bar(["Weir, ", weir_kit_text:integer(More)], weir, Second),
                Bar("plain", plain, Plain)
            ]
        },
        #{
            kind => lines,
            title => ["Callers answered, of ", weir_kit_text:integer(Callers)],
            x => "time in seconds",
            y => "callers answered",
            series => [
                #{name => "weir_memcached", side => weir, points => answered(First) ++ stays(First, Plain)},
                #{name => "plain gen_server", side => plain, points => answered(Plain)}
            ]
        }
    ].

answered(#{samples := Samples, us := Us, answered := Answered}) ->
    [{0.0, 0} | [{At, N} || {At, N, _} <- Samples]] ++ [{Us / 1.0e6, Answered}].

%% All answered, for as long as the other ran.
stays(#{us := Us, answered := Answered}, #{us := Longer}) when Longer > Us -> [{Longer / 1.0e6, Answered}];
stays(_, _) -> [].
