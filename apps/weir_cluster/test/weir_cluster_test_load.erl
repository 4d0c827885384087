%% Callers of a node: each makes one request, tells what came of it, and is asked in the end what has come to it since.
-module(weir_cluster_test_load).

-export([start/0, requests/5, have_ended/1, told/0]).

%% Keeps what callers of this node tell.
start() ->
    Me = self(),
    spawn(fun() ->
        true = register(?MODULE, self()),
        Me ! started,
        keep(#{}, #{})
    end),
    receive started -> ok end.

%% Begins so many requests of a kind, with ids {Batch, I}.
requests(Batch, Kind, Count, Ms, Timeout) ->
    ask({begun, Batch, [
        begin
            Id = {Batch, I},
            {spawn(fun() -> caller(Id, Kind, Ms, Timeout) end), Id}
        end
     || I <- lists:seq(1, Count)
    ]}).

%% Whether each of these batches has all its results.
have_ended(Batches) -> ask({have_ended, Batches}).

%% [{Id, Result, Messages that came besides}]
told() ->
    [
        begin
            Monitor = monitor(process, Pid),
            Pid ! {stop, Monitor},
            receive {'DOWN', Monitor, process, Pid, {besides, Messages}} -> {Id, Result, Messages} end
        end
     || {Id, {Pid, Result}} <- maps:to_list(ask(results))
    ].

ask(Question) ->
    Monitor = monitor(process, ?MODULE),
    ?MODULE ! {Monitor, self(), Question},
    receive
        {Monitor, Answer} ->
            true = demonitor(Monitor, [flush]),
            Answer
    end.

keep(Under, Results) ->
    receive
        {result, Pid, Id, Result} ->
            {Id, Left} = maps:take(Pid, Under),
            false = is_map_key(Id, Results),
            keep(Left, Results#{Id => {Pid, Result}});
        {Tag, From, {begun, _Batch, Callers}} ->
            _ = [Pid ! go || {Pid, _} <- Callers],
            From ! {Tag, ok},
            keep(maps:merge(Under, maps:from_list(Callers)), Results);
        {Tag, From, {have_ended, Batches}} ->
            From ! {Tag, not lists:any(fun({Batch, _}) -> lists:member(Batch, Batches) end, maps:values(Under))},
            keep(Under, Results);
        {Tag, From, results} ->
            From ! {Tag, Results},
            keep(Under, #{})
    end.

caller(Id, Kind, Ms, Timeout) ->
    receive go -> ok end,
    Result =
        try
            request(Kind, Id, Ms, Timeout)
        catch
            exit:{Reason, {Module, _, _}} when is_atom(Module) -> {exit, Reason};
            Class:Reason:Stack -> {Class, {Reason, Stack}}
        end,
    ?MODULE ! {result, self(), Id, Result},
    receive
        {stop, Monitor} when is_reference(Monitor) ->
            {messages, Messages} = process_info(self(), messages),
            exit({besides, Messages})
    end.

request(call, Id, Ms, Timeout) -> weir_cluster:call(p, {do, Id, Ms}, Timeout);
request(call_key, Id, Ms, Timeout) -> weir_cluster:call_key(p, Id, {do, Id, Ms}, Timeout);
request(idempotent, Id, Ms, Timeout) ->
    weir_cluster:call_key(p, Id, {do, Id, Ms}, [{timeout, Timeout}, {idempotent, true}]);
request(die, Id, _Ms, Timeout) -> weir_cluster:call_key(p, Id, {die, Id}, Timeout);
request(cast, Id, _Ms, _Timeout) -> weir_cluster:cast(p, {do, Id});
request(cast_key, Id, _Ms, _Timeout) -> weir_cluster:cast_key(p, Id, {do, Id});
request(multicall, Id, Ms, Timeout) -> weir_cluster:multicall(p, {do, Id, Ms}, Timeout);
request(send_request, Id, Ms, Timeout) ->
    weir_cluster:receive_response(weir_cluster:send_request(p, {do, Id, Ms}, Timeout), Timeout);
request(claim, Id, Ms, Timeout) ->
    Use = fun(Worker) ->
        ok = gen_server:call(Worker, {take, Id}, Timeout),
        receive after Ms -> ok end,
        gen_server:call(Worker, {give, Id}, Timeout)
    end,
    weir_cluster:claim(p, Use, Timeout).
