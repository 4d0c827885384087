%% @doc Keeps the limits: writes and deletes their rows, starts their queues, and mends their counts.
%%
%% weir_flow_sup owns the table, so a crash of this process loses no limit. The next process monitors all receivers and
%% queues of the table, and finds at once the ones that have died meanwhile.
%%
%% The first sender that waits for a limit asks for a queue, which weir_flow_queues_sup starts. If the node has no room
%% for a process, senders ask again, until their time is over.
%%
%% If a sender is killed after it has taken a credit and before it has sent the message, the count stays one too high.
%% Every second, weir_flow_limits therefore samples each count that is not zero:
%%
%% ```
%%            a credit was taken since the last sample, or nothing is in flight
%%      +-----------------------------------------------------------------------------+
%%      v                                                                             |
%%    moving --- no credit was taken: ask ---> {asked, 1} --- answered, still none: ask again ---> {asked, 2}
%%      ^                                                                                               |
%%      +---------- takes off the credits that are left <------ answered, still none, not suspended ----+
%% '''
%%
%% A process of its own asks, and checks whether the receiver is suspended, because a receiver in a long NIF delays that
%% check.
%%
%% The first answer comes when the receiver has taken all earlier messages out of its mailbox. The second answer comes
%% when the receiver has also ended the turn in which it took these messages, and has given back their credits. The
%% remaining credits belong to messages that were not sent. A compare-and-exchange takes the credits off, and fails if a
%% credit was taken or given back meanwhile.
%%
%% Lost credits are back after about four seconds in which no message is sent to that receiver under the limit. Under
%% traffic without a pause they stay lost. When all credits are lost, no sender can take one, so the traffic pauses.
%%
%% The count becomes too low if a sender stands still for seconds between the take and the send. The count also becomes
%% too low if the receiver is suspended and resumed between a request and the check. The limit then lets more messages
%% in, at most by the number in flight, until the next pause in the traffic.
%% @private
-module(weir_flow_limits).

-behaviour(gen_server).

-export([start_link/0, limit/2, queue/2, sample/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export([ask/1, await/2]).

-include("weir_flow.hrl").

-record(state, {
    monitors = #{} :: #{pid() => reference()},
    %% Receivers whose count does not change, and the processes that ask these receivers. `answered': the next sample
    %% decides.
    asked = #{} :: #{pid() => {1..2, {pid(), Monitor :: reference()} | answered}}
}).

-define(SAMPLE_MS, 1000).

%% @private
-spec start_link() -> {ok, pid()} | ignore | {error, term()}.
start_link() -> weir_flow_start:start(fun() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []) end).

%% @doc Gives a process of this node a limit. Cost: a call to this process.
-spec limit(pid(), weir_flow_limit:max()) -> ok | {error, {not_started, weir_flow}}.
limit(Pid, Max) ->
    case call({limit, Pid, Max}, infinity) of
        ok -> ok;
        down -> {error, ?NOT_STARTED}
    end.

%% @doc Returns the queue of a process with a limit, and starts the queue if there is none. If the queue cannot be
%% started within the time, in milliseconds, returns `no_queue'. Cost: a look-up, and a call to this process when there
%% is no queue.
-spec queue(pid(), timeout()) -> {ok, pid()} | no_queue | no_limit | {not_started, weir_flow}.
queue(To, Timeout) ->
    case weir_flow_limit:row(To) of
        {_, _, _, Queue} ->
            case is_pid(Queue) andalso is_process_alive(Queue) of
                true ->
                    {ok, Queue};
                false ->
                    case call({queue, To, Queue}, Timeout) of
                        down -> no_queue;
                        Answer -> Answer
                    end
            end;
        Reason ->
            Reason
    end.

%% Calls weir_flow_limits. If the application does not run, weir_flow_limits is being restarted, or the time is over,
%% returns `down'.
call(Request, Timeout) ->
    try
        gen_server:call(?MODULE, Request, Timeout)
    catch
        exit:_ -> down
    end.

%% @private Samples all counts now. For tests.
-spec sample() -> ok.
sample() -> gen_server:call(?MODULE, sample, infinity).

