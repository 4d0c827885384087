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
%% ?PROGRESS bytes came of one. A large request is given one time-out more for each ?PROGRESS bytes of it, since nobody
%% here sees how much of it has left the node. What else is under way gives no more time: the server answers one request
%% after the other.
%%
%% What is big is not kept: once in the seconds between two questions of {@link weir_memcached_client} a connection that
%% was used is collected, and its heap made small again when few requests are pending.
%%
%% Cost of a request: one message in and one out; its share of a batch is one write, one look at the
%% clock and one message to the writer, and of a received block one parse.
%% @private
-module(weir_memcached_conn).
-behaviour(weir_server).

-export([start_link/3, request/3, no_reply/3, send/3, answer/1, answer/2, either/2, forget/1, infos/1, ask/3, all/1]).
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

-define(IS_REQUEST(How), How =:= request orelse How =:= no_reply).

%% Keys asked for and keys found in one number, so that counting them makes no garbage: a block answers less than 2^30.
-define(FOUND(Asked, Hits), (((Asked) bsl 30) + (Hits))).
-define(ASKED(Found), ((Found) bsr 30)).
-define(HITS(Found), ((Found) band (1 bsl 30 - 1))).

-type deadline() :: integer() | infinity.
%% Milliseconds of `erlang:monotonic_time/1'. Every integer is less than `infinity' in the order of terms.
-type queued() :: {weir_server:from() | no_reply, deadline(), weir_memcached_request:request()}.
-type flight() :: {weir_server:from() | answered | no_reply, deadline(), weir_memcached_reply:kind()}.
%% `answered': its time was up. `no_reply': nobody waits for it.

%% One write: how many bytes its largest request has (0 if all are small), when it was given to the writer
%% (microseconds), and the requests.
-record(write, {
    largest = 0 :: non_neg_integer(),
    at = 0 :: integer(),
    flights = [] :: [flight()]
}).

