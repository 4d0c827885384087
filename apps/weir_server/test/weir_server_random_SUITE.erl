%% Random programs for servers that drain, with gen_server as the oracle. weir_server_idioms_SUITE explains the
%% programs, and has the programs that are written by hand.
-module(weir_server_random_SUITE).

-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_server_loop_lib, [ask/3, events/1, spin/1]).
-import(weir_server_programs, [options/0, run/4, backlog/2, do/3, casts/2, returns/1, request/3, comparable/3]).
-import(weir_server_programs, [with_states/1, times_out/2, ways/0, ends/3]).

%% Milliseconds of a time-out that ends a program. The server has nothing to do by then.
-define(TIME_OUT, 5).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

%% ---------------------------------------------------------------- programs

%% One process sends all messages, and must see the same to the last detail.
random_programs(_) ->
    Property = ?FORALL(
        {Options, Rounds, End, Late},
        {random_options(), non_empty(list(list(step()))), random_end(), oneof([late, none])},
        agree(
            fun() -> run(gen_server, weir_server_probe, [], program(Rounds, End, Late)) end,
            fun() -> run(weir_server, weir_server_probe, Options, program(Rounds, End, Late)) end
        )
    ),
    weir_server_loop_lib:check(Property, 200).

%% A server answers the calls of a batch behind the batch, and other requests before or behind it. The test compares the
%% answers of each sort among themselves. The server drains everything, so no callback looks for an earlier message.
random_batches(_) ->
    Property = ?FORALL(
        {Options, Linger, Rounds, End},
        {random_options(), oneof([0, 500]), non_empty(list(list(step()))), random_end()},
        begin
            Program = fun(S, Pid) ->
                Seen = (program([Round -- [{cast, kill} || _ <- Round] || Round <- Rounds], End, none))(S, Pid),
                IsAnswer = fun(Event) -> tuple_size(Event) =:= 2 andalso is_tuple(element(1, Event)) end,
                {Answers, Events} = lists:partition(IsAnswer, Seen),
                {
                    Events,
                    [Answer || {{_, call}, _} = Answer <- Answers],
                    %% The state differs with the place at which the server met the request.
                    [Id || {{_, state} = Id, _} <- Answers],
                    [Answer || {{_, ack}, _} = Answer <- Answers]
                }
            end,
            agree(
                fun() -> run(gen_server, weir_server_idioms, [], Program) end,
                fun() -> run(weir_server, weir_server_idioms, [{linger, Linger} | Options], Program) end
            )
        end
    ),
    weir_server_loop_lib:check(Property, 80).

agree(RunGenServer, RunWeirServer) ->
    case {RunGenServer(), RunWeirServer()} of
        {{{returned, _}, _} = Same, Same} ->
            true;
        {Expected, Actual} ->
            ct:pal("gen_server: ~p~nweir_server: ~p~n", [Expected, Actual]),
            false
    end.

random_options() -> oneof(options() ++ [[{drain, {1, 2}}], [{drain, {16, 100}}]]).

step() ->
    Actions = [
        nothing, nothing, 0, hibernate, {continue, nothing}, {continue, 0}, {continue, hibernate},
        {continue, {continue, nothing}}, 1_000_000
    ],
    frequency([
        {12, {oneof([cast, call, info, credit]), oneof(Actions)}},
        {2, {cast, work}},
        {2, {casts, range(10, 100)}},
        {2, state},
        {2, ack},
        {2, with_state},
        {3, {cast, monitor}},
        {1, {cast, kill}},
        {2, {cast, await}},
        {1, {cast, flush}}
    ]).

%% A program ends by a stop, with all messages of the last round before it, or by a time-out that runs out.
random_end() -> oneof([none, {expires, ?TIME_OUT, list(oneof([state, ack, with_state]))} | ways()]).

