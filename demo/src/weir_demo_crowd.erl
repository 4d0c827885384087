%% @doc Many callers ({@link weir_demo_caller}) on one client: started together, watched, stopped together, and what
%% they found as one result.
%%
%% What all of them share are a few atomics, so that none waits for another: see {@type shared()}. The callers are
%% monitored, not linked; one that crashes is a wrong reply.
-module(weir_demo_crowd).

-export([start/3, stop/1, done/1, set_era/2, watch_for_success/1, first_success/1]).
-export([is_stopped/1, era/1, succeeded/2]).

-export_type([crowd/0, shared/0, result/0]).

-define(STOP_TIMEOUT, 30_000).

%% How many wrong replies are kept for the report; all are counted.
-define(EXAMPLES, 3).

%% Words of the atomics.
-define(STOPPED, 1).
-define(ERA, 2).
-define(FIRST_SUCCESS, 3).

-record(crowd, {
    shared :: shared(),
    callers :: #{pid() => reference()}
}).

-opaque crowd() :: #crowd{}.

-opaque shared() :: {atomics:atomics_ref(), Done :: counters:counters_ref()}.
%% Whether to stop; the model's era; the time (monotonic, microseconds) of the first success since
%% {@link watch_for_success/1}; and how many requests were answered.

-type result() :: #{
    answered := non_neg_integer(),
    failed := #{Reason :: term() => pos_integer()},
    wrong := non_neg_integer(),
    %% Some of the wrong replies.
    examples := [term()],
    %% Nanoseconds from request to reply, of those that were answered.
    latency := weir_demo_histogram:histogram()
}.

%% @doc Starts `N' callers on a client. They begin at once and go on until {@link stop/1}.
-spec start(pos_integer(), weir_memcached:client(), Prefix :: binary()) -> crowd().
start(N, Client, Prefix) ->
    Shared = {atomics:new(3, [{signed, true}]), counters:new(1, [write_concurrency])},
    Callers = [weir_demo_caller:start(Client, Prefix, I, Shared) || I <- lists:seq(1, N)],
    #crowd{shared = Shared, callers = maps:from_list(Callers)}.

%% @doc Stops all callers, each after its present request, and merges what they found.
-spec stop(crowd()) -> result().
stop(#crowd{shared = {Words, _}, callers = Callers}) ->
    ok = atomics:put(Words, ?STOPPED, 1),
    Deadline = erlang:monotonic_time(millisecond) + ?STOP_TIMEOUT,
    merge(collect(Callers, Deadline, [])).

collect(Callers, _Deadline, Results) when map_size(Callers) =:= 0 ->
    Results;
collect(Callers, Deadline, Results) ->
    receive
        {'DOWN', Monitor, process, Pid, Reason} when map_get(Pid, Callers) =:= Monitor ->
            Result =
                case Reason of
                    {shutdown, {result, Found}} -> Found;
                    _ -> lost({caller_crashed, Reason})
                end,
            collect(maps:remove(Pid, Callers), Deadline, [Result | Results])
    after max(0, Deadline - erlang:monotonic_time(millisecond)) ->
        [exit(Pid, kill) || Pid <- maps:keys(Callers)],
        lists:foreach(fun(Monitor) -> demonitor(Monitor, [flush]) end, maps:values(Callers)),
        [lost(caller_without_reply) || _ <- maps:keys(Callers)] ++ Results
    end.

lost(Reason) ->
    #{answered => 0, failed => #{}, wrong => 1, examples => [Reason], latency => weir_demo_histogram:new()}.

merge(Results) ->
    #{
        answered => sum(answered, Results),
        failed => lists:foldl(fun add_counts/2, #{}, [Failed || #{failed := Failed} <- Results]),
        wrong => sum(wrong, Results),
        examples => lists:sublist(lists:append([Examples || #{examples := Examples} <- Results]), ?EXAMPLES),
        latency => weir_demo_histogram:merge([Latency || #{latency := Latency} <- Results])
    }.

sum(Key, Results) ->
    lists:sum([maps:get(Key, Result) || Result <- Results]).

add_counts(Counts, All) ->
    maps:fold(fun(Reason, N, Acc) -> maps:update_with(Reason, fun(M) -> M + N end, N, Acc) end, All, Counts).

%% @doc How many requests were answered so far.
-spec done(crowd()) -> non_neg_integer().
done(#crowd{shared = {_, Done}}) ->
    counters:get(Done, 1).

%% @doc Tells all callers what may have become of the server.
-spec set_era(weir_demo_model:era(), crowd()) -> ok.
set_era(Era, #crowd{shared = {Words, _}}) ->
    atomics:put(Words, ?ERA, Era).

%% @doc From now on the next request that is answered is remembered. Call it while none can be.
-spec watch_for_success(crowd()) -> ok.
watch_for_success(#crowd{shared = {Words, _}}) ->
    atomics:put(Words, ?FIRST_SUCCESS, 0).

%% @doc When the first request since {@link watch_for_success/1} was answered.
-spec first_success(crowd()) -> {ok, Microseconds :: integer()} | none.
first_success(#crowd{shared = {Words, _}}) ->
    time(atomics:get(Words, ?FIRST_SUCCESS)).

%% Monotonic time is negative at first and may be any number, but as good as never 0.
time(0) -> none;
time(Microseconds) -> {ok, Microseconds}.

%% @doc For callers: whether to end.
-spec is_stopped(shared()) -> boolean().
is_stopped({Words, _}) ->
    atomics:get(Words, ?STOPPED) =:= 1.

%% @doc For callers: what may have become of the server.
-spec era(shared()) -> weir_demo_model:era().
era({Words, _}) ->
    case atomics:get(Words, ?ERA) of
        0 -> 0;
        1 -> 1;
        2 -> 2
    end.

%% @doc For callers: a request was answered at this time (microseconds). Cost: one atomic addition and one read.
-spec succeeded(Microseconds :: integer(), shared()) -> ok.
succeeded(Time, {Words, Done}) ->
    ok = counters:add(Done, 1, 1),
    case atomics:get(Words, ?FIRST_SUCCESS) of
        0 ->
            _ = atomics:compare_exchange(Words, ?FIRST_SUCCESS, 0, Time),
            ok;
        _ ->
            ok
    end.