%% What lives as long as one connection does.
-record(link, {
    protocol :: weir_memcached_load:protocol(),
    io :: pid(),
    socket :: term(),
    parser = weir_memcached_reply:new() :: weir_memcached_reply:parser(),
    %% in flight, the oldest first: the rest of one write, then each later write
    front = #write{} :: #write{},
    writes = queue:new() :: queue:queue(#write{}),
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
    server :: weir_memcached_config:server(),
    slot :: weir_pool:slot(),
    %% whether there may be garbage, and whether the heap was made large
    was_used = false :: boolean(),
    is_large = false :: boolean(),
    phase :: {waiting, reference()} | {connecting, pid()} | #link{},
    %% milliseconds before the next attempt, without jitter
    backoff :: pos_integer(),
    %% why the server cannot be reached, which has been reported; until it is reached
    failure = none :: none | {failed, Reason :: term()},
    %% the process that tells of the last event; none if the node had no room for that process
    teller = none :: none | pid()
}).

%% @doc Starts the connection of a slot of a client's server. It connects in its own time, and again whenever it has to.
-spec start_link(weir_pool:slot(), weir_memcached:client(), weir_memcached_config:server()) ->
    weir_server:start_ret().
start_link(Slot, Client, Server) ->
    weir_server:start_link(?MODULE, {Slot, Client, Server}, []).

-type answer() :: weir_memcached_reply:reply() | {error, timeout | disconnected} | refusal().
-type refusal() :: down | busy | {speaks, weir_memcached_load:protocol()} | gone.
%% `down': this connection has no server; `busy': it has too many requests already; `speaks': its server does not
%% understand the protocol of the request; nothing was sent. `gone': the connection process died; the request may have
%% been sent.

%% @doc Has a request answered, by its deadline.
-spec request(pid(), weir_memcached_request:request(), deadline()) ->
    answer().
request(Conn, Request, Deadline) ->
    called(Conn, {request, Deadline, Request}).

%% @doc Has a request sent whose reply nobody waits for: `ok' when the connection has taken it.
-spec no_reply(pid(), weir_memcached_request:request(), deadline()) -> ok | refusal().
no_reply(Conn, Request, Deadline) ->
    called(Conn, {no_reply, Deadline, Request}).

called(Conn, Message) ->
    try
        weir_server:call(Conn, Message, infinity)
    catch
        exit:{noproc, _} -> down;
        exit:{_, {weir_server, call, _}} -> gone
    end.

%% @doc As {@link request/3}, in two parts: others can be asked meanwhile.
-spec send(pid(), weir_memcached_request:request(), deadline()) -> gen_server:request_id().
send(Conn, Request, Deadline) ->
    gen_server:send_request(Conn, {request, Deadline, Request}).

%% @doc The answer to what was sent.
-spec answer(gen_server:request_id()) -> answer().
answer(Id) ->
    answered(gen_server:receive_response(Id, infinity)).

%% @doc The answer, if it comes within so many milliseconds; it is still to come else.
-spec answer(gen_server:request_id(), Ms :: pos_integer()) -> answer() | timeout.
answer(Id, Ms) ->
    case gen_server:wait_response(Id, Ms) of
        timeout -> timeout;
        Response -> answered(Response)
    end.

%% @doc The answer that comes first; the other one is still to come.
-spec either(gen_server:request_id(), gen_server:request_id()) -> {first | second, answer()}.
either(First, Second) ->
    Ids = gen_server:reqids_add(Second, second, gen_server:reqids_add(First, first, gen_server:reqids_new())),
    {Response, Which, _} = gen_server:wait_response(Ids, infinity, true),
    {Which, answered(Response)}.

%% @doc The answer is not wanted any more, and comes to nobody.
-spec forget(gen_server:request_id()) -> ok.
forget(Id) ->
    _ = gen_server:receive_response(Id, 0),
    ok.

answered({reply, Answer}) -> Answer;
answered({error, {noproc, _}}) -> down;
answered({error, _}) -> gone.

%% @doc What connections are doing, and why the last attempt to connect failed, until one succeeds; `stuck' is one that
%% has not answered within a second. Those whose process has just ended are left out. Cost: one request each, answered
%% between two batches.
-spec infos([pid()]) ->
    [#{
        pid := pid(),
        server => weir_memcached:server_name(),
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

%% @doc Asks whether it comes back to its mailbox, without waiting; the answer is to come, with this label.
-spec ask(pid(), Label :: term(), gen_server:request_id_collection()) -> gen_server:request_id_collection().
ask(Conn, Label, Asked) ->
    gen_server:send_request(Conn, are_you_there, Label, Asked).

%% @doc The connections of servers.
-spec all([weir_memcached_config:server()]) -> [{weir_memcached_config:server(), pid()}].
all(Servers) ->
    [
        {Server, Conn}
     || #server{pool = Pool} = Server <- Servers, {ok, Workers} <- [weir_pool:workers(Pool)], {_Slot, Conn} <- Workers
    ].

%% @private
-spec init({weir_pool:slot(), weir_memcached:client(), weir_memcached_config:server()}) -> {ok, #state{}}.
init({Slot, Client, Server}) ->
    process_flag(trap_exit, true),
    #config{reconnect = {Backoff, _}} = Config = weir_memcached_config:fetch(Client),
    Phase = {waiting, make_ref()},
    {ok, tell(connect(#state{config = Config, server = Server, slot = Slot, phase = Phase, backoff = Backoff}))}.

%% @private
-spec handle_batch([weir_server:message()], #state{}) -> {reply, [{weir_server:from(), term()}], #state{}}.
handle_batch(Batch, State) ->
    {Replies, State1} = messages(Batch, [], State),
    {Replies1, State2} = flush(Replies, State1),
    {reply, lists:reverse(Replies1), tell(grow(arm(State2)))}.

messages([{call, _, {How, _, {_, _}}} | _] = Batch, Replies, #state{phase = #link{} = L} = State) when
    ?IS_REQUEST(How)
->
    #link{queued = Queued, queued_bytes = Bytes, pending = Pending, earliest = Earliest} = L,
    {Batch1, Replies1, Queued1, Bytes1, Pending1, Earliest1} =
        accept(Batch, Replies, Queued, Bytes, Pending, Earliest, State),
    L1 = L#link{queued = Queued1, queued_bytes = Bytes1, pending = Pending1, earliest = Earliest1},
    messages(Batch1, Replies1, State#state{phase = L1});
messages([{call, From, {How, _, {_, _}}} | Batch], Replies, State) when ?IS_REQUEST(How) ->
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

message({Tag, Socket, Data}, Replies, #state{phase = #link{socket = Socket} = L} = State) when
    Tag =:= tcp; Tag =:= ssl
->
    Parser = weir_memcached_reply:push(Data, L#link.parser),
    L1 = L#link{parser = Parser, received = L#link.received + byte_size(Data)},
    received(Replies, State#state{phase = L1, was_used = true});
message({Io, written}, Replies, #state{phase = #link{io = Io} = L} = State) ->
    {Replies, State#state{phase = L#link{writing = false, written_bytes = 0}}};
message({Tag, Socket}, Replies, #state{phase = #link{socket = Socket}} = State) when
    Tag =:= tcp_passive; Tag =:= ssl_passive
->
    activate(Replies, State);
message({Tag, Socket}, Replies, #state{phase = #link{socket = Socket}} = State) when
    Tag =:= tcp_closed; Tag =:= ssl_closed
->
    lose(closed, Replies, State);
message({Tag, Socket, Reason}, Replies, #state{phase = #link{socket = Socket}} = State) when
    Tag =:= tcp_error; Tag =:= ssl_error
->
    lose(Reason, Replies, State);
message({'EXIT', Io, Reason}, Replies, #state{phase = #link{io = Io}} = State) ->
    lose(reason(Reason), Replies, State);
message({timeout, Timer, deadline}, Replies, #state{phase = #link{deadline_timer = Timer}} = State) ->
    deadline(Replies, State);
message({timeout, Timer, stalled}, Replies, #state{phase = #link{stall_timer = Timer}} = State) ->
    stalled(Replies, State);
message({Io, connected, Socket, Protocol}, Replies, #state{phase = {connecting, Io}} = State) ->
    connected(#link{io = Io, socket = Socket, protocol = Protocol}, Replies, State);
message({'EXIT', Io, Reason}, Replies, #state{phase = {connecting, Io}} = State) ->
    {Replies, connect_failed(reason(Reason), State)};
message({timeout, Timer, reconnect}, Replies, #state{phase = {waiting, Timer}} = State) ->
    {Replies, connect(State)};
message({close, Socket}, Replies, #state{config = #config{transport = Transport}} = State) ->
    ok = weir_memcached_io:close(Transport, Socket),
    {Replies, State};
%% what is left of a connection that is no more
message(_, Replies, State) ->
    {Replies, State}.

reason({shutdown, {_, Reason}}) -> Reason;
reason(Reason) -> Reason.

%% Requests that come one after the other are taken in one go: the record is copied once for them.
accept([{call, From, {How, Deadline, {_, _} = Request}} | Batch], Replies, Queued, Bytes, Pending, Earliest, State) when
    ?IS_REQUEST(How)
->
    {Kind, Data} = Request,
    #state{config = Config, phase = #link{protocol = Protocol, written_bytes = Written}} = State,
    Size = iolist_size(Data),
    HasRoom = has_room(Size, Pending, Bytes + Written, Config),
    IsSpoken = is_spoken(Protocol, Kind),
    if
        HasRoom, IsSpoken, How =:= request ->
            Queued1 = [{From, Deadline, Request} | Queued],
            accept(Batch, Replies, Queued1, Bytes + Size, Pending + 1, min(Deadline, Earliest), State);
        HasRoom, IsSpoken ->
            %% Nobody waits for the reply: it is answered when it is taken.
            Queued1 = [{no_reply, Deadline, Request} | Queued],
            Replies1 = [{From, ok} | Replies],
            accept(Batch, Replies1, Queued1, Bytes + Size, Pending + 1, min(Deadline, Earliest), State);
        HasRoom ->
            accept(Batch, [{From, {speaks, Protocol}} | Replies], Queued, Bytes, Pending, Earliest, State);
        true ->
            count(busy, 1, State),
            accept(Batch, [{From, busy} | Replies], Queued, Bytes, Pending, Earliest, State)
    end;
accept(Batch, Replies, Queued, Bytes, Pending, Earliest, _) ->
    {Batch, Replies, Queued, Bytes, Pending, Earliest}.

%% Text is understood by those who understand meta.
is_spoken(Protocol, {many, [Kind | _]}) -> is_spoken(Protocol, Kind);
is_spoken(binary, Kind) -> is_binary_protocol(Kind);
is_spoken(meta, Kind) -> not is_binary_protocol(Kind);
is_spoken(text, {mg, _, _}) -> false;
is_spoken(text, {meta, _, _}) -> false;
is_spoken(text, {quiet, _}) -> false;
is_spoken(text, debug) -> false;
is_spoken(text, Kind) -> not is_binary_protocol(Kind).

is_binary_protocol({binary, _, _}) -> true;
is_binary_protocol(_) -> false.

%% One that is larger than what may be pending is taken alone.
has_room(Size, Pending, Waiting, #config{max_pending = MaxPending, max_pending_bytes = MaxBytes}) ->
    Pending < MaxPending andalso (Waiting + Size =< MaxBytes orelse Waiting =:= 0).

%% What callers choose by.
tell(#state{server = #server{load = Load}, slot = Slot, phase = #link{pending = Pending} = L} = State) ->
    ok = weir_memcached_load:up(Slot, Pending, is_silent(L), Load),
    State;
tell(#state{server = #server{load = Load}, slot = Slot} = State) ->
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

%% If the node has no room for a process, the attempt has failed, as if the server had refused.
connect(#state{server = Server, config = Config} = State) ->
    try
        State#state{phase = {connecting, weir_memcached_io:start_link(Server, Config)}}
    catch
        error:system_limit -> connect_failed(system_limit, State)
    end.

connected(#link{protocol = Protocol} = L, Replies, #state{config = Config, server = Server} = State) ->
    count(connects, 1, State),
    Teller = weir_memcached_event:connected(Server, Config, State#state.teller),
    ok = weir_memcached_load:speaks(Protocol, Server#server.load),
    activate(Replies, State#state{phase = L, failure = none, teller = Teller}).

activate(Replies, #state{phase = #link{socket = Socket}} = State) ->
    case weir_memcached_io:activate(Socket, ?ACTIVE) of
        ok -> {Replies, State};
        {error, _} -> lose(closed, Replies, State)
    end.

connect_failed(Reason, #state{server = Server, config = Config, failure = Failure, teller = Before} = State) ->
    count(connect_failures, 1, State),
    %% Without a teller the last event could not be told.
    Teller =
        case Failure =:= none orelse Before =:= none of
            true -> weir_memcached_event:connect_failed(Server, Config, Reason, Before);
            false -> Before
        end,
    wait(State#state{failure = {failed, Reason}, teller = Teller}).

%% Waits between half the back-off and all of it, so that the connections of many nodes do not come back at once.
wait(#state{config = #config{reconnect = {_, Max}}, backoff = Backoff} = State) ->
    Delay = Backoff div 2 + rand:uniform(Backoff - Backoff div 2),
    Timer = erlang:start_timer(Delay, self(), reconnect),
    State#state{phase = {waiting, Timer}, backoff = min(2 * Backoff, Max)}.

%% Losing a connection

lose(Reason, Replies, #state{config = Config, server = Server, slot = Slot, phase = L} = State) ->
    #link{io = Io, socket = Socket, queued = Queued} = L,
    unlink(Io),
    exit(Io, kill),
    ok = weir_memcached_io:close(Config#config.transport, Socket),
    _ = cancel(L#link.stall_timer),
    _ = cancel(L#link.deadline_timer),
    Flights = lists:append([Flights || #write{flights = Flights} <- writes(L)]),
    InFlight = [From || {From, _, _} <- Flights, From =/= answered],
    Failed = length(InFlight),
    count(disconnects, 1, State),
    count(disconnected, Failed, State),
    Teller = weir_memcached_event:disconnected(Server, Config, Reason, Failed, State#state.teller),
    ok = weir_memcached_load:down(Slot, Server#server.load),
    ok = weir_memcached_load:gone(Config#config.connections, Server#server.load),
    Unsent = [{From, down} || {From, _, _} <- Queued],
    Sent = [{From, {error, disconnected}} || From <- InFlight],
    {all_answered(Unsent ++ Sent, Replies, State), wait(State#state{was_used = true, teller = Teller})}.

writes(#link{front = Front, writes = Writes}) -> [Front | queue:to_list(Writes)].

%% Who did not want to know is not told that a request failed: it is counted.
all_answered(Answers, Replies, State) ->
    count(unacknowledged, length([failed || {no_reply, _} <- Answers]), State),
    [Answer || {From, _} = Answer <- Answers, From =/= no_reply] ++ Replies.

cancel(undefined) -> ok;
cancel(Timer) -> erlang:cancel_timer(Timer, [{async, true}, {info, false}]).

%% Silence. While requests are in flight the timer runs; when it fires and there was no progress since it was
%% set, the server is taken for dead: without this a server that vanished without closing its
%% connections would be believed in for as long as TCP repeats what it sent, a quarter of an hour.

watch(#link{stall_timer = undefined} = L, #config{stall_timeout = Timeout}) when is_integer(Timeout) ->
    L#link{stall_timer = erlang:start_timer(Timeout, self(), stalled), received = 0, answered = false};
watch(L, _) ->
    L.

stalled(Replies, #state{config = Config, phase = #link{quiet = Quiet} = L} = State) ->
    #link{received = Received, answered = Answered, front = Front, writes = Writes} = L,
    Idle = Front#write.flights =:= [] andalso queue:is_empty(Writes),
    L1 = L#link{stall_timer = undefined},
    if
        Idle -> {Replies, State#state{phase = L1#link{quiet = 0}}};
        Answered; Received >= ?PROGRESS -> {Replies, State#state{phase = watch(L1#link{quiet = 0}, Config)}};
        true ->
            case Quiet < due_bytes(writes(L)) div ?PROGRESS of
                true -> {Replies, State#state{phase = watch(L1#link{quiet = Quiet + 1}, Config)}};
                false -> lose(stalled, Replies, State)
            end
    end.

%% As many bytes may have to leave the node before the next reply can come.
due_bytes([#write{flights = []} | Writes]) -> due_bytes(Writes);
due_bytes([#write{largest = Largest} | _]) -> Largest.

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

deadline(Replies, #state{phase = #link{queued = Queued} = L} = State) ->
    Now = erlang:monotonic_time(millisecond),
    {[Front | Writes], {Late1, Earliest1}} = lists:mapfoldl(
        fun(#write{flights = Flights} = Write, {Late, Earliest}) ->
            {Flights1, LateNow, EarliestNow} = overdue(Flights, Now, [], Late, Earliest),
            {Write#write{flights = Flights1}, {LateNow, EarliestNow}}
        end,
        {[], infinity},
        writes(L)
    ),
    {Waiting, Expired} = lists:partition(fun({_, Deadline, _}) -> Deadline > Now end, Queued),
    Earliest = lists:foldl(fun({_, Deadline, _}, E) -> min(Deadline, E) end, Earliest1, Waiting),
    Late = [From || {From, _, _} <- Expired] ++ Late1,
    count(timeouts, length(Late), State),
    count(expired, length(Expired), State),
    L1 = L#link{
        front = Front,
        writes = queue:from_list(Writes),
        queued = Waiting,
        queued_bytes = lists:sum([iolist_size(Data) || {_, _, {_, Data}} <- Waiting]),
        pending = L#link.pending - length(Expired),
        timeouts = L#link.timeouts + length(Late),
        earliest = max(Earliest, Now + ?SWEEP_PAUSE),
        armed = infinity,
        deadline_timer = undefined
    },
    {all_answered([{From, {error, timeout}} || From <- Late], Replies, State), State#state{phase = L1}}.

overdue([{From, Deadline, Kind} | Flights], Now, Swept, Late, Earliest) when Deadline =< Now ->
    overdue(Flights, Now, [{answered, infinity, Kind} | Swept], [From | Late], Earliest);
overdue([{_, Deadline, _} = Flight | Flights], Now, Swept, Late, Earliest) ->
    overdue(Flights, Now, [Flight | Swept], Late, min(Deadline, Earliest));
overdue([], _, Swept, Late, Earliest) ->
    {lists:reverse(Swept), Late, Earliest}.

%% Writing

flush(Replies, #state{config = Config, phase = #link{writing = false, queued = [_ | _] = Queued} = L} = State) ->
    At = erlang:monotonic_time(microsecond),
    {Flights, Data, Expired} = take(Queued, erlang:convert_time_unit(At, microsecond, millisecond), [], [], []),
    N = length(Expired),
    count(timeouts, N, State),
    count(expired, N, State),
    Bytes = L#link.queued_bytes,
    L1 = L#link{queued = [], queued_bytes = 0, pending = L#link.pending - N},
    Replies1 = all_answered([{From, {error, timeout}} || From <- Expired], Replies, State),
    case Flights of
        [] ->
            {Replies1, State#state{phase = L1}};
        _ ->
            count(requests, length(Flights), State),
            weir_memcached_io:write(L#link.io, join(Data, [])),
            Write = #write{largest = largest(Data, 0), at = At, flights = Flights},
            L2 = L1#link{writing = true, written_bytes = Bytes, writes = queue:in(Write, L#link.writes)},
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

%% What is one binary is small.
largest([Small | Data], Most) when is_binary(Small) -> largest(Data, Most);
largest([Large | Data], Most) -> largest(Data, max(iolist_size(Large), Most));
largest([], Most) -> Most.

%% Requests that fit into one binary each are joined into one; larger ones are passed by reference. The driver
%% writes at most 16 pieces with one system call, and each piece would be copied into the writer's heap.
join([Small | Data], Run) when is_binary(Small) -> join(Data, [Small | Run]);
join([], Run) -> [joined(Run)];
join([Large | Data], Run) -> [joined(Run), Large | join(Data, [])].

joined(Run) -> iolist_to_binary(lists:reverse(Run)).

%% Reading

received(Replies, #state{server = Server, phase = L} = State) ->
    #link{parser = Parser, front = Front, writes = Writes} = L,
    Now = erlang:monotonic_time(microsecond),
    {Result, Replies1, Done, Found, Parser1, Front1, Writes1} =
        writes(Front, Writes, Parser, Replies, 0, 0, {Now, Server}),
    L1 = L#link{parser = Parser1, front = Front1, writes = Writes1, pending = L#link.pending - Done},
    State1 = proven(Done, State#state{phase = L1}),
    count(hits, ?HITS(Found), State),
    count(misses, ?ASKED(Found) - ?HITS(Found), State),
    case Result of
        more ->
            {Replies1, State1};
        {garbage, Garbage} ->
            count(garbage, 1, State),
            lose({garbage, Garbage}, Replies1, State1);
        {refused, _} = Reason ->
            lose(Reason, Replies1, State1)
    end.

%% One write after the other. Those requests of one that are answered by the same block took about the same time.
writes(#write{at = At, flights = Flights} = Front, Writes, Parser, Replies, Done, Found, {Now, Server} = Block) ->
    {Result, Left, Parser1, Replies1, N, Found1} = replies(Flights, Parser, Replies, 0, Found, Server),
    _ = N > 0 andalso weir_memcached_latency:add(max(0, Now - At), N, Server#server.latency),
    case Result =:= all andalso queue:out(Writes) of
        {{value, Front1}, Writes1} ->
            writes(Front1, Writes1, Parser1, Replies1, Done + N, Found1, Block);
        {empty, _} ->
            None =
                case weir_memcached_reply:unasked(Parser1) of
                    none -> more;
                    Garbage -> {garbage, Garbage}
                end,
            {None, Replies1, Done + N, Found1, Parser1, #write{}, Writes};
        false ->
            {Result, Replies1, Done + N, Found1, Parser1, Front#write{flights = Left}, Writes}
    end.

replies([{From, _, Kind} | Flights] = Left, Parser, Replies, N, Found, Server) ->
    case weir_memcached_reply:next(Kind, Parser) of
        {reply, Reply, Parser1} ->
            case rejection(Kind, Reply) of
                none ->
                    Replies1 = answer(From, Reply, Replies, Server),
                    replies(Flights, Parser1, Replies1, N + 1, Found + found(Kind, Reply), Server);
                Rejection ->
                    Replies1 = answer(From, believed(Reply), Replies, Server),
                    {{refused, Rejection}, Flights, Parser1, Replies1, N + 1, Found}
            end;
        {more, Parser1} ->
            {more, Left, Parser1, Replies, N, Found};
        {garbage, Garbage} ->
            {{garbage, Garbage}, Left, Parser, Replies, N, Found}
    end;
replies([], Parser, Replies, N, Found, _) ->
    {all, [], Parser, Replies, N, Found}.

answer(answered, _, Replies, _) -> Replies;
answer(no_reply, Reply, Replies, #server{counters = Counters}) ->
    _ = is_tuple(Reply) andalso element(1, Reply) =:= error andalso
        weir_memcached_counters:add(Counters, unacknowledged, 1),
    Replies;
answer(From, Reply, Replies, _) -> [{From, Reply} | Replies].

%% Keys that were asked for, and those that were there.
found(store, _) -> 0;
found({values, [_]}, {ok, Items}) -> ?FOUND(1, length(Items));
found({values, Keys}, {ok, Items}) -> ?FOUND(length(Keys), length(Items));
found({mg, _, _}, {ok, Items}) -> ?FOUND(1, length(Items));
found({quiet, Keys}, {ok, Items}) -> ?FOUND(length(Keys), length(Items));
found({binary, get, _}, {ok, Items}) -> ?FOUND(1, length(Items));
found({binary, {quiet, Keys}, _}, {ok, Items}) -> ?FOUND(length(Keys), length(Items));
found({many, [{values, _} | _] = Kinds}, {ok, Replies}) -> lists:sum(lists:zipwith(fun found/2, Kinds, Replies));
%% A place that is kept for who computes the value is no hit.
found({meta, item, _}, {ok, <<>>, Tokens}) when is_map_key(leased, Tokens); is_map_key(won, Tokens) -> ?FOUND(1, 0);
found({meta, item, _}, {ok, _, _}) -> ?FOUND(1, 1);
found({meta, item, _}, {error, not_found}) -> ?FOUND(1, 0);
found(_, _) -> 0.

%% A server that rejects the line of a storage command may take the data that follows for commands, and
%% answer those. Then the replies after this one belong to nobody.
rejection(store, {error, {client_error, Text}}) -> Text;
rejection({meta, store, _}, {error, {client_error, Text}}) -> Text;
rejection({many, [store | _]}, {ok, Replies}) -> first_rejection(Replies);
rejection({many, [{meta, store, _} | _]}, {ok, Replies}) -> first_rejection(Replies);
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
count(Name, N, #state{server = #server{counters = Counters}}) -> weir_memcached_counters:add(Counters, Name, N).

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_, #state{config = #config{transport = Transport}, phase = #link{socket = Socket}}) ->
    weir_memcached_io:close(Transport, Socket);
terminate(_, _) ->
    ok.

%% @private Sizes, not payloads.
-spec format_status(weir_server:status()) -> weir_server:status().
format_status(#{state := State} = Status) ->
    Status#{state := summary(State)}.

summary(#state{server = #server{name = Name}, phase = #link{pending = Pending} = L}) ->
    Phase = case is_silent(L) of true -> silent; false -> up end,
    #{pid => self(), server => Name, phase => Phase, pending => Pending};
summary(#state{server = #server{name = Name}, phase = {Phase, _}, failure = none}) ->
    #{pid => self(), server => Name, phase => Phase, pending => 0};
summary(#state{failure = {failed, Reason}} = State) -> (summary(State#state{failure = none}))#{reason => Reason}.
