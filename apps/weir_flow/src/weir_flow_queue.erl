%% @doc Queue of one receiver: the senders that wait for the limit, and their order.
%%
%% A sender that finds the limit reached asks the queue and sleeps. The queue reads how much room the receiver has, and
%% wakes as many senders as there is room for, the longest wait first. A sender that wakes takes its credit and sends
%% its message itself, so the messages of one sender keep their order.
%%
%% ```
%%   sender                       queue                                receiver
%%     | ---- wait ---------------> | if it is the first: request -------> |
%%     |                            | <------------------------- answer -- |  the receiver has taken out the messages
%%     | <---- wake, for the room - |                                      |  before the request
%%     | takes a credit             |                                      |
%%     | ---- message ---------------------------------------------------> |
%%     | ---- request, in the name of the queue -------------------------> |
%%     |                            | <------------------------- answer -- |
%% '''
%%
%% The request is that of weir_flow_ack. The queue wakes several senders at a time, and the one in the middle sends the
%% next request behind its message. The answer therefore comes while the receiver still has messages of the others, so
%% the receiver does not run out of messages. A sender that waits costs the receiver nothing: except for the first
%% request, each request belongs to a message under the limit.
%%
%% == No credit is held by a sender that sleeps ==
%%
%% A wake-up grants nothing. The queue leaves room for the senders that it has woken until they have tried to take a
%% credit, which each of them counts in the word TRIED. A sender that wakes and finds no room asks again, with the time
%% of its first request, and so keeps its place.
%%
%% A sender that is killed or suspended holds no credit, and delays no other sender for longer than two ticks. While
%% senders wait or have been woken, the queue reads the room at each tick. The first tick comes after ?FIRST_TICK_MS,
%% and each pause is twice the pause before, up to ?LAST_TICK_MS. The least number of senders that were woken and had
%% not tried, between two ticks, is the number of senders that may never try. At the second tick, the queue leaves no
%% more room for them. If no sender has tried between the two ticks, the queue wakes twice as many senders as it did
%% last.
%%
%% The queue publishes the number of senders that wait in the word QUEUED, and the number that it has woken in WOKEN.
%% While senders wait, or have been woken and have not tried, other senders take no credit, even if there is room:
%% `limit => wait' asks the queue, and `limit => busy' is refused.
%%
%% == A lost message delays ==
%%
%% A sender repeats its request every ?REPEAT_MS, and the queue ignores a request that it already has. A repeat may
%% reach the queue behind the wake-up, so a woken sender that has repeated its request also cancels it. If the queue is
%% killed, weir_flow_limits starts another queue, which the next requests reach. If a callback of the receiver throws
%% the request of the queue away, no answer comes, and the ticks wake the senders instead.
%%
%% The queue makes no call and waits for no other process. The queue ends with its receiver. A sender that waits
%% monitors the receiver, so the sender learns of its end.
%% @private
-module(weir_flow_queue).

-behaviour(gen_server).

