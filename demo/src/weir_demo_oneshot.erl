%% @doc Part of the demo: a crowd of processes, each with one request, all at once, on one connection.
%%
%% N processes are spawned, each stores one value and ends; then every value is read back and compared. Every key has
%% a value of its own, so a reply that reached the wrong process, or a value under the wrong key, shows. Weir does it
%% for growing N, the old design ({@link weir_demo_old_client}) once: its time grows with N^2.
%%
%% The processes are neither linked to the one that measures nor monitored by it, so that its mailbox stays empty and
%% the measured time is the clients'.
-module(weir_demo_oneshot).

-behaviour(weir_demo_part).

-export([title/0, run/1]).

-define(SIZES, [25_000, 50_000, 100_000]).
-define(OLD_SIZE, 25_000).

%% Run once on each client before anything is measured, so that the first measurement does not pay for loading code and
%% for memory that the node and memcached get from the operating system once.
-define(WARM_UP, 5_000).

%% The old design is given this long; what it has not done by then is reported as such.
-define(OLD_DEADLINE_MS, 30_000).
-define(DEADLINE_MS, 60_000).
-define(MAX_PENDING, 200_000).

%% Keys of one get_many, when values are read back.
-define(CHUNK, 100).

%% Items vanish by themselves, also from a memcached that is not ours.
-define(TTL, 300).

-type way() :: #{
    name := binary(),
    set := fun((Key :: binary(), Value :: binary()) -> term()),
    read := fun(([Key :: binary()]) -> #{Key :: binary() => Value :: binary()}),
    pids := fun(() -> [pid()]),
    give_up := fun(() -> term())
}.
%% A client to be measured.

-type figures() :: #{
    size := pos_integer(),
    %% Microseconds from the first spawn to the last reply.
    time := pos_integer(),
    mailbox := non_neg_integer(),
    %% Replies that never came, because the deadline was over.
    missing := non_neg_integer(),
    read_time := non_neg_integer(),
    problems := [iodata()]
}.

%% @doc The part's name.
-spec title() -> string().
title() ->
    "One-shot callers: N processes at once, one set each, one connection".

%% @doc Runs all sizes on Weir and one on the old design.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(Context) ->
    weir_demo_progress:note("warming up", []),
    Warm = [Run(?WARM_UP, Context) || Run <- [fun weir/2, fun old/2]],
    Weir = [weir(Size, Context) || Size <- ?SIZES],
    Old = old(?OLD_SIZE, Context),
    #{
        rows => lists:append([rows(Figures, Old) || Figures <- Weir]) ++ [growth_row(Weir)],
        problems => lists:append([Problems || #{problems := Problems} <- Warm ++ Weir ++ [Old]])
    }.

weir(Size, Context) ->
    Client = weir_demo_oneshot_client,
    ok = weir_demo_client:start(Client, Context, #{
        connections => 1, max_pending => ?MAX_PENDING, request_timeout => ?DEADLINE_MS, stall_timeout => infinity
    }),
    Pids = weir_demo_client:pids(Client),
    Figures = measure(Size, ?DEADLINE_MS, Context, #{
        name => <<"weir">>,
        set => fun(Key, Value) -> weir_memcached:set(Client, Key, Value, #{ttl => ?TTL}) end,
        read => fun(Keys) ->
            {ok, Values} = weir_memcached:get_many(Client, Keys),
            Values
        end,
        pids => fun() -> Pids end,
        give_up => fun() -> [exit(Pid, kill) || Pid <- Pids] end
    }),
    ok = weir_demo_client:stop(Client),
    Figures.

old(Size, #{server := Server} = Context) ->
    {Host, Port} = weir_demo_memcached:address(Server),
    {ok, Client} = weir_demo_old_client:start_link(Host, Port),
    true = unlink(Client),
    Figures = measure(Size, ?OLD_DEADLINE_MS, Context, #{
        name => <<"plain">>,
        set => fun(Key, Value) -> weir_demo_old_client:set(Client, Key, Value, ?TTL) end,
        read => fun(Keys) ->
            maps:from_list([{Key, Value} || Key <- Keys, {ok, Value} <- [weir_demo_old_client:get(Client, Key)]])
        end,
        pids => fun() -> [Client] end,
        give_up => fun() -> exit(Client, kill) end
    }),
    is_process_alive(Client) andalso weir_demo_old_client:stop(Client),
    Figures.

-spec measure(pos_integer(), pos_integer(), weir_demo_part:context(), way()) -> figures().
measure(Size, Deadline, #{prefix := Prefix}, Way) ->
    #{name := Name, set := Set, pids := Pids, read := Read, give_up := GiveUp} = Way,
    Start = iolist_to_binary([Prefix, Name, $:, integer_to_binary(Size), $:]),
    Sampler = weir_demo_sampler:start(Pids),
    Call = fun(I) -> Set(key(Start, I), value(Start, I)) end,
    {Time, Missing, Failures} = burst(Size, Call, Deadline, GiveUp),
    Mailbox = weir_demo_sampler:stop(Sampler),
    weir_demo_progress:note("~s: ~s sets in ~s, longest mailbox ~s", [
        Name,
        weir_demo_table:integer(Size - Missing),
        weir_demo_table:milliseconds(Time),
        weir_demo_table:integer(Mailbox)
    ]),
    {ReadTime, Wrong} =
        case Missing of
            0 -> timer:tc(fun() -> read_back(1, Size, Start, Read, 0) end);
            _ -> {0, 0}
        end,
    Problem = fun(Format, Arguments) -> io_lib:format("~s, ~b one-shot sets: " ++ Format, [Name, Size | Arguments]) end,
    #{
        size => Size,
        time => Time,
        mailbox => Mailbox,
        missing => Missing,
        read_time => ReadTime,
        problems =>
            %% That the old design does not come to its end is a figure; its row tells it.
            [Problem("~b unanswered", [Missing]) || Missing > 0, Name =:= <<"weir">>] ++
                [Problem("~s", [weir_demo_table:reasons(Failures)]) || Missing =:= 0, map_size(Failures) > 0] ++
                [Problem("~b values read back were missing or wrong", [Wrong]) || Wrong > 0]
    }.

