%% @doc One connection to a memcached: many callers' requests in, pipelined writes out, replies matched
%% to requests by their order.
%%
%% Phases:
%% ```
%%             start                    connected
%%   waiting -----------> connecting ---------------> up
%%      ^    timer fires      |                        |  closed by the server, write failed, garbage,
%%      |                     | failed                 |  silent for too long
%%      +---------------------+------------------------+
%%            back-off with jitter; what was in flight is answered at once
%% '''
%% A request while `waiting' or `connecting' is answered `down' at once: it was not sent, so the caller
%% may try another connection. One that was accepted and not answered when the connection is lost is
%% answered `{error, disconnected}', or `down' if it had not been given to the writer.
%%
%% What a request goes through while `up':
%% ```
%%   mailbox --handle_batch--> queued --flush--> in flight --reply--> answered
%%                 |              |              |
%%                 | max_pending, | its deadline | its deadline has passed:
%%                 v or bytes     v has passed   v its place stays, the reply to come is dropped
%%               busy       {error, timeout}, never sent (expired)
%% '''
%% `busy' is told at once, too, and nothing was sent.
%%
%% A flush hands everything queued to the writer ({@link weir_memcached_io}) as one write, if no write is
%% under way. In flight means: given to the writer; the order of the requests in flight is the order of
%% the replies; one that does not fit the request whose turn it is closes the connection.
%%
%% Every request is answered exactly once, and by this process, also when its time is up: callers wait
%% without a time-out of their own, and one timer here serves them all ({@link deadline/2}). So no late
%% reply can reach anybody, and a request costs its caller neither a timer nor an alias: measured, 15 to 20 % more
%% requests a second. It asks that this process always comes back to its mailbox. It does, since it does
%% nothing that blocks; and if it is suspended or stuck all the same, {@link weir_memcached_client} notices and
%% kills it, and the callers' monitors tell them.
%%
%% Who does what: this process alone reads the socket and owns all state below, so its death leaves
%% nothing to repair: the link ends the writer, the socket is closed with its owner, callers are told by
%% their monitors.
%%
%% A connection is closed when `stall_timeout' has passed without progress: no reply was completed, and less than
%% ?PROGRESS bytes came of one. A write is given one time-out more for each ?PROGRESS bytes of it, since nobody
%% here sees how much of it has left the node.
%%
%% What is big is not kept: once in the seconds between two questions of {@link weir_memcached_client} a connection that
%% was used is collected, and its heap made small again when few requests are pending.
%%
%% Cost of a request: one message in and one out; its share of a batch is one write, one look at the
%% clock and one message to the writer, and of a received block one parse.
%% @private
-module(weir_memcached_conn).
-behaviour(weir_server).

-export([start_link/2, request/3, infos/1, ask/2]).
-export([init/1, handle_batch/2, terminate/2, format_status/1]).

-include("weir_memcached_config.hrl").

%% So many blocks are delivered before the socket waits to be asked for more: bounds what a server can
%% put into the mailbox to that many times the buffer of weir_memcached_io.
-define(ACTIVE, 100).

%% Words, and pending requests. A batch of a thousand requests fills some tens of thousands of words; a heap that has
%% room for a few is collected less often: 10 to 15 % more requests a second, with 1,000 callers on one connection.
-define(LARGE_HEAP, 100000).
-define(SMALL_HEAP, 233).
-define(MANY, 100).

%% Bytes that must move in a stall_timeout.
-define(PROGRESS, 65536).

%% So many time-outs without an answer in between, and callers choose another connection.
-define(MOST_TIMEOUTS, 3).

%% Milliseconds that info/1 waits for all connections together.
-define(INFO_MS, 1000).

%% Milliseconds between two looks for requests whose time is up; so much later than asked they may be answered.
-define(SWEEP_PAUSE, 10).

-type deadline() :: integer() | infinity.
%% Milliseconds of `erlang:monotonic_time/1'. Every integer is less than `infinity' in the order of terms.
-type queued() :: {weir_server:from(), deadline(), weir_memcached_request:request()}.
-type flight() :: {weir_server:from() | answered, deadline(), weir_memcached_reply:kind()}.
%% `answered': its time was up.

%% What lives as long as one connection does.
-record(link, {
    io :: pid(),
    socket :: term(),
    parser = weir_memcached_reply:new() :: weir_memcached_reply:parser(),
    %% in flight, the oldest first: the rest of one write, then one list for each later write
    front = [] :: [flight()],
    writes = queue:new() :: queue:queue({Bytes :: non_neg_integer(), [flight()]}),
    %% of the write that front is the rest of
    front_bytes = 0 :: non_neg_integer(),
    %% a write is under way
    writing = false :: boolean(),
    %% accepted, not written, the newest first
    queued = [] :: [queued()],
    %% the length of all three together
    pending = 0 :: non_neg_integer(),
    %% of the requests that are queued, and of those that are being written
    queued_bytes = 0 :: non_neg_integer(),
    written_bytes = 0 :: non_neg_integer(),
    %% time-outs since the last reply
    timeouts = 0 :: non_neg_integer(),
    %% no request has a deadline before this one; the timer is set for `armed', never later than `earliest'
    %% once a batch is handled
    earliest = infinity :: deadline(),
    armed = infinity :: deadline(),
    deadline_timer :: undefined | reference(),
    %% since the stall timer was set: bytes received, whether a reply was; and how often before there was no progress
    received = 0 :: non_neg_integer(),
    answered = false :: boolean(),
    quiet = 0 :: non_neg_integer(),
    stall_timer :: undefined | reference()
}).

-record(state, {
    config :: weir_memcached_config:config(),
    slot :: weir_pool:slot(),
    %% whether there may be garbage, and whether the heap was made large
    was_used = false :: boolean(),
    is_large = false :: boolean(),
    phase :: {waiting, reference()} | {connecting, pid()} | #link{},
    %% milliseconds before the next attempt, without jitter
    backoff :: pos_integer(),
    %% why the server cannot be reached, which has been reported; until it is reached
    failure = none :: none | {failed, Reason :: term()}
}).

%% @doc Starts the connection of a slot of a client. It connects in its own time, and again whenever it has to.
-spec start_link(weir_pool:slot(), weir_memcached:client()) -> weir_server:start_ret().
start_link(Slot, Client) ->
    weir_server:start_link(?MODULE, {Slot, Client}, []).

%% @doc Has a request answered, by its deadline. `down': this connection has no server; `busy': it has too many
%% requests already; nothing was sent. `gone': the connection process died; the request may have been sent.
-spec request(pid(), weir_memcached_request:request(), deadline()) ->
    weir_memcached_reply:reply() | {error, timeout | disconnected} | down | busy | gone.
request(Conn, Request, Deadline) ->
    try
        weir_server:call(Conn, {request, Deadline, Request}, infinity)
    catch
        exit:{noproc, _} -> down;
        exit:{_, {weir_server, call, _}} -> gone
    end.

%% @doc What connections are doing, and why the last attempt to connect failed, until one succeeds; `stuck' is one that
%% has not answered within a second. Those whose process has just ended are left out. Cost: one request each, answered
%% between two batches.
-spec infos([pid()]) ->
    [#{
        pid := pid(),
        phase := waiting | connecting | up | silent | stuck,
        pending => non_neg_integer(),
        reason => term()
    }].
infos(Conns) ->
    Until = {abs, erlang:monotonic_time(millisecond) + ?INFO_MS},
    Asked = [{Conn, gen_server:send_request(Conn, info)} || Conn <- Conns],
    lists:append([told(Conn, gen_server:receive_response(Id, Until)) || {Conn, Id} <- Asked]).

told(_, {reply, Info}) -> [Info];
told(Conn, timeout) -> [#{pid => Conn, phase => stuck}];
told(_, {error, _}) -> [].

%% @doc Asks whether it comes back to its mailbox, without waiting; the answer is to come, labelled with the connection.
-spec ask(pid(), gen_server:request_id_collection()) -> gen_server:request_id_collection().
ask(Conn, Asked) ->
    gen_server:send_request(Conn, are_you_there, Conn, Asked).

%% @private
-spec init({weir_pool:slot(), weir_memcached:client()}) -> {ok, #state{}}.
init({Slot, Client}) ->
    process_flag(trap_exit, true),
    #config{reconnect = {Backoff, _}} = Config = weir_memcached_config:fetch(Client),
    {ok, tell(#state{config = Config, slot = Slot, phase = connecting(Config), backoff = Backoff})}.

%% @private
-spec handle_batch([weir_server:message()], #state{}) -> {reply, [{weir_server:from(), term()}], #state{}}.
handle_batch(Batch, State) ->
    {Replies, State1} = messages(Batch, [], State),
    {Replies1, State2} = flush(Replies, State1),
    {reply, lists:reverse(Replies1), tell(grow(arm(State2)))}.

messages([{call, From, {request, Deadline, Request}} | Batch], Replies, #state{phase = #link{} = L} = State) ->
    {_Kind, Data} = Request,
    Bytes = iolist_size(Data),
    case has_room(Bytes, L, State#state.config) of
        true ->
            L1 = L#link{
                queued = [{From, Deadline, Request} | L#link.queued],
                queued_bytes = L#link.queued_bytes + Bytes,
                pending = L#link.pending + 1,
                earliest = min(Deadline, L#link.earliest)
            },
            messages(Batch, Replies, State#state{phase = L1});
        false ->
            count(busy, 1, State),
            messages(Batch, [{From, busy} | Replies], State)
    end;
messages([{call, From, {request, _, _}} | Batch], Replies, State) ->
    messages(Batch, [{From, down} | Replies], State);
messages([{call, From, info} | Batch], Replies, State) ->
    messages(Batch, [{From, summary(State)} | Replies], State);
messages([{call, From, are_you_there} | Batch], Replies, State) ->
    messages(Batch, [{From, yes} | Replies], rest(State));
messages([{info, Message} | Batch], Replies, State) ->
    {Replies1, State1} = message(Message, Replies, State),
    messages(Batch, Replies1, State1);
%% nobody has reason to send anything else, and a stray message is no reason to lose requests
messages([_ | Batch], Replies, State) ->
    messages(Batch, Replies, State);
messages([], Replies, State) ->
    {Replies, State}.

message({tcp, Socket, Data}, Replies, #state{phase = #link{socket = Socket} = L} = State) ->
    Parser = weir_memcached_reply:push(Data, L#link.parser),
    L1 = L#link{parser = Parser, received = L#link.received + byte_size(Data)},
    received(Replies, State#state{phase = L1, was_used = true});
message({Io, written}, Replies, #state{phase = #link{io = Io} = L} = State) ->
    {Replies, State#state{phase = L#link{writing = false, written_bytes = 0}}};
message({tcp_passive, Socket}, Replies, #state{phase = #link{socket = Socket}} = State) ->
    activate(Replies, State);
message({tcp_closed, Socket}, Replies, #state{phase = #link{socket = Socket}} = State) ->
    lose(closed, Replies, State);
message({tcp_error, Socket, Reason}, Replies, #state{phase = #link{socket = Socket}} = State) ->
    lose(Reason, Replies, State);
message({'EXIT', Io, Reason}, Replies, #state{phase = #link{io = Io}} = State) ->
    lose(reason(Reason), Replies, State);
message({timeout, Timer, deadline}, Replies, #state{phase = #link{deadline_timer = Timer}} = State) ->
    deadline(Replies, State);
message({timeout, Timer, stalled}, Replies, #state{phase = #link{stall_timer = Timer}} = State) ->
    stalled(Replies, State);
message({Io, connected, Socket}, Replies, #state{phase = {connecting, Io}} = State) ->
    connected(Io, Socket, Replies, State);
message({'EXIT', Io, Reason}, Replies, #state{phase = {connecting, Io}} = State) ->
    {Replies, connect_failed(reason(Reason), State)};
message({timeout, Timer, reconnect}, Replies, #state{phase = {waiting, Timer}} = State) ->
    {Replies, State#state{phase = connecting(State#state.config)}};
%% what is left of a connection that is no more
message(_, Replies, State) ->
    {Replies, State}.

reason({shutdown, {_, Reason}}) -> Reason;
reason(Reason) -> Reason.

%% One that is larger than what may be pending is taken alone.
has_room(Bytes, #link{pending = Pending, queued_bytes = Queued, written_bytes = Written}, Config) ->
    #config{max_pending = MaxPending, max_pending_bytes = MaxBytes} = Config,
    Pending < MaxPending andalso (Queued + Written + Bytes =< MaxBytes orelse Queued + Written =:= 0).

%% What callers choose by.
tell(#state{config = #config{load = Load}, slot = Slot, phase = #link{pending = Pending} = L} = State) ->
    ok = weir_memcached_load:up(Slot, Pending, is_silent(L), Load),
    State;
tell(#state{config = #config{load = Load}, slot = Slot} = State) ->
    ok = weir_memcached_load:down(Slot, Load),
    State.

is_silent(#link{timeouts = Timeouts}) -> Timeouts >= ?MOST_TIMEOUTS.

%% The heap

grow(#state{is_large = false, phase = #link{pending = Pending}} = State) when Pending >= ?MANY ->
    _ = process_flag(min_heap_size, ?LARGE_HEAP),
    State#state{is_large = true};
grow(State) ->
    State.

rest(#state{was_used = false} = State) ->
    State;
rest(#state{phase = #link{pending = Pending}} = State) when Pending >= ?MANY ->
    _ = erlang:garbage_collect(),
    State#state{was_used = false};
rest(State) ->
    _ = process_flag(min_heap_size, ?SMALL_HEAP),
    _ = erlang:garbage_collect(),
    State#state{was_used = false, is_large = false}.

%% Connecting

connecting(Config) ->
    {connecting, weir_memcached_io:start_link(Config)}.

connected(Io, Socket, Replies, #state{config = Config} = State) ->
    count(connects, 1, State),
    weir_memcached_event:connected(Config),
    activate(Replies, State#state{phase = #link{io = Io, socket = Socket}, failure = none}).

activate(Replies, #state{phase = #link{socket = Socket}} = State) ->
    case inet:setopts(Socket, [{active, ?ACTIVE}]) of
        ok -> {Replies, State};
        {error, _} -> lose(closed, Replies, State)
    end.

connect_failed(Reason, State) ->
    count(connect_failures, 1, State),
    _ = State#state.failure =:= none andalso weir_memcached_event:connect_failed(State#state.config, Reason),
    wait(State#state{failure = {failed, Reason}}).

%% Waits between half the back-off and all of it, so that the connections of many nodes do not come back at once.
wait(#state{config = #config{reconnect = {_, Max}}, backoff = Backoff} = State) ->
    Delay = Backoff div 2 + rand:uniform(Backoff - Backoff div 2),
    Timer = erlang:start_timer(Delay, self(), reconnect),
    State#state{phase = {waiting, Timer}, backoff = min(2 * Backoff, Max)}.

%% Losing a connection

lose(Reason, Replies, #state{config = #config{transport = Transport} = Config, phase = L} = State) ->
    #link{io = Io, socket = Socket, front = Front, writes = Writes, queued = Queued} = L,
    unlink(Io),
    exit(Io, kill),
    close(Transport, Socket),
    _ = cancel(L#link.stall_timer),
    _ = cancel(L#link.deadline_timer),
    Flights = lists:append([Front | [Written || {_, Written} <- queue:to_list(Writes)]]),
    InFlight = [From || {From, _, _} <- Flights, From =/= answered],
    Failed = length(InFlight),
    count(disconnects, 1, State),
    count(disconnected, Failed, State),
    weir_memcached_event:disconnected(Config, Reason, Failed),
    Unsent = [{From, down} || {From, _, _} <- Queued],
    Sent = [{From, {error, disconnected}} || From <- InFlight],
    {Unsent ++ Sent ++ Replies, wait(State#state{was_used = true})}.

%% What the driver has not written must not be waited for: the server may never take it.
close(Transport, Socket) ->
    _ = inet:setopts(Socket, [{linger, {true, 0}}]),
    _ = Transport:close(Socket),
    ok.

cancel(undefined) -> ok;
cancel(Timer) -> erlang:cancel_timer(Timer, [{async, true}, {info, false}]).

%% Silence. While requests are in flight the timer runs; when it fires and there was no progress since it was
%% set, the server is taken for dead: without this a server that vanished without closing its
%% connections would be believed in for as long as TCP repeats what it sent, a quarter of an hour.

watch(#link{stall_timer = undefined} = L, #config{stall_timeout = Timeout}) when is_integer(Timeout) ->
    L#link{stall_timer = erlang:start_timer(Timeout, self(), stalled), received = 0, answered = false};
watch(L, _) ->
    L.

stalled(Replies, #state{config = Config, phase = #link{front = Front, writes = Writes, quiet = Quiet} = L} = State) ->
    #link{received = Received, answered = Answered} = L,
    Idle = Front =:= [] andalso queue:is_empty(Writes),
    L1 = L#link{stall_timer = undefined},
    if
        Idle -> {Replies, State#state{phase = L1#link{quiet = 0}}};
        Answered; Received >= ?PROGRESS -> {Replies, State#state{phase = watch(L1#link{quiet = 0}, Config)}};
        true ->
            case Quiet < in_flight_bytes(L) div ?PROGRESS of
                true -> {Replies, State#state{phase = watch(L1#link{quiet = Quiet + 1}, Config)}};
                false -> lose(stalled, Replies, State)
            end
    end.

in_flight_bytes(#link{front = Front, front_bytes = FrontBytes, writes = Writes}) ->
    lists:sum([Bytes || {Bytes, _} <- [{FrontBytes, Front} | queue:to_list(Writes)]]).

%% Deadlines. The timer is set for the earliest there may be; when it fires, whoever's time is up is answered, and the
%% earliest of the others is looked for. With one time-out for all requests that is one walk over the pending ones in
%% as long a time as that; with many different ones at most one walk in ?SWEEP_PAUSE, or, while there are time-outs
%% shorter than that, one in a millisecond.

arm(#state{phase = #link{earliest = Earliest, armed = Armed} = L} = State) when Earliest < Armed ->
    _ = cancel(L#link.deadline_timer),
    Timer = erlang:start_timer(Earliest, self(), deadline, [{abs, true}]),
    State#state{phase = L#link{armed = Earliest, deadline_timer = Timer}};
arm(State) ->
    State.

deadline(Replies, #state{phase = #link{front = Front, writes = Writes, queued = Queued} = L} = State) ->
    Now = erlang:monotonic_time(millisecond),
    {Front1, Late1, Earliest1} = overdue(Front, Now, [], [], infinity),
    {Writes1, Late2, Earliest2} = lists:foldl(
        fun({Bytes, Write}, {Swept, Late, Earliest}) ->
            {Write1, LateNow, EarliestNow} = overdue(Write, Now, [], Late, Earliest),
            {queue:in({Bytes, Write1}, Swept), LateNow, EarliestNow}
        end,
        {queue:new(), Late1, Earliest1},
        queue:to_list(Writes)
    ),
    {Waiting, Expired} = lists:partition(fun({_, Deadline, _}) -> Deadline > Now end, Queued),
    Earliest = lists:foldl(fun({_, Deadline, _}, E) -> min(Deadline, E) end, Earliest2, Waiting),
    Late = [From || {From, _, _} <- Expired] ++ Late2,
    count(timeouts, length(Late), State),
    count(expired, length(Expired), State),
    L1 = L#link{
        front = Front1,
        writes = Writes1,
        queued = Waiting,
        queued_bytes = lists:sum([iolist_size(Data) || {_, _, {_, Data}} <- Waiting]),
        pending = L#link.pending - length(Expired),
        timeouts = L#link.timeouts + length(Late),
        earliest = max(Earliest, Now + ?SWEEP_PAUSE),
        armed = infinity,
        deadline_timer = undefined
    },
    {[{From, {error, timeout}} || From <- Late] ++ Replies, State#state{phase = L1}}.

overdue([{From, Deadline, Kind} | Flights], Now, Swept, Late, Earliest) when Deadline =< Now ->
    overdue(Flights, Now, [{answered, infinity, Kind} | Swept], [From | Late], Earliest);
overdue([{_, Deadline, _} = Flight | Flights], Now, Swept, Late, Earliest) ->
    overdue(Flights, Now, [Flight | Swept], Late, min(Deadline, Earliest));
overdue([], _, Swept, Late, Earliest) ->
    {lists:reverse(Swept), Late, Earliest}.

%% Writing

flush(Replies, #state{config = Config, phase = #link{writing = false, queued = [_ | _] = Queued} = L} = State) ->
    Now = erlang:monotonic_time(millisecond),
    {Flights, Data, Expired} = take(Queued, Now, [], [], []),
    N = length(Expired),
    count(timeouts, N, State),
    count(expired, N, State),
    Bytes = L#link.queued_bytes,
    L1 = L#link{queued = [], queued_bytes = 0, pending = L#link.pending - N},
    Replies1 = [{From, {error, timeout}} || From <- Expired] ++ Replies,
    case Flights of
        [] ->
            {Replies1, State#state{phase = L1}};
        _ ->
            count(requests, length(Flights), State),
            weir_memcached_io:write(L#link.io, join(Data, [])),
            L2 = L1#link{writing = true, written_bytes = Bytes, writes = queue:in({Bytes, Flights}, L#link.writes)},
            {Replies1, State#state{phase = watch(L2, Config)}}
    end;
flush(Replies, State) ->
    {Replies, State}.

%% The newest comes first in the queue, so taking them one by one puts them in order.
take([{From, Deadline, {Kind, Data}} | Queued], Now, Flights, Out, Expired) when Deadline > Now ->
    take(Queued, Now, [{From, Deadline, Kind} | Flights], [Data | Out], Expired);
take([{From, _, _} | Queued], Now, Flights, Out, Expired) ->
    take(Queued, Now, Flights, Out, [From | Expired]);
take([], _, Flights, Out, Expired) ->
    {Flights, Out, Expired}.

%% Requests that fit into one binary each are joined into one; larger ones are passed by reference. The driver
%% writes at most 16 pieces with one system call, and each piece would be copied into the writer's heap.
join([Small | Data], Run) when is_binary(Small) -> join(Data, [Small | Run]);
join([], Run) -> [joined(Run)];
join([Large | Data], Run) -> [joined(Run), Large | join(Data, [])].

joined(Run) -> iolist_to_binary(lists:reverse(Run)).

%% Reading

received(Replies, #state{phase = #link{parser = Parser, front = Front, writes = Writes} = L} = State) ->
    #link{front_bytes = Bytes} = L,
    {Result, Replies1, Done, Parser1, {Bytes1, Front1}, Writes1} =
        replies({Bytes, Front}, Writes, Parser, Replies, 0),
    L1 = L#link{
        parser = Parser1, front = Front1, front_bytes = Bytes1, writes = Writes1, pending = L#link.pending - Done
    },
    State1 = proven(Done, State#state{phase = L1}),
    case Result of
        more ->
            {Replies1, State1};
        {garbage, Garbage} ->
            count(garbage, 1, State),
            lose({garbage, Garbage}, Replies1, State1);
        {refused, _} = Reason ->
            lose(Reason, Replies1, State1)
    end.

replies({Bytes, [{From, _, Kind} | Flights]} = Front, Writes, Parser, Replies, Done) ->
    Front1 = {Bytes, Flights},
    case weir_memcached_reply:next(Kind, Parser) of
        {reply, Reply, Parser1} ->
            case rejection(Kind, Reply) of
                none ->
                    replies(Front1, Writes, Parser1, answer(From, Reply, Replies), Done + 1);
                Rejection ->
                    Replies1 = answer(From, believed(Reply), Replies),
                    {{refused, Rejection}, Replies1, Done + 1, Parser1, Front1, Writes}
            end;
        {more, Parser1} ->
            {more, Replies, Done, Parser1, Front, Writes};
        {garbage, Garbage} ->
            {{garbage, Garbage}, Replies, Done, Parser, Front, Writes}
    end;
replies({_, []}, Writes, Parser, Replies, Done) ->
    case queue:out(Writes) of
        {{value, Front}, Writes1} ->
            replies(Front, Writes1, Parser, Replies, Done);
        {empty, _} ->
            case weir_memcached_reply:unasked(Parser) of
                none -> {more, Replies, Done, Parser, {0, []}, Writes};
                Garbage -> {{garbage, Garbage}, Replies, Done, Parser, {0, []}, Writes}
            end
    end.

answer(answered, _, Replies) -> Replies;
answer(From, Reply, Replies) -> [{From, Reply} | Replies].

%% A server that rejects the line of a storage command may take the data that follows for commands, and
%% answer those. Then the replies after this one belong to nobody.
rejection(store, {error, {client_error, Text}}) -> Text;
rejection({many, [store | _]}, {ok, Replies}) -> first_rejection(Replies);
rejection(_, _) -> none.

first_rejection([{error, {client_error, Text}} | _]) -> Text;
first_rejection([_ | Replies]) -> first_rejection(Replies);
first_rejection([]) -> none.

%% Within one caller's requests as well.
believed({ok, Replies}) -> {ok, up_to_rejection(Replies)};
believed(Reply) -> Reply.

up_to_rejection([{error, {client_error, _}} = Rejection | Replies]) ->
    [Rejection | [{error, disconnected} || _ <- Replies]];
up_to_rejection([Reply | Replies]) ->
    [Reply | up_to_rejection(Replies)].

%% The back-off starts again from its minimum when a server has answered, not when it has accepted: one
%% that accepts and closes at once is not tried in a tight loop.
proven(0, State) -> State;
proven(_, #state{config = #config{reconnect = {Min, _}}, phase = L} = State) ->
    State#state{backoff = Min, phase = L#link{timeouts = 0, answered = true}}.

count(_, 0, _) -> ok;
count(Name, N, #state{config = #config{counters = Counters}}) -> weir_memcached_counters:add(Counters, Name, N).

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_, #state{config = #config{transport = Transport}, phase = #link{socket = Socket}}) ->
    close(Transport, Socket);
terminate(_, _) ->
    ok.

%% @private Sizes, not payloads.
-spec format_status(weir_server:status()) -> weir_server:status().
format_status(#{state := State} = Status) ->
    Status#{state := summary(State)}.

summary(#state{phase = #link{pending = Pending} = L}) ->
    #{pid => self(), phase => case is_silent(L) of true -> silent; false -> up end, pending => Pending};
summary(#state{phase = {Phase, _}, failure = none}) -> #{pid => self(), phase => Phase, pending => 0};
summary(#state{failure = {failed, Reason}} = State) -> (summary(State#state{failure = none}))#{reason => Reason}.
