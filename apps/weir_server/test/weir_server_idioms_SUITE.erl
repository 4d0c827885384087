%% gen_server as the oracle, for servers that drain: the promises that callback modules rely on hold as well when the
%% server has drained their messages.
%%
%% A program sends messages to a server that is held in a callback, and lets it go. The first messages in the mailbox
%% are enough slow casts for the server to begin to drain before it comes to the others, as the case `drains' tests. The
%% observation of a program is the order of the callbacks and answers, without pids and references.
%%
%% With OTP 25 to 27 the first info behind the drained messages may be out of the mailbox, and a receive in a callback
%% does not find it. There the programs put another info before the message that a callback looks for.
-module(weir_server_idioms_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, until/1, wait_ms/0]).
-import(weir_server_loop_lib, [
    hold/1, held/1, release/2, act/2, ask/3, next/1, events/1, is_hibernated/1, release_number/0
]).
-import(weir_server_programs, [
    options/0, run/4, backlog/2, do/3, casts/2, returns/1, request/3, comparable/3, with_states/1, action/2,
    ways/0, ends/3, told/1, next_exit/1, until_more_than/2
]).

%% Milliseconds of a time-out. The server has nothing to do by then. The cases wait for a thousand of them.
-define(TIME_OUT, 5).

%% Cases that wait most of the time, and that log nothing.
-define(SIDE_BY_SIDE, [timeouts, timeout_starts_anew_with_each_request, hibernation]).

all() -> [{group, side_by_side} | weir_kit:cases(?MODULE) -- ?SIDE_BY_SIDE].

groups() -> [{side_by_side, [parallel], ?SIDE_BY_SIDE}].

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

%% ---------------------------------------------------------------- programs

plain() -> [{weir_server_probe, Options} || Options <- options()].

batches() -> [{weir_server_idioms, Options} || Options <- options() ++ [[{linger, 2000}], [{batch_bytes, 1}]]].

priorities() -> [{weir_server_probe_prio, Options} || Options <- [[], [{max_queue, 100_000}]]].

%% Runs each `{Name, fun(gen_server | weir_server, Pid)}' with gen_server and all variants of weir_server.
same(Variants, Programs) -> same(Variants, [], Programs).

%% Runs the programs with options that gen_server has, too.
same(Variants, Common, Programs) ->
    Differing = [
        {Name, Variant, {gen_server, Expected}, {weir_server, Actual}}
     || {Name, Program} <- Programs,
        Mod <- lists:usort([Mod || {Mod, _} <- Variants]),
        Expected <- [run(gen_server, Mod, Common, Program)],
        {Same, Options} = Variant <- Variants,
        Same =:= Mod,
        Actual <- [run(weir_server, Mod, Common ++ Options, Program)],
        Expected =/= Actual orelse is_error(Actual)
    ],
    ?assertEqual([], Differing).

%% Both may fail in the same way.
is_error({{returned, _}, _}) -> false;
is_error(_) -> true.