%% Spawns all at once. Gives microseconds until the last reply, how many had none at the deadline, and the other replies
%% than ok by their reason. At the deadline GiveUp has to make the rest fail.
burst(Size, Call, Deadline, GiveUp) ->
    Self = self(),
    Ref = make_ref(),
    Left = atomics:new(1, [{signed, true}]),
    ok = atomics:put(Left, 1, Size),
    Failures = ets:new(failures, [public]),
    Start = erlang:monotonic_time(microsecond),
    spawn_callers(Size, fun(I) ->
        try Call(I) of
            ok -> ok;
            Reply -> ets:update_counter(Failures, Reply, {2, 1}, {Reply, 0})
        catch
            Class:Reason -> ets:update_counter(Failures, {Class, Reason}, {2, 1}, {{Class, Reason}, 0})
        after
            case atomics:sub_get(Left, 1, 1) of
                0 -> Self ! {Ref, erlang:monotonic_time(microsecond)};
                _ -> ok
            end
        end
    end),
    {End, Missing} = await_callers(Ref, Left, Size, Start + Deadline * 1000, GiveUp),
    Reasons = maps:from_list(ets:tab2list(Failures)),
    true = ets:delete(Failures),
    {max(1, End - Start), Missing, Reasons}.

spawn_callers(0, _Call) ->
    ok;
spawn_callers(I, Call) ->
    _ = spawn(fun() -> Call(I) end),
    spawn_callers(I - 1, Call).

await_callers(Ref, Left, Size, Deadline, GiveUp) ->
    receive
        {Ref, End} -> {End, 0}
    after 2_000 ->
        Missing = atomics:get(Left, 1),
        Now = erlang:monotonic_time(microsecond),
        weir_demo_progress:note("~s of ~s answered", [
            weir_demo_table:integer(Size - Missing), weir_demo_table:integer(Size)
        ]),
        case Now > Deadline andalso Missing > 0 of
            false ->
                await_callers(Ref, Left, Size, Deadline, GiveUp);
            true ->
                _ = GiveUp(),
                receive
                    {Ref, _} -> ok
                after ?DEADLINE_MS -> exit(callers_do_not_end)
                end,
                {Now, Missing}
        end
    end.

read_back(From, Size, _Start, _Read, Wrong) when From > Size ->
    Wrong;
read_back(From, Size, Start, Read, Wrong) ->
    To = min(Size, From + ?CHUNK - 1),
    Expected = maps:from_list([{key(Start, I), value(Start, I)} || I <- lists:seq(From, To)]),
    Values = Read(maps:keys(Expected)),
    Differ = length([Key || {Key, Value} <- maps:to_list(Expected), maps:get(Key, Values, missing) =/= Value]),
    Foreign = map_size(maps:without(maps:keys(Expected), Values)),
    read_back(To + 1, Size, Start, Read, Wrong + Differ + Foreign).

key(Start, I) ->
    <<Start/binary, (integer_to_binary(I))/binary>>.

%% Between 30 and 130 bytes, another one for each key.
value(Start, I) ->
    Key = key(Start, I),
    Hash = erlang:phash2(Key),
    <<(integer_to_binary(Hash))/binary, " is for ", Key/binary, (binary:copy(<<".">>, Hash rem 100))/binary>>.

rows(#{size := Size} = Figures, #{size := Size} = Old) ->
    #{time := Time, mailbox := Mailbox} = Figures,
    #{time := OldTime, mailbox := OldMailbox, missing := Missing} = Old,
    [
        (row(Size, "sets answered after", weir_demo_table:milliseconds(Time)))#{
            plain => old_time(OldTime, Missing), ratio => weir_demo_table:ratio(OldTime, Time)
        },
        (row(Size, "longest mailbox", weir_demo_table:integer(Mailbox)))#{
            plain => weir_demo_table:integer(OldMailbox), ratio => weir_demo_table:ratio(OldMailbox, Mailbox)
        },
        (read_row(Figures))#{plain => old_read(Old)}
    ];
rows(#{size := Size, time := Time, mailbox := Mailbox} = Figures, _Old) ->
    [
        row(Size, "sets answered after", weir_demo_table:milliseconds(Time)),
        row(Size, "longest mailbox", weir_demo_table:integer(Mailbox)),
        read_row(Figures)
    ].

read_row(#{size := Size, read_time := Time}) ->
    row(Size, "read back and compared in", weir_demo_table:milliseconds(Time)).

old_read(#{missing := 0, read_time := Time}) -> weir_demo_table:milliseconds(Time);
old_read(_) -> "-".

old_time(Time, 0) ->
    weir_demo_table:milliseconds(Time);
old_time(Time, Missing) ->
    ["over ", weir_demo_table:milliseconds(Time), ", ", weir_demo_table:integer(Missing), " left"].

growth_row(Weir) ->
    #{size := Small, time := SmallTime} = hd(Weir),
    #{size := Large, time := LargeTime} = lists:last(Weir),
    What = [weir_demo_table:integer(Large), " took, compared with ", weir_demo_table:integer(Small)],
    #{part => title(), what => What, value => weir_demo_table:ratio(LargeTime, SmallTime)}.

row(Size, What, Value) ->
    #{part => title(), what => [weir_demo_table:integer(Size), " ", What], value => Value}.
