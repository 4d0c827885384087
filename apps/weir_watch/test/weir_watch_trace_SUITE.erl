%% What one suspect handles is counted, and nothing else, and it is seen who sends to it and which tables it uses; and
%% nothing is left behind.
-module(weir_watch_trace_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, until_value/1, wait_ms/0]).

%% What the word is while nothing is counted, and while it is.
-define(CLOSED, 16#57ffff00).
-define(OPEN, 16#57000000).

all() -> weir_kit:cases(?MODULE).

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
        [
            begin ok = gen_server:call(Server, x, wait_ms()), ok = gen_server:cast(Server, x), Server ! x end
         || _ <- lists:seq(1, 10)
        ],
        ok = gen_server:call(Server, x, wait_ms()),
        {31, []}
    end),
    stop(Tracer, Server).

%% No more than the server has counted itself, from before it began until it was over: that was a second at least, or
%% 20,000 messages.
per_second(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    Callers = [spawn_link(fun() -> calls(Server) end) || _ <- lists:seq(1, 4)],
    Begin = erlang:monotonic_time(microsecond),
    Before = handled(Server),
    PerSecond = count(Tracer, Server),
    Handled = handled(Server) - Before,
    Us = erlang:monotonic_time(microsecond) - Begin,
    ended(Callers),
    ?assert(PerSecond > 0),
    ?assert(PerSecond + 1 >= min(20_000, Handled) * 1_000_000 / Us * 0.1, {PerSecond, Handled, Us}),
    ?assert(Handled >= 20_000 orelse PerSecond =< Handled, {PerSecond, Handled, Us}),
    stop(Tracer, Server).

not_others(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    {ok, Other} = server(),
    counted_exactly(Tracer, Server, fun() ->
        [ok = gen_server:call(Other, x, wait_ms()) || _ <- lists:seq(1, 50)],
        ok = gen_server:call(Server, x, wait_ms()),
        {1, []}
    end),
    ok = gen_server:stop(Other),
    stop(Tracer, Server).

other_behaviours(_Config) ->
    ?assertEqual([{handle_event, 4}], weir_watch_trace:callbacks(gen_statem)),
    Unknown = [gen_event, process, weir_server, gen_batch_server],
    [?assertEqual([], weir_watch_trace:callbacks(Other)) || Other <- Unknown],
    Tracer = weir_watch_trace:start_link(),
    {ok, Statem} = weir_watch_form_statem:start(fun() -> 0 end, fun(_, N) -> N + 1 end),
    ok = weir_watch_trace:ask(Tracer, Statem, [{handled, [{weir_watch_form_statem, handle_event, 4}]}]),
    until(fun() ->
        [ok = gen_statem:call(Statem, x) || _ <- lists:seq(1, 10)],
        number() > 0
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
    Sent = until_value(fun() ->
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
        until_value(fun() ->
            #{sent := Sent} = ask(Tracer, Pid, {sent, [Pid]}),
            [Who || {Who, {?MODULE, _, _}, Is} <- Sent, Is =:= Kind] =/= [] andalso
                lists:usort([Who || {Who, _, _} <- Sent])
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
    Sender = spawn_link(fun() -> sends(Server, {event, secret}) end),
    Sent = until_value(fun() ->
        #{sent := Some} = ask(Tracer, Server, {sent, [Server]}),
        Some =/= [] andalso Some
    end),
    ?assertEqual([{Sender, {?MODULE, sends, 2}, <<"{event,_}">>}], lists:usort(Sent)),
    ended([Caller, Sender]),
    ok = gen_server:stop(Other),
    stop(Tracer, Server).

%% Of N messages, the first, and each seventeenth after it, up to sixteen.
each_seventeenth(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    [
        begin
            Sent = until_value(fun() -> sent_meanwhile(N, Tracer, Server) end),
            ?assertEqual([{self(), {?MODULE, send_all, 2}, <<"number">>}], lists:usort(Sent)),
            ?assertEqual({N, min(16, (N + 16) div 17)}, {N, length(Sent)})
        end
     || N <- [1, 17, 18, 34, 255, 256, 500]
    ],
    stop(Tracer, Server).

%% What is found if all are sent while it looks: with as many as it wants it stops looking.
sent_meanwhile(N, Tracer, Server) ->
    ok = weir_watch_trace:ask(Tracer, Server, [{sent, [Server]}]),
    until(fun() -> number() >= 0 end),
    ok = send_all(N, Server),
    After = number(),
    #{sent := Sent} = found(Tracer, Server),
    (After =:= N orelse N >= 256 andalso length(Sent) =:= 16) andalso Sent.

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
    ?assertEqual([named, unnamed], lists:usort(sixteen_tables(Tracer, User))),
    ?assertEqual(#{tables => []}, ask(Tracer, self(), tables)),
    ended([User, Another]),
    true = end_now(Tracer).

%% A list of objects is not looked at.
no_large_objects(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    [Table, Other] = [ets:new(Name, [public]) || Name <- [table, other]],
    User = spawn_link(fun() -> inserts_many(Table, Other) end),
    ?assertEqual([other], lists:usort(sixteen_tables(Tracer, User))),
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

%% A key may be a list.
inserts_many(Table, Other) ->
    true = ets:insert(Table, [{key, value}, {other, value}]),
    [] = ets:lookup(Other, "key"),
    inserts_many(Table, Other).

ended(Pids) -> [begin unlink(Pid), exit(Pid, kill) end || Pid <- Pids].

ask(Tracer, Pid, Question) ->
    ok = weir_watch_trace:ask(Tracer, Pid, [Question]),
    found(Tracer, Pid).

%% As many as it looks for. If the user has hardly a turn meanwhile, it is asked again.
sixteen_tables(Tracer, User) ->
    until_value(fun() ->
        #{tables := Tables} = ask(Tracer, User, tables),
        length(Tables) =:= 16 andalso Tables
    end).

%% Nine of ten are sent, one is cast: all breakpoints begin at once.
two_functions(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    Sink = spawn_link(fun Sinks() -> receive _ -> Sinks() end end),
    Sender = spawn_link(fun() -> sends_and_casts(Sink) end),
    Kinds = until_value(fun() ->
        #{sent := Sent} = ask(Tracer, Sink, {sent, [Sink]}),
        length(Sent) =:= 16 andalso [Kind || {_, _, Kind} <- Sent]
    end),
    ?assertEqual([<<"cast c">>, <<"s">>], lists:usort(Kinds)),
    ?assert(length([s || <<"s">> <- Kinds]) > length(Kinds) div 2),
    ended([Sender, Sink]),
    true = end_now(Tracer).

sends_and_casts(To) ->
    [_ = erlang:send(To, s) || _ <- lists:seq(1, 9)],
    ok = gen_server:cast(To, c),
    sends_and_casts(To).

%% Nineteen of twenty are look-ups.
two_tables(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    [Read, Written] = [ets:new(Name, [public]) || Name <- [read, written]],
    User = spawn_link(fun() -> reads_and_writes(Read, Written) end),
    ?assert(length([read || read <- sixteen_tables(Tracer, User)]) > 12),
    ended([User]),
    true = end_now(Tracer).

reads_and_writes(Read, Written) ->
    [[] = ets:lookup(Read, key) || _ <- lists:seq(1, 19)],
    true = ets:insert(Written, {key, value}),
    reads_and_writes(Read, Written).

%% A sample that comes late is none of the next question's.
two_questions(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    Busy = spawn_link(fun Casts() -> ok = gen_server:cast(self(), x), receive {'$gen_cast', x} -> Casts() end end),
    Sent = fun() ->
        ok = weir_watch_trace:ask(Tracer, Busy, [{sent, [Busy]}, tables]),
        #{sent := Some, tables := []} = found(Tracer, Busy),
        Some =/= []
    end,
    [until(Sent) || _ <- lists:seq(1, 20)],
    ended([Busy]),
    true = end_now(Tracer).

%% Nothing of what was sent stays with it.
forgets(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    Sink = spawn_link(fun Sinks() -> receive _ -> Sinks() end end),
    Sender = spawn_link(fun() -> sends(Sink, binary:copy(<<"x">>, 1_000_000)) end),
    until(fun() -> #{sent := Sent} = ask(Tracer, Sink, {sent, [Sink]}), Sent =/= [] end),
    ended([Sender, Sink]),
    #{sent := []} = ask(Tracer, Sink, {sent, [Sink]}),
    ?assertEqual({binary, []}, process_info(Tracer, binary)),
    true = end_now(Tracer).

%% States entered, and events of its own, are no messages.
of_a_statem(_Config) ->
    Events = [{{call, from}, x}, {cast, x}, {info, x}, {enter, old}, {internal, x}, {timeout, x}, {state_timeout, x}],
    Tracer = weir_watch_trace:start_link(),
    Statem = spawn_link(fun() -> handles_events(Events) end),
    ok = weir_watch_trace:ask(Tracer, Statem, [{handled, [{?MODULE, handle_event, 4}]}]),
    Counted = until_value(fun() ->
        Before = number(),
        Statem ! {again, self()},
        receive {done, Statem} -> ok end,
        After = number(),
        Before >= 0 andalso After >= 0 andalso After - Before
    end),
    ?assertEqual(3, Counted),
    _ = found(Tracer, Statem),
    ended([Statem]),
    true = end_now(Tracer).

handles_events(Events) ->
    receive
        {again, From} ->
            [?MODULE:handle_event(Type, Event, state, data) || {Type, Event} <- Events],
            From ! {done, self()},
            handles_events(Events)
    end.

handle_event(_, _, _, _) -> keep_state_and_data.

%% Who takes the word while it counts keeps it, and nothing is told.
word_taken_meanwhile(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    [
        begin
            ok = weir_watch_trace:ask(Tracer, Server, [{handled, functions()}, {sent, [Server]}]),
            until(fun() -> gen_server:call(Server, x, wait_ms()), number() > 0 end),
            _ = erlang:system_flag(trace_control_word, Word),
            [ok = gen_server:call(Server, x, wait_ms()) || _ <- lists:seq(1, 100)],
            ?assertEqual({undefined, Word}, {answer(Tracer, Server), word()}),
            _ = erlang:system_flag(trace_control_word, 0)
        end
     || Word <- [17, 16#80000000, 16#56ffffff, 16#58000000, 16#ffffffff]
    ],
    stop(Tracer, Server).

%% New code has no breakpoints: what was counted until then is not told.
loaded_meanwhile(_Config) ->
    Tracer = weir_watch_trace:start_link(),
    {ok, Server} = server(),
    ok = weir_watch_trace:ask(Tracer, Server, [{handled, functions()}]),
    until(fun() -> gen_server:call(Server, x, wait_ms()), number() > 0 end),
    _ = code:purge(weir_watch_form_server),
    {module, _} = code:load_file(weir_watch_form_server),
    ?assertEqual(undefined, answer(Tracer, Server)),
    ?assert(is_integer(count(Tracer, Server))),
    stop(Tracer, Server).

%% Who cannot have the word counts nothing, and does not disturb the one who has it.
one_at_a_time(_Config) ->
    [First, Second] = [weir_watch_trace:start_link() || _ <- [1, 2]],
    {ok, Server} = server(),
    counted_exactly(First, Server, fun() ->
        Found = count(Second, Server),
        [ok = gen_server:call(Server, x, wait_ms()) || _ <- [1, 2, 3]],
        {3, [{#{}, Found}]}
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
        [ok = gen_server:call(Server, x, wait_ms()) || _ <- [1, 2, 3]],
        {3, []}
    end),
    Traced = fun Traced(N) ->
        receive
            {trace, Server, call, {weir_watch_form_server, handle_call, [_, _, _]}} -> Traced(N + 1)
        after 0 -> N
        end
    end,
    Delivered = trace:delivered(Session, Server),
    receive {trace_delivered, Server, Delivered} -> ok end,
    ?assert(Traced(0) >= 3),
    ok = gen_server:call(Server, x, wait_ms()),
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
    until(fun() -> gen_server:call(Server, x, wait_ms()), number() > 0 end),
    true = end_now(Tracer),
    until(fun() -> traced() =:= [] end),
    Left = word(),
    ok = gen_server:call(Server, x, wait_ms()),
    ?assertEqual(Left, word()),
    ?assertEqual({undefined, ?OPEN}, {whereis(weir_watch_trace), Left band 16#ff0000ff}),
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
    until(fun() -> gen_server:call(Server, x, wait_ms()), number() > 0 end),
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
                until(fun() -> gen_server:call(Server, x, wait_ms()), number() > 0 end)
            end,
            fun(Tracer) ->
                ok = weir_watch_trace:ask(Tracer, Server, [{sent, [Server]}]),
                until(fun() -> gen_server:call(Server, x, wait_ms()), number() > 0 end)
            end
        ]
    ],
    ok = gen_server:stop(Server).

%% ---------------------------------------------------------------- the server, and what is counted of it

server() -> weir_watch_form_server:start(fun() -> 0 end, fun(_, N) -> N + 1 end).

handled(Server) ->
    {N, _} = sys:get_state(Server, wait_ms()),
    N.

calls(Server) ->
    ok = gen_server:call(Server, x, wait_ms()),
    calls(Server).

functions() -> [{weir_watch_form_server, F, A} || {F, A} <- weir_watch_trace:callbacks(gen_server)].

word() -> erlang:system_info(trace_control_word).

%% How many are counted; -1 while nothing is.
number() ->
    case word() of
        Word when Word >= ?OPEN, Word < ?CLOSED -> (Word - ?OPEN) div 256;
        _ -> -1
    end.

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
    case found(Tracer, Pid) of
        #{handled := Handled} -> Handled;
        Found -> Found
    end.

found(Tracer, Pid) ->
    receive
        {traced, Tracer, Pid, Found, Bytes} when Bytes > 0 -> Found
    after weir_kit:wait_ms() -> no_answer
    end.

%% While it counts, messages are sent until all of some are counted, and then what `Do' does, which tells how many more
%% messages that are, and what is to be compared then. Where a second is too short for that, since the machine is busy,
%% it begins again.
counted_exactly(Tracer, Server, Do) ->
    Begin = erlang:monotonic_time(microsecond),
    ok = weir_watch_trace:ask(Tracer, Server, [{handled, functions()}]),
    until(fun() -> is_counting(Server) end),
    Traced = traced(),
    Before = number(),
    {Number, Compared} = Do(),
    After = number(),
    PerSecond = answer(Tracer, Server),
    Us = erlang:monotonic_time(microsecond) - Begin,
    case Before >= 0 andalso After >= 0 of
        true ->
            ok = weir_kit:same(counted, Number, After - Before),
            [?assertEqual(Expected, Got) || {Expected, Got} <- Compared],
            %% It took a second at least, and no longer than until the answer.
            ?assert(PerSecond =< handled(Server)),
            ?assert(PerSecond + 1 >= After * 1_000_000 / Us, {PerSecond, After, Us}),
            ?assertNotEqual([], Traced),
            ?assertEqual(0, word()),
            ?assertEqual([], traced());
        false ->
            counted_exactly(Tracer, Server, Do)
    end.

%% All breakpoints are set.
is_counting(Server) ->
    Before = number(),
    ok = gen_server:call(Server, x, wait_ms()),
    ok = gen_server:cast(Server, x),
    Server ! x,
    ok = gen_server:call(Server, x, wait_ms()),
    Before >= 0 andalso number() =:= Before + 4.

stop(Tracer, Server) ->
    ok = gen_server:stop(Server),
    true = end_now(Tracer).

end_now(Tracer) ->
    true = unlink(Tracer),
    Monitor = monitor(process, Tracer),
    true = exit(Tracer, kill),
    receive {'DOWN', Monitor, _, _, killed} -> true end.