%% A program meets a server that has drained messages: behind the first casts more casts wait than are in the mailbox.
drains(_) ->
    Casts = lists:seq(6, 1, -1),
    Program = fun(_, Pid) ->
        backlog(Pid, fun() ->
            [
                do(Pid, Behind, fun(_, #{tell := Tell} = State) ->
                    Tell ! {mailbox, queue_len(self()) < Behind},
                    {noreply, State}
                end)
             || Behind <- Casts
            ],
            gen_server:cast(Pid, done)
        end),
        [Fewer || {mailbox, Fewer} <- events({cast, done})]
    end,
    ?assertEqual({{returned, [false || _ <- Casts]}, []}, run(gen_server, weir_server_probe, [], Program)),
    [
        begin
            {{returned, Fewer}, []} = run(weir_server, Mod, Options, Program),
            ?assert(lists:member(true, Fewer), {Mod, Options})
        end
     || {Mod, Options} <- plain() ++ batches(), not lists:member(Options, [[{drain, 1}], [{batch_bytes, 1}]])
    ].

%% ---------------------------------------------------------------- the end

%% A batch may have messages from before the stop and from behind it, so the programs for batches send none behind it.
stop_throws_nothing_away(_) ->
    [
        same(Variants, [{{Way, N}, ends(Way, N, Late)} || Way <- ways(), N <- [1, 3, 100, 1000]])
     || {Variants, Late} <- [{plain(), late}, {batches(), none}]
    ].

%% A killed server handles no more messages, and does not run terminate/2. In the second program it has drained them.
kill_is_a_kill(_) ->
    same(plain() ++ batches(), [
        {waiting, fun(_, Pid) ->
            Held = hold(Pid),
            casts(Pid, 100),
            exit(Pid, shutdown),
            exit(Pid, kill),
            release(Pid, Held),
            {next_exit(Pid), weir_server_same:mailbox()}
        end},
        {drained, fun(_, Pid) ->
            Ref = make_ref(),
            Self = self(),
            backlog(Pid, fun() ->
                gen_server:cast(Pid, {hold, Ref, Self}),
                casts(Pid, 100)
            end),
            ok = held(Ref),
            exit(Pid, kill),
            {next_exit(Pid), weir_server_loop_lib:handled(weir_server_same:mailbox())}
        end}
    ]).

%% ---------------------------------------------------------------- suspended

%% While a server is suspended, `sys' answers other requests and sees the end. The server may have drained both before.
system_messages_of_a_suspended_server(_) ->
    same(plain() ++ batches() ++ priorities(), [
        {{Between, Waiting}, fun(_, Pid) ->
            backlog(Pid, fun() ->
                suspended(Pid, Between, Waiting),
                Pid ! {system, {self(), resumed}, resume},
                gen_server:cast(Pid, done)
            end),
            %% A server handles a batch before the suspension within it.
            lists:sort(seen(Between + length(Waiting) + 3))
        end}
     || Between <- [0, 1, 40], Waiting <- [[], [state], [state, state]]
    ]).

%% The casts behind the suspension may be in a batch that the server handles before.
end_of_a_suspended_server(_) ->
    same(plain() ++ batches() ++ priorities(), [
        {{Between, Waiting, Way}, fun(_, Pid) ->
            backlog(Pid, fun() ->
                suspended(Pid, Between, Waiting),
                case Way of
                    parent -> exit(Pid, shutdown);
                    terminate -> Pid ! {system, {self(), ends}, {terminate, shutdown}}
                end
            end),
            {Reason, Events} = told(Pid),
            {Reason, [Event || Event <- Events, not is_number(element(2, Event))]}
        end}
     || Between <- [0, 1, 40], Waiting <- [[], [state]], Way <- [parent, terminate]
    ]).

suspended(Pid, Between, Waiting) ->
    Pid ! {system, {self(), suspended}, suspend},
    casts(Pid, Between),
    [ask(Pid, Kind, Kind) || Kind <- Waiting].

seen(0) -> [];
seen(N) ->
    Events = weir_server_loop_lib:handled(next(1)),
    Events ++ seen(N - length(Events)).

%% ---------------------------------------------------------------- time-outs and hibernation

%% Requests that no callback sees.
followers() ->
    [
        [], [ack], [state], [with_state], [ack, ack, ack, ack], [state, ack], [ack, with_state, state],
        [with_state, ack], [with_state, state]
    ].

%% The requests are behind the callback that asks for the time-out, or the only messages in the next batch, or come when
%% the server waits.
timeouts(_) ->
    same(plain() ++ batches(), [
        {{Action, Requests}, Program(Action, Requests)}
     || Action <- [?TIME_OUT, {timeout, ?TIME_OUT, timeout}, {hibernate, ?TIME_OUT, timeout}],
        Requests <- followers(),
        Program <- [
            fun weir_server_programs:times_out/2, fun times_out_with_requests_only/2,
            fun times_out_with_late_requests/2
        ]
    ]).

times_out_with_requests_only(Action, Requests) ->
    fun(S, Pid) ->
        Ref = make_ref(),
        Self = self(),
        backlog(Pid, fun() ->
            do(Pid, asks, fun(From, State) ->
                _ = weir_server_probe:run({hold, Ref, Self}, undefined, State),
                (returns(action(S, Action)))(From, State)
            end)
        end),
        ok = held(Ref),
        [request(S, Pid, Kind) || Kind <- Requests],
        release(Pid, Ref),
        comparable(S, with_states(Requests), events({info, timeout}))
    end.

%% The requests may come before the time-out or behind it.
times_out_with_late_requests(Action, Requests) ->
    fun(S, Pid) ->
        backlog(Pid, fun() ->
            casts(Pid, 5),
            do(Pid, asks, returns(action(S, Action)))
        end),
        Before = events({cast, asks}),
        [request(S, Pid, Kind) || Kind <- Requests],
        Sent =
            case S of
                gen_server -> length(Requests) - with_states(Requests);
                weir_server -> length(Requests)
            end,
        {Before, lists:sort(comparable(S, with_states(Requests), next(Sent + 1)))}
    end.

%% Requests that come faster than the time-out keep it from running out. If they come slower, as on a busy machine, the
%% test tries again.
timeout_starts_anew_with_each_request(_) ->
    Kinds = [
        {weir_server_probe, []}, {weir_server_probe, [{drain, {1000, 1000}}]},
        {weir_server_probe, [{max_queue, 1000}]}, {weir_server_idioms, []}
    ],
    weir_server_loop_lib:each(Kinds, fun(Pid) ->
        until(fun() ->
            act(Pid, 200),
            End = erlang:monotonic_time(millisecond) + 500,
            until(fun() ->
                _ = {sys:get_state(Pid, wait_ms()), sys:statistics(Pid, get, wait_ms())},
                erlang:monotonic_time(millisecond) > End
            end),
            weir_kit:take_messages() =:= [{cast, act}]
        end)
    end).

%% The server sleeps when all messages are handled, and sleeps again after requests that no callback sees.
hibernation(_) ->
    [
        same(plain() ++ batches(), Options, [
            {{Options, Requests}, fun(S, Pid) ->
                backlog(Pid, fun() ->
                    do(Pid, sleeps, returns(Action)),
                    casts(Pid, 3),
                    do(Pid, sleeps, returns(Action)),
                    [request(S, Pid, Kind) || Kind <- Requests]
                end),
                sleeps_again(S, Pid, Requests)
            end}
         || Requests <- followers()
        ])
     || {Options, Action} <- [{[], hibernate}, {[{hibernate_after, ?TIME_OUT}], nothing}]
    ].

sleeps_again(S, Pid, Requests) ->
    until(fun() -> is_hibernated(Pid) end),
    [request(S, Pid, Kind) || Kind <- Requests],
    %% The server is awake when it answers.
    Answers = 2 * (length(Requests) - with_states(Requests)),
    IsAnswer = fun(Message) -> lists:member(element(1, Message), [ack, state]) end,
    until(fun() -> length(lists:filter(IsAnswer, weir_server_same:mailbox())) >= Answers end),
    until(fun() -> is_hibernated(Pid) end),
    gen_server:cast(Pid, wakes),
    comparable(S, 2 * with_states(Requests), events({cast, wakes})).

%% ---------------------------------------------------------------- infos while casts flood

-define(INFOS, 50).

%% Half of the infos come while the server is held, and half while it works. The bound drops casts, and no infos.
infos_while_casts_flood(_) ->
    Variants = [
        {Mod, [{max_queue, 20}, {overload, Overload}]}
     || Mod <- [weir_server_probe, weir_server_idioms], Overload <- [reject, drop_oldest, drop_newest]
    ],
    same(Variants, [
        {Kind, fun(_, Pid) ->
            Triggers = asked_for(Kind, Pid),
            {Held, Free} = lists:split(?INFOS div 2, Triggers),
            backlog(Pid, fun() -> [flood(Trigger, Pid) || Trigger <- Held] end),
            [flood(Trigger, Pid) || Trigger <- Free],
            lists:sort([told_of(Kind) || _ <- Triggers])
        end}
     || Kind <- [closed, down, exit, reply, timer, send_after]
    ]).

flood(Trigger, Pid) ->
    casts(Pid, 10),
    Trigger(),
    casts(Pid, 10).

%% Has the server ask for infos. Returns the functions that have them sent.
asked_for(closed, Pid) ->
    [fun() -> Pid ! {tcp_closed, I} end || I <- lists:seq(1, ?INFOS)];
asked_for(timer, Pid) ->
    [fun() -> erlang:start_timer(1, Pid, I) end || I <- lists:seq(1, ?INFOS)];
asked_for(send_after, Pid) ->
    [fun() -> erlang:send_after(0, Pid, {after_all, I}) end || I <- lists:seq(1, ?INFOS)];
asked_for(reply, Pid) ->
    Self = self(),
    asks(Pid, fun() -> [gen_server:send_request(Self, I) || I <- lists:seq(1, ?INFOS)] end),
    [receive {'$gen_call', From, I} -> fun() -> gen_server:reply(From, I) end end || I <- lists:seq(1, ?INFOS)];
asked_for(Kind, Pid) ->
    Processes = [spawn(fun exits/0) || _ <- lists:seq(1, ?INFOS)],
    Ask = case Kind of down -> fun(P) -> monitor(process, P) end; exit -> fun link/1 end,
    asks(Pid, fun() -> lists:map(Ask, Processes) end),
    [fun() -> P ! {exit, I} end || {I, P} <- lists:enumerate(Processes)].

asks(Pid, Fun) ->
    do(Pid, asks, fun(_, State) -> {noreply, State#{asked => Fun()}} end),
    [] = events({cast, asks}).

told_of(Kind) ->
    receive
        {info, {tcp_closed, I}} when Kind =:= closed -> I;
        {info, {'DOWN', _, process, _, I}} when Kind =:= down -> I;
        {info, {'EXIT', _, I}} when Kind =:= exit -> I;
        {info, {_, I}} when Kind =:= reply, is_integer(I) -> I;
        {info, {timeout, _, I}} when Kind =:= timer -> I;
        {info, {after_all, I}} when Kind =:= send_after -> I
    after wait_ms() -> error({never, Kind, weir_kit:messages()})
    end.

%% A process that waits for its exit reason.
exits() ->
    receive
        {exit, Reason} -> exit(Reason)
    end.

%% ---------------------------------------------------------------- what an earlier callback asked for

%% Each line has three functions. The first one is run by a callback, which thereby asks for a message. The second one
%% has the message sent, with the result of the first one. The third one is run by a later callback, with the same
%% result, and its result is compared. The message is behind the cast of the later callback, so gen_server finds it.
message_that_a_callback_awaits_is_found(_) ->
    looks([
        {down, fun() -> spawn_monitor(fun exits/0) end, fun({P, _}) -> P ! {exit, gone} end, fun({P, Ref}) ->
            receive {'DOWN', Ref, process, P, Reason} -> Reason after wait_ms() -> lost end
        end},
        {exit, fun() -> spawn_link(fun exits/0) end, fun(P) -> P ! {exit, gone} end, fun(P) ->
            receive {'EXIT', P, Reason} -> Reason after wait_ms() -> lost end
        end},
        {message, fun() -> {self(), make_ref()} end, fun({Server, Ref}) -> Server ! {Ref, value} end, fun({_, Ref}) ->
            receive {Ref, Value} -> Value after wait_ms() -> lost end
        end},
        %% The exit of the port comes behind its status.
        {port, fun port/0, fun(Port) -> true = port_command(Port, "go\n") end, fun(Port) ->
            Status = receive {Port, {exit_status, S}} -> S after wait_ms() -> lost end,
            {Status, receive {'EXIT', Port, Reason} -> Reason after wait_ms() -> lost end}
        end},
        {responses, fun requests/0, fun({P, _}) -> P ! go end, fun({_, Requests}) ->
            {Response, label, Left} = gen_server:receive_response(Requests, wait_ms(), true),
            {Response, gen_server:reqids_size(Left)}
        end},
        {socket, fun socket/0, fun({Peer, _}) -> Peer ! {send, <<"data">>} end, fun({_, Socket}) ->
            receive {tcp, Socket, Data} -> Data after wait_ms() -> lost end
        end},
        {socket_given_away, fun socket/0, fun({Peer, _}) -> Peer ! {send, <<"data">>} end, fun gives_away/1}
    ] ++ [
        {{response, Name}, fun request/0, fun({P, _}) -> P ! go end, fun({_, Request}) -> Look(Request) end}
     || {Name, Look} <- [
            {received, fun(Request) -> gen_server:receive_response(Request, wait_ms()) end},
            {waited, fun(Request) -> gen_server:wait_response(Request, wait_ms()) end},
            {received_by_weir_server, fun(Request) -> weir_server:receive_response(Request, wait_ms()) end},
            {received_at_once, fun(Request) -> gen_server:receive_response(Request, 0) end}
        ]
    ]).

message_that_a_callback_flushes_does_not_come(_) ->
    looks([
        {{monitor, Name}, fun() -> spawn_monitor(fun exits/0) end, fun({P, _}) -> P ! {exit, gone} end, Look}
     || {Name, Look} <- [
            {flush, fun({_, Ref}) -> demonitor(Ref, [flush]) end},
            {info, fun({_, Ref}) -> demonitor(Ref, [flush, info]) end},
            {received, fun({_, Ref}) ->
                true = demonitor(Ref),
                receive {'DOWN', Ref, _, _, _} -> flushed after 0 -> nothing end
            end}
        ]
    ] ++ [
        %% The trigger starts the timer, so the time is over when the callback cancels it.
        {timer, fun() -> {self(), ets:new(timer, [public])} end,
            fun({Server, Table}) -> ets:insert(Table, {timer, erlang:start_timer(0, Server, time_up)}) end,
            fun({_, Table}) ->
                [{timer, Timer}] = ets:lookup(Table, timer),
                Left = erlang:cancel_timer(Timer),
                receive {timeout, Timer, Message} -> {Left, flushed, Message} after 0 -> {Left, nothing} end
            end},
        {link, fun() -> spawn_link(fun exits/0) end, fun(P) -> P ! {exit, gone} end, fun(P) ->
            true = unlink(P),
            receive {'EXIT', P, _} -> flushed after 0 -> nothing end
        end},
        {request, fun request/0, fun({P, _}) -> P ! go end, fun({_, Request}) ->
            true = demonitor(Request, [flush]),
            receive
                {[alias | Request], Answer} -> {flushed, Answer};
                {Request, Answer} -> {flushed, Answer}
            after 0 -> nothing
            end
        end},
        {alias, fun() -> {self(), erlang:alias()} end, fun({_, Alias}) -> Alias ! {late, Alias} end, fun({_, Alias}) ->
            true = erlang:unalias(Alias),
            Alias ! {too_late, Alias},
            [receive {Late, Alias} -> flushed after 0 -> nothing end || Late <- [late, too_late]]
        end},
        {alias_of_a_monitor,
            fun() ->
                P = spawn(fun exits/0),
                {P, monitor(process, P, [{alias, explicit_unalias}])}
            end,
            fun({_, Ref}) -> Ref ! {late, Ref} end,
            fun({P, Ref}) ->
                true = erlang:unalias(Ref),
                true = demonitor(Ref, [flush]),
                P ! {exit, gone},
                receive {late, Ref} -> flushed after 0 -> nothing end
            end}
    ]).

looks(Lines) ->
    Befores = [[] || release_number() >= 28] ++ [[other], [other, other]],
    same(plain(), [
        {{Name, Before, Behind}, looks(Before, Behind, Ask, Trigger, Look)}
     || {Name, Ask, Trigger, Look} <- Lines, Before <- Befores, Behind <- [0, 50]
    ]).

looks(Before, Behind, Ask, Trigger, Look) ->
    fun(_, Pid) ->
        Self = self(),
        do(Pid, asks, fun(_, State) ->
            Asked = Ask(),
            Self ! {asked, Asked},
            {noreply, State#{asked => Asked}}
        end),
        Asked =
            receive
                {asked, A} -> A
            after wait_ms() -> error({never, asked, weir_kit:messages()})
            end,
        backlog(Pid, fun() ->
            do(Pid, looks, fun(_, #{asked := For} = State) ->
                Self ! {found, Look(For)},
                {noreply, maps:remove(asked, State)}
            end),
            [Pid ! Info || Info <- Before],
            Length = queue_len(Pid),
            Trigger(Asked),
            until_more_than(Length, Pid),
            casts(Pid, Behind)
        end),
        %% All other messages are before this info.
        Pid ! done,
        events({info, done})
    end.

%% On OTP 25 to 27 a receive does not find the first info behind the drained messages. handle_info/2 gets it later.
first_info_is_out_of_the_mailbox_before_otp_28(_) ->
    Program = looks([], 0, fun() -> {self(), make_ref()} end, fun({Server, Ref}) -> Server ! {Ref, value} end, fun
        ({_, Ref}) -> receive {Ref, Value} -> Value after 0 -> nothing end
    end),
    Found = [{cast, asks}, {cast, looks}, {found, value}],
    Out = [{cast, asks}, {cast, looks}, {found, nothing}, {info, {ref, value}}],
    Drained = case release_number() >= 28 of true -> Found; false -> Out end,
    [
        ?assertEqual({Options, {{returned, Expected}, []}}, {Options, run(S, weir_server_probe, Options, Program)})
     || {S, Options, Expected} <- [
            {gen_server, [], Found}, {weir_server, [{drain, 1}], Found}, {weir_server, [], Drained},
            {weir_server, [{drain, {1000, 1000}}], Drained}
        ]
    ].

port() -> open_port({spawn, "sh -c 'read line; exit 3'"}, [exit_status]).

%% Starts a process that receives one call, and answers after the message `go'.
answers_once() ->
    spawn(fun() ->
        receive
            {'$gen_call', From, Request} -> receive go -> gen_server:reply(From, {answered, Request}) end
        end
    end).

request() ->
    P = answers_once(),
    {P, gen_server:send_request(P, question)}.

requests() ->
    P = answers_once(),
    {P, gen_server:send_request(P, question, label, gen_server:reqids_new())}.

%% Opens an active socket of the calling server. The peer process sends the data.
socket() ->
    Server = self(),
    Peer = spawn(fun() ->
        {ok, Listening} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}]),
        {ok, Port} = inet:port(Listening),
        Server ! {self(), Port},
        {ok, Accepted} = gen_tcp:accept(Listening),
        Ref = monitor(process, Server),
        receive
            {send, Data} ->
                ok = gen_tcp:send(Accepted, Data),
                receive {'DOWN', Ref, process, Server, _} -> ok end
        end
    end),
    receive
        {Peer, Port} ->
            {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, true}]),
            {Peer, Socket}
    end.

%% Gives the socket, whose data has arrived, to a new owner. The owner gets the data while the server still gives the
%% socket away, and therefore lives until the end of the server.
gives_away({_, Socket}) ->
    Server = self(),
    Owner = spawn(fun() ->
        Ref = monitor(process, Server),
        receive {tcp, Socket, Data} -> Server ! {self(), Data} end,
        receive {'DOWN', Ref, process, Server, _} -> ok end
    end),
    Given = gen_tcp:controlling_process(Socket, Owner),
    receive {Owner, Data} -> {Given, Data} after wait_ms() -> {Given, lost} end.
