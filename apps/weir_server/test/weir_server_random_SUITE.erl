%% Random programs for servers that drain, with gen_server as the oracle. weir_server_idioms_SUITE has the programs
%% that are written by hand. Its header explains the programs.
-module(weir_server_random_SUITE).

-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_server_loop_lib, [hold/1, release/2, ask/3, events/1, spin/1]).
-import(weir_server_programs, [options/0, run/4, backlog/2, fill/1, fillers/0, do/3, times/2, casts/2]).
-import(weir_server_programs, [returns/1, request/3, comparable/3, with_states/1, times_out/2, sends_request/0]).
-import(weir_server_programs, [ways/0, ends/3]).

%% Milliseconds of a time-out that ends a program. The server has nothing to do by then.
-define(TIME_OUT, 5).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

%% All is sent by one process: what it sees must be the same to the last detail.
random_programs(_) ->
    Property = ?FORALL(
        {Options, Rounds, End, Late},
        {random_options(), non_empty(list(list(step()))), random_end(), oneof([late, none])},
        begin
            Program = program(Rounds, End, Late),
            Expected = run(gen_server, weir_server_probe, [], Program),
            Actual = run(weir_server, weir_server_probe, Options, Program),
            agree(Expected, Actual)
        end
    ),
    weir_server_loop_lib:check(Property, 100).

agree({{returned, _}, _} = Same, Same) ->
    true;
agree(Expected, Actual) ->
    ct:pal("gen_server: ~p~nweir_server: ~p~n", [Expected, Actual]),
    false.

%% From the second sender on the order in which messages arrive is not known: what each sent is in its order.
random_programs_of_two(_) ->
    Property = ?FORALL(
        {Options, First, Second},
        {random_options(), list(step()), list(step())},
        begin
            Program = fun(S, Pid) -> two(S, Pid, First, Second) end,
            Expected = run(gen_server, weir_server_probe, [], Program),
            Actual = run(weir_server, weir_server_probe, Options, Program),
            agree(Expected, Actual)
        end
    ),
    weir_server_loop_lib:check(Property, 60).

%% The answers to calls of a batch are sent when all of it has been handled, and those to requests then or before: so
%% the answers of each sort are compared among themselves. Everything is drained, so nothing that has come before a
%% callback is looked for in it.
random_batches(_) ->
    Property = ?FORALL(
        {Options, Linger, Rounds, End},
        {random_options(), oneof([0, 500]), non_empty(list(list(step()))), random_end()},
        begin
            Program = fun(S, Pid) ->
                Seen = (program([without([{cast, kill}], Round) || Round <- Rounds], End, none))(S, Pid),
                IsAnswer = fun(Event) -> tuple_size(Event) =:= 2 andalso is_tuple(element(1, Event)) end,
                {Answers, Events} = lists:partition(IsAnswer, Seen),
                {
                    Events,
                    [Answer || {{_, call}, _} = Answer <- Answers],
                    %% Not what the state was: this tells where the request was met.
                    [Id || {{_, state} = Id, _} <- Answers],
                    [Answer || {{_, ack}, _} = Answer <- Answers]
                }
            end,
            Expected = run(gen_server, weir_server_idioms, [], Program),
            Actual = run(weir_server, weir_server_idioms, [{linger, Linger} | Options], Program),
            agree(Expected, Actual)
        end
    ),
    weir_server_loop_lib:check(Property, 60).

%% As many calls and casts as are allowed, and infos, which do not count, but are seen: so all is drained, and nothing
%% dropped. What a callback looks for has been sent in it.
random_bounds(_) ->
    Property = ?FORALL(
        {Overload, Rounds, End},
        {
            oneof([reject, drop_oldest, drop_newest]),
            non_empty(list(list(frequency([{4, step()}, {1, {infos, range(20, 60)}}])))),
            random_end()
        },
        begin
            Bounded = [without([{cast, kill}], Round) || Round <- Rounds],
            Program = program(Bounded, End, none),
            Options = [{max_queue, lists:max([requests(Part) || Part <- [End | Bounded]])}, {overload, Overload}],
            Expected = run(gen_server, weir_server_probe, [], Program),
            Actual = run(weir_server, weir_server_probe, Options, Program),
            agree(Expected, Actual)
        end
    ),
    weir_server_loop_lib:check(Property, 60).

%% The most calls and casts that wait in a round, or before a time-out that runs out (times_out/2).
requests({expires, _, Requests}) -> fillers() + 5 + length([asks]) + with_states(Requests);
requests(Round) when is_list(Round) -> fillers() + lists:sum([count(Step) || Step <- Round]) + length([ends]);
requests(_End) -> 0.

