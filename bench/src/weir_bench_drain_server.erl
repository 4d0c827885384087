%% @doc A draining server after the published algorithm of gen_server2, as a peer: before each turn it moves its whole
%% mailbox, without a limit, into a queue of its own, then handles one message from there.
%%
%% So a receive inside a callback has only to look at what arrived during that callback. It handles gen_server's
%% callback modules and answers gen_server's calls.
%%
%% It does as little as can be, to be a strong peer: no system messages, no debugging, no hibernation, no time-outs, no
%% priorities, no terminate/2. Returns of callbacks are `{reply, Reply, State}', `{noreply, State}' and
%% `{stop, Reason, Reply, State}'.
-module(weir_bench_drain_server).

-export([start/2]).

%% @doc Starts a server on a callback module; returns when its init/1 has returned `{ok, State}'.
-spec start(module(), Argument :: term()) -> {ok, pid()} | {error, term()}.
start(Module, Argument) ->
    proc_lib:start(erlang, apply, [fun() -> init(Module, Argument) end, []]).

-spec init(module(), term()) -> no_return().
init(Module, Argument) ->
    case Module:init(Argument) of
        {ok, State} ->
            ok = proc_lib:init_ack({ok, self()}),
            loop(Module, State, queue:new());
        {stop, Reason} ->
            ok = proc_lib:init_ack({error, Reason}),
            exit(Reason)
    end.

loop(Module, State, Queue) ->
    receive
        Message -> loop(Module, State, queue:in(Message, Queue))
    after 0 ->
        case queue:out(Queue) of
            {{value, Message}, Rest} ->
                handle(Message, Module, State, Rest);
            {empty, _} ->
                receive
                    Message -> loop(Module, State, queue:in(Message, Queue))
                end
        end
    end.

handle({'$gen_call', From, Request}, Module, State, Queue) ->
    case Module:handle_call(Request, From, State) of
        {reply, Reply, State1} ->
            gen_server:reply(From, Reply),
            loop(Module, State1, Queue);
        {noreply, State1} ->
            loop(Module, State1, Queue);
        {stop, Reason, Reply, _State1} ->
            gen_server:reply(From, Reply),
            exit(Reason)
    end;
handle({'$gen_cast', Request}, Module, State, Queue) ->
    {noreply, State1} = Module:handle_cast(Request, State),
    loop(Module, State1, Queue);
handle(Message, Module, State, Queue) ->
    {noreply, State1} = Module:handle_info(Message, State),
    loop(Module, State1, Queue).
