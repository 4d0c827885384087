%% @doc A process that makes one request after the other, without pause, and checks every reply against its model
%% ({@link weir_demo_model}). After a failed request it waits a little, as a caller would.
%%
%% It ends when the crowd is stopped, with `{shutdown, {result, Found}}'.
-module(weir_demo_caller).

-export([start/4]).

%% Values that are not ours to delete vanish by themselves.
-define(TTL, 300).

-define(PAUSE_AFTER_FAILURE_MS, 20).

-define(EXAMPLES, 3).

-record(caller, {
    client :: weir_memcached:client(),
    shared :: weir_demo_crowd:shared(),
    model :: weir_demo_model:model(),
    answered = 0 :: non_neg_integer(),
    failed = #{} :: #{term() => pos_integer()},
    wrong = 0 :: non_neg_integer(),
    examples = [] :: [term()],
    latency = weir_demo_histogram:new() :: weir_demo_histogram:histogram()
}).

%% @doc Starts caller number `I', monitored. Its keys start with the prefix and its number.
-spec start(weir_memcached:client(), Prefix :: binary(), I :: pos_integer(), weir_demo_crowd:shared()) ->
    {pid(), reference()}.
start(Client, Prefix, I, Shared) ->
    spawn_monitor(fun() ->
        loop(#caller{client = Client, shared = Shared, model = weir_demo_model:new(Prefix, I)})
    end).

loop(#caller{shared = Shared} = Caller) ->
    case weir_demo_crowd:is_stopped(Shared) of
        true -> exit({shutdown, {result, result(Caller)}});
        false -> loop(request(Caller))
    end.

request(#caller{client = Client, shared = Shared, model = Model} = Caller) ->
    {Request, Step, Model1} = weir_demo_model:next(rand:uniform(10_000), weir_demo_crowd:era(Shared), Model),
    Start = erlang:monotonic_time(nanosecond),
    Reply = perform(Request, Client),
    End = erlang:monotonic_time(nanosecond),
    {Verdict, Model2} = weir_demo_model:check(Step, Reply, weir_demo_crowd:era(Shared), Model1),
    judged(Verdict, Start, End, Caller#caller{model = Model2}).

judged(ok, Start, End, #caller{shared = Shared, answered = Answered, latency = Latency} = Caller) ->
    ok = weir_demo_crowd:succeeded(End div 1000, Shared),
    Caller#caller{answered = Answered + 1, latency = weir_demo_histogram:add(End - Start, Latency)};
judged({failed, Reason}, _Start, _End, #caller{failed = Failed} = Caller) ->
    receive
    after ?PAUSE_AFTER_FAILURE_MS -> ok
    end,
    Caller#caller{failed = maps:update_with(Reason, fun(N) -> N + 1 end, 1, Failed)};
judged({wrong, What}, _Start, _End, #caller{wrong = Wrong, examples = Examples} = Caller) ->
    Caller#caller{wrong = Wrong + 1, examples = lists:sublist([What | Examples], ?EXAMPLES)}.

perform({get, Key}, Client) -> weir_memcached:get(Client, Key);
perform({set, Key, Value}, Client) -> weir_memcached:set(Client, Key, Value, #{ttl => ?TTL});
perform({delete, Key}, Client) -> weir_memcached:delete(Client, Key);
perform({incr, Key, By}, Client) -> weir_memcached:incr(Client, Key, By).

result(#caller{answered = Answered, failed = Failed, wrong = Wrong, examples = Examples, latency = Latency}) ->
    #{answered => Answered, failed => Failed, wrong => Wrong, examples => Examples, latency => Latency}.