count({casts, N}) -> N;
count({Kind, _}) when Kind =:= cast; Kind =:= call -> 1;
count(with_state) -> 1;
count(_) -> 0.

random_options() -> oneof(options() ++ [[{drain, {1, 2}}], [{drain, {16, 100}}], [{drain, 1}]]).

step() ->
    frequency([
        {12, {oneof([cast, call, info]), oneof([nothing, nothing, 0, hibernate, {continue, nothing}, {continue, 0},
            {continue, hibernate}, {continue, {continue, nothing}}, 1_000_000])}},
        {2, {cast, work}},
        {2, {casts, range(10, 100)}},
        {2, state},
        {2, ack},
        {2, with_state},
        {2, {cast, monitor}},
        {2, {cast, link}},
        {2, {cast, request}},
        {2, {cast, timer}},
        {1, {cast, port}},
        {1, {cast, kill}},
        {3, {cast, await}},
        {2, {cast, flush}}
    ]).

%% What ends a program: a stop, with all of the last round before it; or a time-out that runs out.
random_end() -> oneof([none, {expires, ?TIME_OUT, list(oneof([state, ack, with_state]))} | ways()]).

%% In each round the server is held while everything is sent, at last an info: it is ahead of the messages that come
%% because a callback has asked for them, so those are in the mailbox until it is handled, and by then none is left.
%% The acknowledgement comes when all has been answered, with batches as well.
program(Rounds, End, Late) ->
    fun(S, Pid) ->
        Events = [
            begin
                backlog(Pid, fun() -> send_all(S, Pid, Round, one) end),
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
    {_Result, {Reason, Events}} = (ends(Way, fun() -> send_all(S, Pid, Round, last) end, Late))(S, Pid),
    comparable(S, with_states(Round), Events) ++ [{'end', Reason}].

%% Replies to calls and requests have the number of the step.
send_all(S, Pid, Steps, Who) ->
    _ = [send(S, Pid, {Who, I}, Step) || {I, Step} <- lists:zip(lists:seq(1, length(Steps)), Steps)],
    do(Pid, ends, fun(_, State) -> {noreply, ends(State)} end),
    Pid ! last,
    ask(Pid, all_done, ack).

send(_, Pid, Id, {cast, Kind}) -> do(Pid, Id, does(Kind));
send(_, Pid, Id, {info, Kind}) -> Pid ! {do, Id, does(Kind)};
send(_, Pid, Id, {call, Kind}) -> ask(Pid, {Id, call}, {call, {do, Id, does(Kind)}});
send(_, Pid, _Id, {casts, N}) -> casts(Pid, N);
send(_, Pid, _Id, {infos, N}) -> times(N, fun(I) -> Pid ! I end);
send(S, Pid, _Id, with_state) -> request(S, Pid, with_state);
send(_, Pid, Id, Kind) -> ask(Pid, {Id, Kind}, Kind).

does(work) ->
    fun(_, State) ->
        spin(20),
        {noreply, State}
    end;
does(monitor) ->
    fun(_, State) ->
        {P, Ref} = spawn_monitor(fun() -> receive {exit, Reason} -> exit(Reason) end end),
        {noreply, asked({monitor, P, Ref}, State)}
    end;
does(link) ->
    fun(_, State) ->
        P = spawn_link(fun() -> receive {exit, Reason} -> exit(Reason) end end),
        {noreply, asked({link, P, P}, State)}
    end;
does(request) ->
    fun(_, State) ->
        {P, Request} = sends_request(),
        {noreply, asked({request, P, Request}, State)}
    end;
%% It is started when it is to run out.
does(timer) ->
    fun(_, State) -> {noreply, asked({timer, none, make_ref()}, State)} end;
does(port) ->
    fun(_, State) ->
        Port = open_port({spawn, "sh -c 'read line; exit 3'"}, [exit_status]),
        {noreply, asked({port, none, Port}, State)}
    end;
%% Those end whose message is not there yet.
does(kill) ->
    fun(_, State) ->
        _ = [killed(Asked) || Asked <- maps:get(asked, State, [])],
        {noreply, State}
    end;
does(await) ->
    fun(_, #{tell := Tell} = State) ->
        Tell ! {awaited, [awaited(killed(Asked)) || Asked <- maps:get(asked, State, [])]},
        {noreply, maps:remove(asked, State)}
    end;
does(flush) ->
    fun(_, #{tell := Tell} = State) ->
        Tell ! {flushed, [flushed(Asked) || Asked <- maps:get(asked, State, [])]},
        {noreply, maps:remove(asked, State)}
    end;
does({continue, Action}) ->
    returns({continue, {do, continued, does(Action)}});
does(Action) ->
    returns(Action).

%% The state is shown: what is in it must be the same in both.
asked(Asked, State) -> State#{asked => [Asked | maps:get(asked, State, [])]}.

%% It is asked for no more, and nothing of it is left: one that is not awaited is told here.
ends(State) ->
    _ = [flushed(Asked) || Asked <- maps:get(asked, State, [])],
    maps:remove(asked, State).

%% Has its message sent, if it is not there yet, and returns when it is in the mailbox, behind what has been sent to the
%% server.
killed({Kind, P, Id} = Asked) ->
    is_in_mailbox(Id) orelse trigger(Kind, P, Id),
    until_in_mailbox(Id),
    Asked.

trigger(request, P, _) -> P ! go;
trigger(timer, none, Id) -> erlang:start_timer(0, self(), Id);
trigger(port, none, Port) -> port_command(Port, "go\n");
trigger(_, P, _) -> P ! {exit, gone}.

until_in_mailbox(Id) ->
    case is_in_mailbox(Id) of
        true ->
            ok;
        false ->
            erlang:yield(),
            until_in_mailbox(Id)
    end.

is_in_mailbox(Id) ->
    {messages, Messages} = process_info(self(), messages),
    lists:any(fun(Message) -> is_about(Id, Message) end, Messages).

is_about(Ref, {'DOWN', Ref, process, _, _}) -> true;
is_about(Pid, {'EXIT', Pid, _}) -> true;
is_about(Id, {timeout, _, Id}) -> true;
is_about(Ref, {[alias | Ref], _}) -> true;
is_about(Ref, {Ref, {answered, _}}) -> true;
is_about(_, _) -> false.

awaited({monitor, P, Ref}) -> receive {'DOWN', Ref, process, P, Reason} -> {down, Reason} after 0 -> lost end;
awaited({request, _, Request}) ->
    case gen_server:receive_response(Request, 0) of
        timeout -> lost;
        Response -> Response
    end;
awaited({timer, none, Id}) -> receive {timeout, _, Id} -> time_up after 0 -> lost end;
awaited({port, none, Port}) ->
    [
        receive {Port, {exit_status, Status}} -> Status after 0 -> lost end,
        receive {'EXIT', Port, Reason} -> Reason after 0 -> lost end
    ];
awaited({link, P, P}) -> receive {'EXIT', P, Reason} -> {exit, Reason} after 0 -> lost end.

flushed({monitor, P, Ref}) ->
    P ! {exit, gone},
    demonitor(Ref, [flush]);
%% Its answer may be there, and does not come from now on.
flushed({request, P, Request}) ->
    true = demonitor(Request, [flush]),
    P ! go,
    receive {[alias | Request], _} -> true after 0 -> true end;
flushed({timer, none, Id}) ->
    receive {timeout, _, Id} -> true after 0 -> true end;
flushed({port, none, Port}) ->
    true = unlink(Port),
    receive {'EXIT', Port, _} -> true after 0 -> port_close(Port) end,
    receive {Port, {exit_status, _}} -> true after 0 -> true end;
flushed({link, P, P}) ->
    true = unlink(P),
    P ! {exit, gone},
    receive {'EXIT', P, _} -> true after 0 -> true end.

two(S, Pid, First, Second) ->
    %% Its answers are sent to a process that is gone. What a callback asks for could come before the other's end.
    Asks = [{cast, Kind} || Kind <- [monitor, link, request, timer, port]],
    Only = without([with_state | Asks], Second),
    Held = hold(Pid),
    fill(Pid),
    {Other, Ref} = spawn_monitor(fun() -> send_all(S, Pid, Only, two) end),
    Own = without(Asks, First),
    send_all(S, Pid, Own, one),
    receive
        {'DOWN', Ref, process, Other, normal} -> ok
    end,
    release(Pid, Held),
    Pid ! finally,
    Events = comparable(S, with_states(Own), events({info, finally})),
    [[Event || Event <- Events, is_of(Who, Event)] || Who <- [one, two]].

without(Unwanted, Steps) -> [Step || Step <- Steps, not lists:member(Step, Unwanted)].

is_of(Who, {_, {Who, I}}) when is_integer(I) -> true;
is_of(Who, {{{Who, _}, call}, _}) -> true;
is_of(_, _) -> false.