-export([start_link/2, await/3, request/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([wake/0]).

-include("weir_flow.hrl").

-define(FIRST_TICK_MS, 1).
-define(LAST_TICK_MS, 32).
-define(REPEAT_MS, 1000).
%% Milliseconds until a sender asks again for a queue that the node has no room for.
-define(NO_QUEUE_MS, 50).
%% The queue gives its memory back when no request has come for this number of milliseconds, and when this number of
%% senders has waited and none is left.
-define(HIBERNATE_MS, 1000).
-define(MANY, 1000).

-type since() :: integer().
%% Native monotonic time of the first request for a message.

-type key() :: {since(), reference()}.

-type wake() :: {request, pid(), Tag :: reference()} | none.
%% The request that the sender sends behind its message.

-record(state, {
    to :: pid(),
    words :: weir_flow_limit:words(),
    tag = make_ref() :: reference(),
    waiters = gb_trees:empty() :: gb_trees:tree(key(), Monitor :: reference()),
    %% Largest number of waiters since none was left.
    most = 0 :: non_neg_integer(),
    %% Whether a request has been sent for which no answer has come.
    asked = false :: boolean(),
    %% Whether the timer of the next tick runs, and the milliseconds of that tick.
    ticks = false :: boolean(),
    tick_ms = ?FIRST_TICK_MS :: pos_integer(),
    %% Number of woken senders that TRIED counts, or that the queue leaves room for.
    woken = 0 :: non_neg_integer(),
    %% Value of TRIED at the last tick, and the least number of woken senders since then that had not tried.
    tried = 0 :: non_neg_integer(),
    late = 0 :: non_neg_integer(),
    %% Factor between the room and the number of senders that the queue wakes.
    widening = 1 :: pos_integer()
}).

%% @private
-spec start_link(pid(), weir_flow_limit:words()) -> gen_server:start_ret().
start_link(To, Words) -> gen_server:start_link(?MODULE, {To, Words}, [{hibernate_after, ?HIBERNATE_MS}]).

%% @doc Waits until the queue wakes the caller, at most until the end of the time. The caller then tries to take a
%% credit. `Since' is the time of the first wait for this message, which gives the caller its place.
%%
%% If the receiver dies, returns `noproc'. If the application stops, returns `{not_started, weir_flow}'. If it has
%% started again since, and the receiver has not asked for its limit, returns `no_limit'.
-spec await(pid(), since(), weir_flow_time:until()) ->
    {ok, wake()} | timeout | noproc | no_limit | {not_started, weir_flow}.
await(To, Since, Until) ->
    Ref = monitor(process, To, [{alias, reply_demonitor}]),
    await(To, {Since, Ref}, Ref, Until, first).

await(To, Key, Ref, Until, Request) ->
    case weir_flow_limits:queue(To, weir_flow_time:left(Until)) of
        {ok, Queue} ->
            ok = gen_server:cast(Queue, {wait, Key, self()}),
            await(To, Key, Ref, Until, Request, Queue, ?REPEAT_MS);
        no_queue ->
            await(To, Key, Ref, Until, Request, none, ?NO_QUEUE_MS);
        Reason ->
            no_longer_limited(Reason, To, Ref)
    end.

await(To, Key, Ref, Until, Request, Queue, Ms) ->
    receive
        {Ref, Wake} ->
            _ = Request =:= repeated andalso tell(Queue, {cancel, Key}),
            {ok, Wake};
        {'DOWN', Ref, process, _To, _Reason} ->
            noproc
    after min(Ms, weir_flow_time:left(Until)) ->
        case weir_flow_time:left(Until) of
            0 -> timed_out(Key, Ref, Queue);
            _ -> await(To, Key, Ref, Until, repeated)
        end
    end.

%% The row of a receiver that has just died may be gone before its 'DOWN' arrives.
no_longer_limited(Reason, To, Ref) ->
    true = demonitor(Ref, [flush]),
    case weir_flow_dest:is_gone(To) of
        true -> noproc;
        false -> Reason
    end.

tell(none, _Message) -> ok;
tell(Queue, Message) -> gen_server:cast(Queue, Message).

timed_out(Key, Ref, Queue) ->
    _ = demonitor(Ref),
    receive
        {Ref, Wake} -> {ok, Wake};
        {'DOWN', Ref, process, _To, _Reason} -> noproc
    after 0 ->
        ok = tell(Queue, {leave, Key}),
        timeout
    end.

%% @doc Sends the receiver the request that came with the wake-up, behind a message. Most wake-ups bring none.
-spec request(pid(), wake()) -> ok.
request(_To, none) -> ok;
request(To, {request, Queue, Tag}) -> weir_flow_ack:request(To, {Queue, Tag}).

%% ---------------------------------------------------------------- the queue

%% @private
-spec init({pid(), weir_flow_limit:words()}) -> {ok, #state{}}.
init({To, Words}) ->
    _ = monitor(process, To),
    Tried = weir_flow_limit:tried(Words),
    {ok, published(#state{to = To, words = Words, woken = Tried, tried = Tried})}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {noreply, #state{}}.
handle_call(_Unknown, _From, State) -> {noreply, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({wait, Key, Pid}, #state{waiters = Waiters} = State) ->
    case gb_trees:is_defined(Key, Waiters) of
        true -> {noreply, State};
        false -> {noreply, added(Key, Pid, State)}
    end;
handle_cast({cancel, Key}, State) ->
    {_WasThere, Without} = without(Key, State),
    {noreply, Without};
handle_cast({leave, Key}, State) ->
    {noreply, left(without(Key, State))};
handle_cast(_Unknown, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_info({Tag, _Statistics}, #state{tag = Tag} = State) ->
    {noreply, woken(State#state{asked = false, widening = 1, tick_ms = ?FIRST_TICK_MS})};
handle_info(tick, State) ->
    {noreply, tick(State#state{ticks = false})};
handle_info({{gone, Key}, _Monitor, process, _Pid, _Reason}, State) ->
    {noreply, left(without(Key, State))};
handle_info({'DOWN', _Monitor, process, To, _Reason}, #state{to = To} = State) ->
    {stop, normal, State};
handle_info(_Unknown, State) ->
    {noreply, State}.

added(Key, Pid, #state{waiters = Waiters} = State) ->
    Monitor = monitor(process, Pid, [{tag, {gone, Key}}]),
    Added = published(State#state{waiters = gb_trees:insert(Key, Monitor, Waiters)}),
    case gb_trees:is_empty(Waiters) of
        true -> ticking(asked(woken(Added)));
        false -> Added
    end.

without(Key, #state{waiters = Waiters} = State) ->
    case gb_trees:take_any(Key, Waiters) of
        {Monitor, Rest} ->
            ok = forget(Monitor),
            {true, published(State#state{waiters = Rest})};
        error ->
            {false, State}
    end.

%% A sender whose time is over, or that is dead, and that the queue had woken does not try.
left({true, State}) -> State;
left({false, #state{woken = Woken} = State}) -> published(State#state{woken = max(0, Woken - 1)}).

%% Ends a monitor. A flush of its message would search the mailbox, which is long when thousands of waiters end
%% together. A message that is already there says that a woken sender does not try (left/1).
forget(Monitor) ->
    true = demonitor(Monitor),
    ok.

%% Publishes the numbers of senders that wait and that were woken.
published(#state{words = Words, waiters = Waiters, woken = Woken, most = Most} = State) ->
    Size = gb_trees:size(Waiters),
    ok = weir_flow_limit:set_ahead(Words, Woken, Size),
    case Size of
        0 when Most >= ?MANY ->
            true = garbage_collect(),
            State#state{most = 0};
        _ ->
            State#state{most = max(Most, Size)}
    end.

%% Sends the request if no request is on its way. The receiver has messages under its limit, so its answer comes after
%% it has handled some of them.
asked(#state{to = To, tag = Tag, asked = false, waiters = Waiters} = State) ->
    case gb_trees:is_empty(Waiters) of
        true ->
            State;
        false ->
            ok = weir_flow_ack:request(To, {self(), Tag}),
            State#state{asked = true}
    end;
asked(State) ->
    State.

%% ---------------------------------------------------------------- ticks

%% Starts the timer of the next tick, if senders wait or have been woken and have not tried.
ticking(#state{ticks = true} = State) ->
    State;
ticking(#state{words = Words, waiters = Waiters, woken = Woken, tick_ms = Ms} = State) ->
    case gb_trees:is_empty(Waiters) andalso Woken =< weir_flow_limit:tried(Words) of
        true ->
            State#state{tick_ms = ?FIRST_TICK_MS};
        false ->
            _ = erlang:send_after(Ms, self(), tick),
            State#state{ticks = true}
    end.

tick(#state{words = Words, tick_ms = Ms, tried = Before, widening = Widening} = State) ->
    Tried = weir_flow_limit:tried(Words),
    #state{woken = Woken, late = Late} = Counted = counted(Tried, State),
    Wider =
        case Tried of
            Before when Late > 0 -> 2 * Widening;
            _ -> 1
        end,
    Given = Counted#state{woken = Woken - Late, tried = Tried, widening = Wider, tick_ms = min(2 * Ms, ?LAST_TICK_MS)},
    Next = woken(Given),
    ticking(published(Next#state{late = Next#state.woken - Tried})).

%% Counts the woken senders that have not tried. Senders that were suspended may try after the queue has given them up.
counted(Tried, #state{woken = Woken, late = Late} = State) ->
    Expected = max(Woken, Tried),
    State#state{woken = Expected, late = min(Late, Expected - Tried)}.

%% ---------------------------------------------------------------- waking

%% Wakes senders for the room that no other sender has been woken for.
woken(#state{to = To, words = Words} = State) ->
    %% A woken sender takes its credit before it counts its try. The queue reads in the other order, so it never counts
    %% a try whose credit it misses.
    Tried = weir_flow_limit:tried(Words),
    #state{waiters = Waiters, woken = Woken, widening = Widening} = Counted = counted(Tried, State),
    Room = weir_flow_limit:room(To) - (Woken - Tried),
    case min(Room * Widening, gb_trees:size(Waiters)) of
        Count when Count > 0 ->
            Awake = wake(Count, (Count + 1) div 2, Counted#state{woken = Woken + Count}),
            ticking(published(Awake));
        _None ->
            Counted
    end.

wake(0, _Asks, State) ->
    State;
wake(Count, Asks, #state{waiters = Waiters, tag = Tag} = State) ->
    {{_Since, Ref}, Monitor, Rest} = gb_trees:take_smallest(Waiters),
    ok = forget(Monitor),
    Left = State#state{waiters = Rest},
    case Count of
        Asks ->
            _ = Ref ! {Ref, {request, self(), Tag}},
            wake(Count - 1, Asks, Left#state{asked = true});
        _ ->
            _ = Ref ! {Ref, none},
            wake(Count - 1, Asks, Left)
    end.
