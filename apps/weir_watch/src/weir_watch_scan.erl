%% @doc The process that goes over all processes of the node, a slice at a time, and reads the length of the mailbox,
%% the reductions and the state: half a microsecond for one that does not run, and no signal. One that runs answers at
%% the end of its turn, and one in native code when that comes back. So the process that is read is noted in the
%% dictionary, for the agent to find out for whom this process waits.
%%
%% The agent asks for a turn; the answer is one message. A turn reads a slice that takes some hundreds of
%% microseconds, reads the slice before it again, so that what each process did in between is known, and names some
%% processes chosen at random. The pids are weir_watch_pids', read anew after so long a time that reading them takes
%% a small share of a core, and at once when there are many more processes: those who wait for a server that has become
%% slow may all be new. The agent is linked to this process and starts another when it dies; nothing else knows
%% it.
%% @private
-module(weir_watch_scan).

-export([start_link/0, turn/2, reads/1, init/1, loop/2]).

-export_type([result/0, order/0]).

-define(SLICE_US, 250).
-define(BURST_US, 40_000).
%% Of the pids read anew, by share of a core.
-define(REFRESH_SHARE, 0.0015).
-define(REFRESH_MS, 1000).
%% How many processes are read between two looks at the clock.
-define(STEP, 64).
%% That there are so many more, and this part more, is a reason to read them anew, so often in a row.
-define(GROWN, 500).
-define(GROWN_SHARE, 200).
-define(MOST_SPARE, 3).
%% Reductions of one who runs both times.
-define(HARDLY_ANY, 1000).
-define(MOST_FOUND, 50).
-define(NAMES, 500).
%% So many registered processes are read in each turn.
-define(FEW_NAMES, 200).

-type order() :: #{
    long := pos_integer(),
    samples := non_neg_integer(),
    burst := boolean(),
    names := boolean(),
    skip := [pid()],
    bytes := pos_integer()
}.
%% `long': the mailboxes to be told of. `names': the registered processes too, which are read
%% in any turn where there are few. `skip': processes that do not answer.
%% `bytes': the memory that it may take; it ends with `{shutdown, {too_large, Bytes}}' before it takes more.
-type result() :: #{
    long := [{pid(), non_neg_integer()}],
    worked := [{pid(), non_neg_integer()}],
    stuck := [pid()],
    running := [pid()],
    samples := [pid()],
    processes := non_neg_integer(),
    burst := boolean(),
    bytes := non_neg_integer(),
    us := non_neg_integer()
}.
%% `long' mailboxes; `worked', reductions since the turn before; `stuck' ran both times with hardly a reduction in
%% between; `running', some that ran; `samples', processes at random; `burst', whether a burst goes on;
%% `bytes', its memory and that of the pids; `us', what it took.

-record(scan, {
    %% The process that has the pids, how many, and what it takes; none where it could not be started.
    pids = none :: pid() | none,
    size = 0 :: non_neg_integer(),
    pids_bytes = 0 :: non_neg_integer(),
    %% Those that it has dealt out and that are not read yet, and how many were.
    ahead = [] :: [pid()],
    done = 0 :: non_neg_integer(),
    %% When the pids are to be read again, in native time.
    refresh :: integer(),
    %% What the turn before has read.
    before = [] :: [{pid(), non_neg_integer(), atom()}],
    %% When they may be read because there are more, and how often yet.
    read :: integer(),
    spare = 1 :: non_neg_integer(),
    %% How many a burst has still to read.
    burst = 0 :: non_neg_integer(),
    %% How many registered processes there were.
    names = 0 :: non_neg_integer()
}).

%% @doc Starts it.
-spec start_link() -> pid().
start_link() -> spawn_opt(?MODULE, init, [self()], [link, {priority, high}]).