%% The server is held while the messages of a round are sent. The last one is an info, which is ahead of the messages
%% that a callback asks for. These messages stay in the mailbox until the server handles that info, and callbacks have
%% taken all of them by then. The acknowledgement comes when all requests have been answered.
program(Rounds, End, Late) ->
    fun(S, Pid) ->
        Events = [
            begin
                backlog(Pid, fun() -> send_all(S, Pid, Round) end),
                comparable(S, with_states(Round), events({all_done, {ok, no_statistics}}))
            end
         || Round <- Rounds
        ],
        lists:append(Events) ++ ended(End, Late, lists:last(Rounds), S, Pid)
    end.

ended(none, _Late, _Round, _S, _Pid) ->
    [];
ended({expires, Time, Requests}, _Late, _Round, S, Pid) ->
    (times_out(Time, Requests))(S, Pid);
ended(Way, Late, Round, S, Pid) ->
    {_Result, {Reason, Events}} = (ends(Way, fun() -> send_all(S, Pid, Round) end, Late))(S, Pid),
    comparable(S, with_states(Round), Events) ++ [{'end', Reason}].

%% Replies to calls and requests have the number of the step.
send_all(S, Pid, Steps) ->
    _ = [send(S, Pid, {step, I}, Step) || {I, Step} <- lists:enumerate(Steps)],
    do(Pid, ends, does(flush)),
    Pid ! last,
    ask(Pid, all_done, ack).

send(_, Pid, Id, {cast, Kind}) -> do(Pid, Id, does(Kind));
send(_, Pid, Id, {info, Kind}) -> Pid ! {do, Id, does(Kind)};
send(_, Pid, Id, {call, Kind}) -> ask(Pid, {Id, call}, {call, {do, Id, does(Kind)}});
%% Only weir_server takes the credit of weir_flow off a message.
send(gen_server, Pid, Id, {credit, Kind}) -> send(gen_server, Pid, Id, {cast, Kind});
send(_, Pid, Id, {credit, Kind}) -> Pid ! {'$weir_credit', atomics:new(1, []), {'$gen_cast', {do, Id, does(Kind)}}};
send(_, Pid, _Id, {casts, N}) -> casts(Pid, N);
send(S, Pid, _Id, with_state) -> request(S, Pid, with_state);
send(_, Pid, Id, Kind) -> ask(Pid, {Id, Kind}, Kind).

does(work) ->
    fun(_, State) ->
        spin(20),
        {noreply, State}
    end;
does(monitor) ->
    fun(_, State) ->
        Monitored = spawn_monitor(fun() -> receive {exit, Reason} -> exit(Reason) end end),
        {noreply, State#{monitored => [Monitored | maps:get(monitored, State, [])]}}
    end;
does(kill) ->
    with_monitored(fun killed/1, fun(_, State) -> State end);
does(await) ->
    Await = fun({P, Ref}) ->
        killed({P, Ref}),
        receive {'DOWN', Ref, process, P, Reason} -> {down, Reason} after 0 -> lost end
    end,
    with_monitored(Await, fun(Awaited, #{tell := Tell} = State) ->
        Tell ! {awaited, Awaited},
        maps:remove(monitored, State)
    end);
does(flush) ->
    Flush = fun({P, Ref}) ->
        P ! {exit, gone},
        demonitor(Ref, [flush])
    end,
    with_monitored(Flush, fun(_, State) -> maps:remove(monitored, State) end);
does({continue, Action}) ->
    returns({continue, {do, continued, does(Action)}});
does(Action) ->
    returns(Action).

with_monitored(Do, Result) ->
    fun(_, State) -> {noreply, Result([Do(Monitored) || Monitored <- maps:get(monitored, State, [])], State)} end.

%% Ends a process. Its message is then in the mailbox of the server, behind the messages that were sent before.
killed({P, Ref}) ->
    P ! {exit, gone},
    weir_kit:until(fun() ->
        {messages, Messages} = process_info(self(), messages),
        lists:keymember(Ref, 2, [Message || Message <- Messages, is_tuple(Message), tuple_size(Message) > 1])
    end).
