%% What one suspect handles is counted, and nothing else, and it is seen who sends to it and which tables it uses; and
%% nothing is left behind.
-module(weir_watch_trace_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([counts_each/1, per_second/1, not_others/1, other_behaviours/1, nothing_to_count/1, dead/1]).
-export([who_sends/1, by_calls/1, to_others/1, each_fifteenth/1, tables/1, no_large_objects/1]).
-export([one_at_a_time/1, word_of_another/1, beside_another_tracer/1, killed/1, agent_dies/1, stopped/1]).

-import(weir_watch_test_lib, [eventually/1]).

-define(MARK, 16#57000000).
-define(ANSWER_MS, 60_000).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        counts_each, per_second, not_others, other_behaviours, nothing_to_count, dead, who_sends, by_calls, to_others,
        each_fifteenth, tables, no_large_objects, one_at_a_time, word_of_another,
        beside_another_tracer, killed, agent_dies, stopped
    ].

init_per_suite(Config) ->
    case weir_watch_trace:is_possible() of
        true -> Config;
        false -> {skip, "There are no trace sessions before OTP 27."}
    end.

end_per_suite(_Config) -> ok.

%% A call, a cast, and another message: each once, while so few are counted for two seconds.
counts_each(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    counted_exactly(Tracer, Server, fun() ->
        [begin ok = gen_server:call(Server, x), ok = gen_server:cast(Server, x), Server ! x end || _ <- lists:seq(1, 10)],
        ok = gen_server:call(Server, x),
        31
    end),
    stop(Tracer, Server).

%% The server's own count of messages in a second, and that.
per_second(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    Callers = [spawn_link(fun() -> calls(Server) end) || _ <- lists:seq(1, 4)],
    Begin = {erlang:monotonic_time(millisecond), handled(Server)},
    PerSecond = count(Tracer, Server),
    End = {erlang:monotonic_time(millisecond), handled(Server)},
    [begin unlink(Caller), exit(Caller, kill) end || Caller <- Callers],
    %% It was counted in between; a second is no longer than that took.
    ?assert(PerSecond > 0),
    ?assert(PerSecond div 5 =< element(2, End) - element(2, Begin), {PerSecond, Begin, End}),
    stop(Tracer, Server).

not_others(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    {ok, Other} = server(),
    counted_exactly(Tracer, Server, fun() ->
        [ok = gen_server:call(Other, x) || _ <- lists:seq(1, 50)],
        ok = gen_server:call(Server, x),
        1
    end),
    ok = gen_server:stop(Other),
    stop(Tracer, Server).

other_behaviours(_Config) ->
    ?assertEqual([{handle_event, 4}], weir_watch_trace:callbacks(gen_statem)),
    [?assertEqual([], weir_watch_trace:callbacks(Other)) || Other <- [gen_event, process, weir_server, gen_batch_server]],
    Tracer = weir_watch_trace:start_link(),
    {ok, Statem} = weir_watch_form_statem:start(fun() -> 0 end, fun(_, N) -> N + 1 end),
    ok = weir_watch_trace:ask(Tracer, Statem, [{handled, [{weir_watch_form_statem, handle_event, 4}]}]),
    eventually(fun() ->
        [ok = gen_statem:call(Statem, x) || _ <- lists:seq(1, 10)],
        word() > ?MARK
    end),
    ?assert(answer(Tracer, Statem) > 0),
    ok = gen_statem:stop(Statem),
    true = end_now(Tracer).

%% A module without such functions, and one that is not there.
nothing_to_count(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    [
        begin
            ok = weir_watch_trace:ask(Tracer, self(), [{handled, Functions}]),
            ?assertEqual(undefined, answer(Tracer, self())),
            ?assertEqual(0, word())
        end
     || Functions <- [[], [{lists, handle_call, 3}], [{no_such_module, handle_call, 3}]]
    ],
    true = end_now(Tracer).

dead(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    ok = gen_server:stop(Server),
    ?assertEqual(0, count(Tracer, Server)),
    true = end_now(Tracer).

%% Two processes, by its pid and by its name; of the messages the kind.
who_sends(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = weir_watch_form_server:start(named, fun() -> 0 end, fun(_, N) -> N + 1 end),
    Casts = spawn_link(fun() -> casts(named, secret) end),
    Sends = spawn_link(fun() -> sends(Server, {event, secret}) end),
    Sent = eventually(fun() ->
        #{sent := Some} = ask(Tracer, Server, {sent, [Server, named]}),
        length(lists:usort(Some)) >= 2 andalso Some
    end),
    ?assertEqual(
        lists:sort([
            {Casts, {?MODULE, casts, 2}, <<"cast secret">>}, {Sends, {?MODULE, sends, 2}, <<"{event,_}">>}
        ]),
        %% The cast is an erlang:send/2, too.
        lists:usort(Sent) -- [{Casts, undefined, <<"cast secret">>}]
    ),
    ended([Casts, Sends]),
    stop(Tracer, Server).

by_calls(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    Caller = spawn_link(fun() -> calls(Server) end),
    {ok, Event} = gen_event:start(),
    Notifies = spawn_link(fun() -> notifies(Event) end),
    Of = fun(Pid, Kind) ->
        eventually(fun() ->
            #{sent := Sent} = ask(Tracer, Pid, {sent, [Pid]}),
            [Who || {Who, {?MODULE, _, _}, Is} <- Sent, Is =:= Kind] =/= [] andalso lists:usort([Who || {Who, _, _} <- Sent])
        end)
    end,
    ?assertEqual([Caller], Of(Server, <<"call x">>)),
    ?assertEqual([Notifies], Of(Event, <<"event {happened,_}">>)),
    ended([Caller, Notifies]),
    ok = gen_event:stop(Event),
    stop(Tracer, Server).

to_others(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    {ok, Other} = server(),
    Caller = spawn_link(fun() -> calls(Other) end),
    ?assertEqual(#{sent => []}, ask(Tracer, Server, {sent, [Server]})),
    ended([Caller]),
    ok = gen_server:stop(Other),
    stop(Tracer, Server).

%% Of N messages, one more than the fifteenth part, up to sixteen.
each_fifteenth(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    [
        begin
            Sent = eventually(fun() -> sent_meanwhile(N, Tracer, Server) end),
            ?assertEqual([{self(), {?MODULE, send_all, 2}, <<"number">>}], lists:usort(Sent)),
            ?assertEqual({N, min(16, (N + 14) div 15)}, {N, length(Sent)})
        end
     || N <- [1, 15, 16, 30, 225, 226, 500]
    ],
    stop(Tracer, Server).

%% What is found if all are sent after the breakpoints have been set and before they are removed: that the name is
%% there and the word goes up by as many tells that, up to the last that is counted.
sent_meanwhile(N, Tracer, Server) ->
    ok = weir_watch_trace:ask(Tracer, Server, [{sent, [Server]}]),
    eventually(fun() -> lists:all(fun(F) -> traced(F) =/= [] end, [{erlang, send, 2}, {erlang, send, 3}]) end),
    ok = send_all(N, Server),
    After = word(),
    #{sent := Sent} = receive {traced, Tracer, Server, Found} -> Found after ?ANSWER_MS -> no_answer end,
    After =:= ?MARK + min(N, 240) andalso Sent.

send_all(0, _To) ->
    ok;
send_all(N, To) ->
    _ = erlang:send(To, N),
    send_all(N - 1, To).

%% A table with a name, and one without, of the suspect alone.
tables(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    _ = ets:new(named, [named_table, public]),
    Unnamed = ets:new(unnamed, [public]),
    Other = ets:new(other, [public]),
    User = spawn_link(fun() -> uses([named, Unnamed]) end),
    Another = spawn_link(fun() -> uses([Other]) end),
    #{tables := Tables} = ask(Tracer, User, tables),
    ?assertEqual([named, unnamed], lists:usort(Tables)),
    ?assert(length(Tables) =< 16),
    ?assertEqual(#{tables => []}, ask(Tracer, self(), tables)),
    ended([User, Another]),
    true = end_now(Tracer).

%% A list of objects is not looked at.
no_large_objects(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    Table = ets:new(table, [public]),
    User = spawn_link(fun() -> inserts_many(Table) end),
    ?assertEqual(#{tables => []}, ask(Tracer, User, tables)),
    ended([User]),
    true = end_now(Tracer).

casts(To, Message) ->
    ok = gen_server:cast(To, Message),
    receive after 1 -> casts(To, Message) end.

sends(To, Message) ->
    _ = erlang:send(To, Message),
    receive after 1 -> sends(To, Message) end.

notifies(To) ->
    ok = gen_event:notify(To, {happened, secret}),
    receive after 1 -> notifies(To) end.

uses(Tables) ->
    [begin true = ets:insert(Table, {key, value}), [_] = ets:lookup(Table, key) end || Table <- Tables],
    uses(Tables).

inserts_many(Table) ->
    true = ets:insert(Table, [{key, value}, {other, value}]),
    inserts_many(Table).

ended(Pids) -> [begin unlink(Pid), exit(Pid, kill) end || Pid <- Pids].

ask(Tracer, Pid, Question) ->
    ok = weir_watch_trace:ask(Tracer, Pid, [Question]),
    receive
        {traced, Tracer, Pid, Found} -> Found
    after ?ANSWER_MS -> no_answer
    end.

%% Who cannot have the word counts nothing, and does not disturb the one who has it.
one_at_a_time(_Config) ->
    [First, Second] = [weir_watch_trace:start_link() || _ <- [1, 2]],
    {ok, Server} = server(),
    counted_exactly(First, Server, fun() ->
        ?assertEqual(#{}, count(Second, Server)),
        [ok = gen_server:call(Server, x) || _ <- [1, 2, 3]],
        3
    end),
    ?assertEqual(0, count(Second, Server)),
    true = end_now(First),
    stop(Second, Server).

word_of_another(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    _ = erlang:system_flag(trace_control_word, 17),
    ?assertEqual(#{}, count(Tracer, Server)),
    ?assertEqual(17, erlang:system_flag(trace_control_word, 0)),
    ?assertEqual(0, count(Tracer, Server)),
    stop(Tracer, Server).

%% Who traces the same functions in a session of his own gets what he gets without this one, which gets nothing.
beside_another_tracer(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    Session = trace:session_create(another, self(), []),
    1 = trace:function(Session, {weir_watch_form_server, handle_call, 3}, true, [global]),
    1 = trace:process(Session, Server, true, [call]),
    counted_exactly(Tracer, Server, fun() ->
        [ok = gen_server:call(Server, x) || _ <- [1, 2, 3]],
        3
    end),
    Traced = fun Traced(N) ->
        receive {trace, Server, call, {weir_watch_form_server, handle_call, [_, _, _]}} -> Traced(N + 1) after 0 -> N end
    end,
    Delivered = trace:delivered(Session, Server),
    receive {trace_delivered, Server, Delivered} -> ok end,
    ?assert(Traced(0) >= 3),
    ok = gen_server:call(Server, x),
    Again = trace:delivered(Session, Server),
    receive {trace_delivered, Server, Again} -> ok end,
    ?assertEqual(1, Traced(0)),
    ?assertEqual({message_queue_len, 0}, process_info(Tracer, message_queue_len)),
    true = trace:session_destroy(Session),
    stop(Tracer, Server).

%% While it counts: its session ends with it, and the next one goes on with the word.
killed(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    ok = weir_watch_trace:ask(Tracer, Server, [{handled, functions()}]),
    eventually(fun() -> gen_server:call(Server, x), word() > ?MARK end),
    true = end_now(Tracer),
    eventually(fun() -> traced() =:= [] end),
    Left = word(),
    ok = gen_server:call(Server, x),
    ?assertEqual(Left, word()),
    ?assertEqual(undefined, whereis(weir_watch_trace)),
    Next = weir_watch_trace:start_link(),
    ?assertEqual(0, count(Next, Server)),
    stop(Next, Server).

agent_dies(_Config) ->
    {ok, Server} = server(),
    Me = self(),
    Agent = spawn(fun() ->
        Tracer = weir_watch_trace:start_link(),
        Me ! {tracer, Tracer},
        ok = weir_watch_trace:ask(Tracer, Server, [{handled, functions()}]),
        receive never -> ok end
    end),
    Tracer = receive {tracer, Pid} -> Pid end,
    eventually(fun() -> gen_server:call(Server, x), word() > ?MARK end),
    Monitor = monitor(process, Tracer),
    exit(Agent, kill),
    receive {'DOWN', Monitor, _, _, killed} -> ok end,
    ?assertEqual({0, []}, {word(), traced()}),
    ?assertEqual(undefined, whereis(weir_watch_trace)),
    ok = gen_server:stop(Server).

%% As the agent ends it, while it counts and while it does not.
stopped(_Config) ->
    {ok, Server} = server(),
    [
        begin
            Tracer = weir_watch_trace:start_link(),
            true = unlink(Tracer),
            Monitor = monitor(process, Tracer),
            Do(Tracer),
            ok = weir_watch_trace:stop(Tracer),
            receive {'DOWN', Monitor, _, _, shutdown} -> ok end,
            ?assertEqual({0, []}, {word(), traced()})
        end
     || Do <- [
            fun(_) -> ok end,
            fun(Tracer) ->
                ok = weir_watch_trace:ask(Tracer, Server, [{handled, functions()}]),
                eventually(fun() -> gen_server:call(Server, x), word() > ?MARK end)
            end,
            fun(Tracer) ->
                ok = weir_watch_trace:ask(Tracer, Server, [{sent, [Server]}]),
                eventually(fun() -> gen_server:call(Server, x), word() > ?MARK end)
            end
        ]
    ],
    ok = gen_server:stop(Server).

%% ---------------------------------------------------------------- the server, and what is counted of it

server() -> weir_watch_form_server:start(fun() -> 0 end, fun(_, N) -> N + 1 end).

handled(Server) ->
    {N, _} = sys:get_state(Server),
    N.

calls(Server) ->
    ok = gen_server:call(Server, x),
    calls(Server).

functions() -> [{weir_watch_form_server, F, A} || {F, A} <- weir_watch_trace:callbacks(gen_server)].

word() -> erlang:system_info(trace_control_word).

%% The sessions of tracers that trace a callback of the server.
traced() -> lists:append([traced(Function) || Function <- functions()]).

traced(Function) ->
    [
        Session
     || Sessions <- [trace:session_info(Function)], is_list(Sessions), {weir_watch_trace, _} = Session <- Sessions
    ].

count(Tracer, Server) ->
    ok = weir_watch_trace:ask(Tracer, Server, [{handled, functions()}]),
    answer(Tracer, Server).

answer(Tracer, Pid) ->
    receive
        {traced, Tracer, Pid, #{handled := Handled}} -> Handled;
        {traced, Tracer, Pid, Found} -> Found
    after ?ANSWER_MS -> no_answer
    end.

%% While it counts, calls are made until one is counted, and then what `Do' does, which tells how many messages that
%% are. Where two seconds are too short for that, since the machine is busy, it begins again.
counted_exactly(Tracer, Server, Do) ->
    ok = weir_watch_trace:ask(Tracer, Server, [{handled, functions()}]),
    eventually(fun() -> is_counting(Server) end),
    Traced = traced(),
    Before = word(),
    Number = Do(),
    After = word(),
    Answer = answer(Tracer, Server),
    case Before > ?MARK andalso After >= ?MARK of
        true ->
            ?assertEqual(Number, After - Before),
            ?assert(Answer > 0),
            ?assertNotEqual([], Traced),
            ?assertEqual(0, word()),
            ?assertEqual([], traced());
        false ->
            counted_exactly(Tracer, Server, Do)
    end.

%% A call that both of them have counted: so all breakpoints are set.
is_counting(Server) ->
    Before = word(),
    ok = gen_server:call(Server, x),
    ok = gen_server:cast(Server, x),
    Server ! x,
    ok = gen_server:call(Server, x),
    Before >= ?MARK andalso word() =:= Before + 4.

stop(Tracer, Server) ->
    ok = gen_server:stop(Server),
    true = end_now(Tracer).

end_now(Tracer) ->
    true = unlink(Tracer),
    Monitor = monitor(process, Tracer),
    true = exit(Tracer, kill),
    receive {'DOWN', Monitor, _, _, killed} -> true end.