%% @doc Asks for a turn. The answer is `{scan, Scanner, Result}'; who asks twice before it is answered twice.
-spec turn(pid(), order()) -> ok.
turn(Scanner, Order) ->
    Scanner ! {turn, Order},
    ok.

%% @doc The process that it is reading, if it waits for that one. Waits itself, for as long as it takes the scanner to
%% answer.
-spec reads(pid()) -> pid() | undefined.
reads(Scanner) ->
    case process_info(Scanner, dictionary) of
        {dictionary, Entries} -> proplists:get_value(reads, Entries);
        undefined -> undefined
    end.

%% @private
-spec init(pid()) -> no_return().
init(Agent) ->
    Now = erlang:monotonic_time(),
    loop(Agent, #scan{refresh = Now, read = Now}).

%% @private Called by its full name, so that it comes into the code of another version.
-spec loop(pid(), #scan{}) -> no_return().
loop(Agent, Scan) ->
    receive
        {turn, Order} ->
            {Took, Ready} = refreshed(Scan, Order, erlang:monotonic_time()),
            Begin = erlang:monotonic_time(),
            {Result, Next} = take(Order, Begin, Ready),
            _ = erase(reads),
            Us = erlang:convert_time_unit(Took + erlang:monotonic_time() - Begin, native, microsecond),
            {total_heap_size, Words} = process_info(self(), total_heap_size),
            Bytes = Words * erlang:system_info(wordsize) + Next#scan.pids_bytes,
            Agent ! {scan, self(), Result#{us => Us, bytes => Bytes}},
            ?MODULE:loop(Agent, Next);
        _ ->
            ?MODULE:loop(Agent, Scan)
    end.

%% A burst reads the pids first, since what grows may be new; and so does who finds that there are many more now, if
%% that was not so just before. With the time that it took to read them: to wait for the end of who had them takes none.
refreshed(#scan{refresh = At, burst = Burst, read = Read} = Scan, #{burst := Asked, bytes := Most}, Now) ->
    if
        Asked, Burst =:= 0 ->
            {Took, Ready} = refresh(Scan, Scan#scan.spare, Most, Now),
            {Took, Ready#scan{burst = erlang:system_info(process_count)}};
        Now >= At -> refresh(Scan, min(?MOST_SPARE, Scan#scan.spare + 1), Most, Now);
        Scan#scan.spare > 0, Now >= Read ->
            case erlang:system_info(process_count) - Scan#scan.size >= grown(Scan) of
                true -> refresh(Scan, Scan#scan.spare - 1, Most, Now);
                false -> {0, Scan}
            end;
        true -> {0, Scan}
    end.

grown(#scan{size = Size}) -> max(?GROWN, Size div ?GROWN_SHARE).

%% Those before go first: both together might take too much.
refresh(#scan{pids = Pids, done = Done} = Scan, Spare, Most, Now) ->
    Number = erlang:system_info(process_count),
    Bytes = weir_watch_pids:bytes(Number),
    _ = Bytes =< Most orelse exit({shutdown, {too_large, Bytes}}),
    _ = Pids =:= none orelse weir_watch_pids:stop(Pids),
    Without = Scan#scan{pids = none, size = 0, pids_bytes = 0, ahead = [], before = []},
    try weir_watch_pids:start_link(Number, Done) of
        {Next, Size, Took, Taken} ->
            Second = erlang:convert_time_unit(?REFRESH_MS, millisecond, native),
            Wait = max(round(Took / ?REFRESH_SHARE), Second),
            {Took, Without#scan{
                pids = Next, size = Size, pids_bytes = Taken, done = Done rem Size,
                refresh = Now + Wait, read = Now + Second, spare = Spare
            }}
    catch
        %% The next turn tries again.
        error:system_limit -> {0, Without#scan{refresh = Now}}
    end.

take(Order, Begin, #scan{pids = Pids, size = Size, done = Done, burst = Burst} = Scan) ->
    #{long := Long, samples := Samples, names := Names, skip := Others} = Order,
    Skip = [Pids | Others],
    Us = if Burst > 0 -> ?BURST_US; true -> ?SLICE_US end,
    Deadline = Begin + erlang:convert_time_unit(Us, microsecond, native),
    {Worked, Stuck} = again([Seen || {Pid, _, _} = Seen <- Scan#scan.before, not lists:member(Pid, Skip)], [], []),
    %% What was read a moment ago counts as a part of this turn.
    %% Of those that a burst reads only some are of interest, and the others would be megabytes.
    Least = if Burst > 0 -> Long; true -> 0 end,
    {Slice, Ahead, Read} = slice(Scan#scan.ahead, Scan, Deadline, {Skip, Least}, [], 0),
    {Number, Named} = if Names; Scan#scan.names =< ?FEW_NAMES -> named(Skip); true -> {Scan#scan.names, []} end,
    Found = #{
        long => most([{Pid, Queue} || {Pid, Queue, _, _} <- Slice, Queue >= Long] ++ [Each || {_,
            Queue} = Each <- Named, Queue >= Long]),
        worked => most(Worked),
        stuck => lists:sublist(Stuck, ?MOST_FOUND),
        running => lists:sublist([Pid || {Pid, _, _, running} <- Slice, Pid =/= self()], 10),
        samples => samples(Pids, Samples) -- [self() | Skip],
        processes => Size,
        burst => Burst > Read
    },
    Before = if Burst > 0 -> []; true -> [{Pid, Reductions, State} || {Pid, _, Reductions, State} <- Slice] end,
    {Found, Scan#scan{
        ahead = Ahead, done = Done + Read, before = Before, burst = max(0, Burst - Read), names = Number
    }}.

%% Until the time is over or all have been read once. Read is a multiple of ?STEP, or the number of all. Told are
%% those with a mailbox of the least length, and those that run.
slice(Ahead, #scan{size = Size}, _Deadline, _Which, Acc, Size) ->
    {Acc, Ahead, Size};
slice([], #scan{pids = Pids} = Scan, Deadline, Which, Acc, Read) ->
    slice(weir_watch_pids:next(Pids), Scan, Deadline, Which, Acc, Read);
slice([Pid | More] = Ahead, Scan, Deadline, {Skip, Least} = Which, Acc, Read) ->
    case Read rem ?STEP =:= 0 andalso Read > 0 andalso erlang:monotonic_time() >= Deadline of
        true ->
            {Acc, Ahead, Read};
        false ->
            case read(Pid, Skip) of
                [{_, Queue}, {_, Reductions}, {_, State}] when Queue >= Least; State =:= running ->
                    slice(More, Scan, Deadline, Which, [{Pid, Queue, Reductions, State} | Acc], Read + 1);
                _ ->
                    slice(More, Scan, Deadline, Which, Acc, Read + 1)
            end
    end.

read(Pid, Skip) ->
    _ = put(reads, Pid),
    case lists:member(Pid, Skip) of
        false -> process_info(Pid, [message_queue_len, reductions, status]);
        true -> undefined
    end.

%% How many there are, and all of them, where there are not too many; else some, chosen at random.
named(Skip) ->
    Names = registered(),
    Number = length(Names),
    Some = max(1, Number div ?NAMES),
    {Number, [
        {Pid, Queue}
     || Name <- Names, Some =:= 1 orelse rand:uniform(Some) =:= 1, Pid <- [whereis(Name)], is_pid(Pid),
        [{_, Queue} | _] <- [read(Pid, Skip)]
    ]}.

again([{Pid, Before, State} | More], Worked, Stuck) ->
    _ = put(reads, Pid),
    case process_info(Pid, [reductions, status]) of
        [{_, Now}, {_, running}] when State =:= running, Now < Before + ?HARDLY_ANY, Pid =/= self() ->
            again(More, Worked, [Pid | Stuck]);
        [{_, Now}, _] when Now > Before -> again(More, [{Pid, Now - Before} | Worked], Stuck);
        _ -> again(More, Worked, Stuck)
    end;
again([], Worked, Stuck) ->
    {Worked, Stuck}.

most(Found) -> lists:sublist(lists:reverse(lists:keysort(2, Found)), ?MOST_FOUND).

samples(none, _Number) -> [];
samples(Pids, Number) -> weir_watch_pids:samples(Pids, Number).
