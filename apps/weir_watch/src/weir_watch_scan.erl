%% @doc The process that goes over all processes of the node, a slice at a time, reading only what can be read from
%% outside: the length of the mailbox, the reductions and the state. That sends no signal to anybody and waits for
%% nobody.
%%
%% The agent asks for a turn; the answer is one message. A turn reads a slice that takes some hundreds of
%% microseconds, reads the slice before it again, so that what each process did in between is known, and names some
%% processes chosen at random. The pids are a tuple, 8 bytes each, made anew after so long a time that making it takes
%% a small share of a core. The agent is linked to this process and starts another when it dies; nothing else knows
%% it.
%% @private
-module(weir_watch_scan).

-export([start_link/0, turn/2, init/1]).

-export_type([result/0, order/0]).

-define(SLICE_US, 450).
-define(BURST_US, 15_000).
%% Of the pids read anew, by share of a core.
-define(REFRESH_SHARE, 0.0025).
-define(REFRESH_MS, 1000).
%% Of a slice, at first and at least; how many processes are read between two looks at the clock.
-define(STEP, 64).
-define(LONG, 200).
-define(MOST_FOUND, 50).

-type order() :: #{samples := non_neg_integer(), burst := boolean()}.
-type result() :: #{
    long := [{pid(), non_neg_integer()}],
    worked := [{pid(), non_neg_integer()}],
    stuck := [pid()],
    running := [pid()],
    samples := [pid()],
    processes := non_neg_integer(),
    burst := boolean(),
    us := non_neg_integer()
}.
%% `long' mailboxes; `worked', reductions since the turn before; `stuck' ran both times without a reduction in
%% between; `running', some that ran; `samples', processes at random that wait; `burst', whether a burst goes on;
%% `us', what it took.

-record(scan, {
    pids = {} :: tuple(),
    %% The next to be read.
    next = 1 :: pos_integer(),
    %% When the pids are to be read again, in native time.
    refresh :: integer(),
    %% What the turn before has read.
    before = [] :: [{pid(), non_neg_integer(), atom()}],
    %% Where a burst ends.
    burst = 0 :: non_neg_integer()
}).

%% @doc Starts it.
-spec start_link() -> pid().
start_link() -> spawn_opt(?MODULE, init, [self()], [link, {priority, high}]).

%% @doc Asks for a turn. The answer is `{scan, Scanner, Result}'; who asks twice before it is answered twice.
-spec turn(pid(), order()) -> ok.
turn(Scanner, Order) ->
    Scanner ! {turn, Order},
    ok.

%% @private
-spec init(pid()) -> no_return().
init(Agent) -> loop(Agent, #scan{refresh = erlang:monotonic_time()}).

loop(Agent, Scan) ->
    receive
        {turn, Order} ->
            Begin = erlang:monotonic_time(),
            {Result, Next} = take(Order, Begin, refreshed(Scan, Order, Begin)),
            Us = erlang:convert_time_unit(erlang:monotonic_time() - Begin, native, microsecond),
            Agent ! {scan, self(), Result#{us => Us}},
            loop(Agent, Next);
        _ ->
            loop(Agent, Scan)
    end.

%% A burst reads the pids first, since what grows may be new.
refreshed(#scan{refresh = At, burst = Burst} = Scan, #{burst := Asked}, Now) when Now >= At; Asked, Burst =:= 0 ->
    Pids = list_to_tuple(erlang:processes()),
    true = tuple_size(Pids) < 50_000 orelse erlang:garbage_collect(),
    Took = erlang:monotonic_time() - Now,
    Wait = max(round(Took / ?REFRESH_SHARE), erlang:convert_time_unit(?REFRESH_MS, millisecond, native)),
    Left = if Asked, Burst =:= 0 -> tuple_size(Pids); true -> min(Burst, tuple_size(Pids)) end,
    Next = if Scan#scan.next > tuple_size(Pids) -> 1; true -> Scan#scan.next end,
    Scan#scan{pids = Pids, next = Next, refresh = Now + Wait, burst = Left};
refreshed(Scan, _Order, _Now) ->
    Scan.

take(#{samples := Samples}, Begin, #scan{pids = Pids, burst = Burst} = Scan) ->
    Size = tuple_size(Pids),
    Us = if Burst > 0 -> ?BURST_US; true -> ?SLICE_US end,
    Deadline = Begin + erlang:convert_time_unit(Us, microsecond, native),
    {Worked, Stuck} = again(Scan#scan.before, [], []),
    %% What was read a moment ago counts as a part of this turn, a new list of pids does not.
    {Slice, Next, Read} = slice(Pids, Scan#scan.next, Size, max(Deadline, erlang:monotonic_time()), [], 0),
    Found = #{
        long => most([{Pid, Queue} || {Pid, Queue, _, _} <- Slice, Queue >= ?LONG]),
        worked => most(Worked),
        stuck => lists:sublist(Stuck, ?MOST_FOUND),
        running => lists:sublist([Pid || {Pid, _, _, running} <- Slice, Pid =/= self()], 10),
        samples => samples(Pids, Size, Samples),
        processes => Size,
        burst => Burst > Read
    },
    Before = if Burst > 0 -> []; true -> [{Pid, Reductions, State} || {Pid, _, Reductions, State} <- Slice] end,
    {Found, Scan#scan{next = Next, before = Before, burst = max(0, Burst - Read)}}.

%% Until the time is over or all have been read once. Read is a multiple of ?STEP, or Size.
slice(_Pids, Next, Size, _Deadline, Acc, Size) ->
    {Acc, Next, Size};
slice(Pids, Next, Size, Deadline, Acc, Read) ->
    case Read rem ?STEP =:= 0 andalso Read > 0 andalso erlang:monotonic_time() >= Deadline of
        true ->
            {Acc, Next, Read};
        false ->
            Pid = element(Next, Pids),
            After = if Next =:= Size -> 1; true -> Next + 1 end,
            case process_info(Pid, [message_queue_len, reductions, status]) of
                [{_, Queue}, {_, Reductions}, {_, State}] ->
                    slice(Pids, After, Size, Deadline, [{Pid, Queue, Reductions, State} | Acc], Read + 1);
                undefined ->
                    slice(Pids, After, Size, Deadline, Acc, Read + 1)
            end
    end.

again([{Pid, Before, State} | More], Worked, Stuck) ->
    case process_info(Pid, [reductions, status]) of
        [{_, Before}, {_, running}] when State =:= running, Pid =/= self() -> again(More, Worked, [Pid | Stuck]);
        [{_, Before}, _] -> again(More, Worked, Stuck);
        [{_, Now}, _] -> again(More, [{Pid, Now - Before} | Worked], Stuck);
        undefined -> again(More, Worked, Stuck)
    end;
again([], Worked, Stuck) ->
    {Worked, Stuck}.

most(Found) -> lists:sublist(lists:reverse(lists:keysort(2, Found)), ?MOST_FOUND).

%% Of those that wait. Where there are not many, each of them once.
samples(Pids, Size, Number) when Size =< Number -> [Pid || Pid <- tuple_to_list(Pids), waits(Pid)];
samples(Pids, Size, Number) ->
    [Pid || _ <- lists:seq(1, Number), Pid <- [element(rand:uniform(Size), Pids)], waits(Pid)].

waits(Pid) -> process_info(Pid, status) =:= {status, waiting}.