%% @private
-spec init([]) -> {ok, #state{}}.
init([]) ->
    Rows = weir_flow_limit:rows(),
    ok = sample_later(),
    _ = [monitor_queue(Pid, Queue) || {Pid, _Words, _Max, Queue} <- Rows, is_pid(Queue)],
    {ok, lists:foldl(fun monitor_once/2, #state{}, [Pid || {Pid, _Words, _Max, _Queue} <- Rows])}.

%% @private
-spec handle_call(Request, gen_server:from(), #state{}) -> {reply, term(), #state{}} when
    Request :: {limit, pid(), weir_flow_limit:max()} | {queue, pid(), Dead :: pid() | none} | sample.
handle_call({limit, Pid, Max}, _From, State) ->
    %% The row comes first, so that the 'DOWN' of a dead process finds the row and deletes it.
    ok = weir_flow_limit:insert(Pid, Max),
    {reply, ok, monitor_once(Pid, State)};
handle_call({queue, Pid, Dead}, _From, State) ->
    {reply, started(Dead, weir_flow_limit:row(Pid)), State};
handle_call(sample, _From, State) ->
    {reply, ok, sample(State)}.

%% A sender has found that the queue is dead, or that there is none. If several senders ask, the first of them starts
%% the queue. This process does not ask the runtime whether a queue lives, because the answer may wait for that queue.
started(Dead, {Pid, Words, _Max, Dead}) -> start_queue(Pid, Words);
started(_Dead, {_Pid, _Words, _Max, Queue}) -> {ok, Queue};
started(_Dead, Reason) -> Reason.

start_queue(Pid, Words) ->
    case weir_flow_queues_sup:start_queue(Pid, Words) of
        {ok, Queue} ->
            ok = weir_flow_limit:set_queue(Pid, Queue),
            _ = monitor_queue(Pid, Queue),
            {ok, Queue};
        {error, _Reason} ->
            no_queue
    end.

monitor_queue(Pid, Queue) -> monitor(process, Queue, [{tag, {queue, Pid}}]).

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Unknown, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(sample, State) ->
    ok = sample_later(),
    {noreply, sample(State)};
handle_info({{asked, Pid}, Monitor, process, _Asker, Status}, #state{asked = Asked} = State) ->
    case Asked of
        #{Pid := {Times, {_, Monitor}}} when Status =:= running ->
            {noreply, State#state{asked = Asked#{Pid := {Times, answered}}}};
        %% A suspended receiver has answered without handling its messages.
        #{Pid := {_, {_, Monitor}}} ->
            {noreply, State#state{asked = maps:remove(Pid, Asked)}};
        #{} ->
            {noreply, State}
    end;
handle_info({{queue, Pid}, _Monitor, process, Queue, _Reason}, State) ->
    case weir_flow_limit:row(Pid) of
        %% Senders with `limit => busy' would otherwise be refused until the next sender waits.
        {_, Words, _, Queue} -> ok = weir_flow_limit:set_ahead(Words, 0, 0);
        _AnotherOrNone -> ok
    end,
    {noreply, State};
handle_info({'DOWN', _Ref, process, Pid, _Reason}, #state{monitors = Monitors, asked = Asked} = State) ->
    ok = weir_flow_limit:delete(Pid),
    {noreply, State#state{monitors = maps:remove(Pid, Monitors), asked = maps:remove(Pid, Asked)}};
handle_info(_Unknown, State) ->
    {noreply, State}.

monitor_once(Pid, #state{monitors = Monitors} = State) when is_map_key(Pid, Monitors) -> State;
monitor_once(Pid, #state{monitors = Monitors} = State) ->
    State#state{monitors = Monitors#{Pid => monitor(process, Pid)}}.

sample_later() ->
    _ = erlang:send_after(?SAMPLE_MS, self(), sample),
    ok.

sample(#state{asked = Asked} = State) ->
    Sampled = [{Pid, Next} || {Pid, Words, _, _} <- weir_flow_limit:rows(), Next <- sample(Pid, Words, Asked)],
    State#state{asked = maps:from_list(Sampled)}.

%% Returns the entry of the receiver in `asked', none or one.
sample(Pid, Words, Asked) ->
    Before = maps:get(Pid, Asked, none),
    case weir_flow_limit:sample(Words) of
        {in_flight, InFlight} when InFlight =/= 0 ->
            quiet(Before, Pid, Words, InFlight);
        _MovesOrNone ->
            ok = stop(Before),
            []
    end.

quiet(none, Pid, _Words, _InFlight) ->
    [{1, Asker} || Asker <- start_asking(Pid)];
quiet({1, answered} = Before, Pid, _Words, _InFlight) ->
    case start_asking(Pid) of
        [Asker] -> [{2, Asker}];
        [] -> [Before]
    end;
quiet({2, answered}, _Pid, Words, InFlight) ->
    _ = weir_flow_limit:take_off(Words, InFlight),
    [];
quiet(Asking, _Pid, _Words, _InFlight) ->
    [Asking].

%% Starts a process that asks. If the node has no room for a process, returns `[]', and the next sample tries again. No
%% report is needed, because lost credits are only mended later.
start_asking(Pid) ->
    try
        [spawn_opt(?MODULE, ask, [Pid], [{monitor, [{tag, {asked, Pid}}]}])]
    catch
        error:system_limit -> []
    end.

stop({_Times, {Asker, Monitor}}) ->
    true = demonitor(Monitor, [flush]),
    true = exit(Asker, kill),
    ok;
stop(_NoneOrAnswered) ->
    ok.

%% @private Asks a receiver. Ends with the state of the receiver after its answer.
-spec ask(pid()) -> no_return().
ask(Pid) ->
    _ = monitor(process, Pid),
    Tag = make_ref(),
    ok = weir_flow_ack:request(Pid, {self(), Tag}),
    await(Pid, Tag).

%% @private Waits for the answer. Continues in the newest version of this module each second.
-spec await(pid(), Tag :: reference()) -> no_return().
await(Pid, Tag) ->
    receive
        {Tag, _Statistics} -> exit(weir_flow_ack:status(Pid));
        {'DOWN', _, process, Pid, _} -> exit(noproc)
    after ?SAMPLE_MS ->
        _ = weir_flow_ack:is_lost(Pid, ?SAMPLE_MS) andalso weir_flow_ack:request(Pid, {self(), Tag}),
        ?MODULE:await(Pid, Tag)
    end.
