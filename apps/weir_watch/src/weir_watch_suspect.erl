%% @doc What is known of one suspect, and what follows from it. The agent keeps one for each process at which it looks,
%% and hands it what the looker, the tracer and the runtime tell. Once a second it asks for a description, which is what
%% users see, and for the facts, which the rules judge.
%%
%% Nothing here asks the process. Ticks are the agent's, ?SECOND in a second; other times are those of the monotonic
%% clock, in milliseconds.
%% @private
-module(weir_watch_suspect).

-export([new/3, looker/1, asked/1]).
-export([look_again/2, heard/2, known/2, looked/2, collected/2, notice/2, second/4, judged/3]).
-export([long/0, is_long/1, is_late/1, is_in_trouble/1, is_quiet/2, noticed/1, to_be_spared/1, waits_for/1]).
-export([questions/4, traced/1, traced/2, found/3, too_large/1]).
-export([describe/4, facts/2, counts/1]).

-export_type([suspect/0, suspects/0, waiters/0]).

%% As the agent counts them.
-define(SECOND, 5).
%% A mailbox that makes somebody a suspect.
-define(LONG, 200).
-define(LATE_MS, 1000).
%% Collections that are remembered, and for how long they count, at most and at least.
-define(MOST_COLLECTIONS, 300).
-define(COLLECTIONS_MS, 3000).
-define(LEAST_COLLECTIONS_MS, 1000).
%% Functions in which it was seen to wait that are remembered.
-define(MOST_WAITS, 50).
-define(LARGE_HEAP, 200_000_000).
%% What a message takes at least that waits, and may be a part of the heap.
-define(MESSAGE_BYTES, 100).
%% For how long it is not traced again, and what was found is told.
-define(TRACED_S, 10).
-define(FRESH_S, 60).
%% Messages in a mailbox from which on it is asked who sends.
-define(SENT_AT, 1000).

-record(suspect, {
    pid :: pid(),
    looker :: pid(),
    %% Whether that asks for what may be long.
    asked = all :: all | none,
    who = #{} :: map(),
    seen_since :: integer(),
    %% The tick at which it was last found to be in trouble or busy.
    noticed :: tick(),
    %% What its looker has told last, and when.
    status = none :: atom(),
    queue = 0 :: non_neg_integer(),
    reductions = 0 :: non_neg_integer(),
    heard :: integer(),
    %% At the beginning of this second.
    reductions0 = 0 :: non_neg_integer(),
    rate = 0 :: non_neg_integer(),
    %% Newest first, one a second.
    queues = [] :: [non_neg_integer()],
    %% The newest first.
    looks = [] :: [weir_watch_look:look()],
    %% At which tick it was traced last; what was found, and when; whether its messages are too large for that.
    traced = 0 :: tick(),
    found = {0, #{}} :: {tick(), weir_watch_trace:found()},
    too_large = false :: boolean(),
    %% Of a weir_server, which counts what it handles, but tells it after some messages only: what it told last, since
    %% when, if that is known, and how many a second that were.
    total = none :: none | {Since :: integer() | unknown, non_neg_integer()},
    handled = undefined :: non_neg_integer() | undefined,
    %% Functions of its own in which it was ever seen to wait.
    waits = [] :: [weir_watch:call()],
    waiters = {0, 0, []} :: waiters(),
    %% Collections, each with when it ended. The newest first.
    collections = [] :: [{integer(), non_neg_integer()}],
    %% What the rules said a second ago, and since when, in milliseconds of the system's clock.
    verdict = none :: none | weir_watch:cause(),
    since = 0 :: integer()
}).

-type tick() :: non_neg_integer().
-type waiters() :: {Estimate :: non_neg_integer(), Sustained :: non_neg_integer(), Some :: [pid()]}.
%% How many wait for it in calls; how many of those for as long as it takes to be in trouble.
-opaque suspect() :: #suspect{}.
-type suspects() :: #{pid() => suspect()}.

%% @doc A process that was noticed for the first time, at this tick.
-spec new(pid(), Looker :: pid(), tick()) -> suspect().
new(Pid, Looker, Tick) ->
    #suspect{pid = Pid, looker = Looker, noticed = Tick, seen_since = now_ms(), heard = now_ms()}.

-spec looker(suspect()) -> pid().
looker(#suspect{looker = Looker}) -> Looker.

%% @doc Whether its looker asks for what may be long.
-spec asked(suspect()) -> all | none.
asked(#suspect{asked = Asked}) -> Asked.

now_ms() -> erlang:monotonic_time(millisecond).

%% ---------------------------------------------------------------- what is told

%% @doc The suspect has another looker, which does not ask for what may be long: that has ended the one before.
-spec look_again(Looker :: pid(), suspect()) -> suspect().
look_again(Looker, Suspect) -> Suspect#suspect{looker = Looker, asked = none, heard = now_ms()}.

%% @doc The looker has heard of its suspect.
-spec heard({Status :: atom(), Queue :: non_neg_integer(), Reductions :: non_neg_integer()}, suspect()) -> suspect().
heard({Status, Queue, Reductions}, Suspect) ->
    Suspect#suspect{status = Status, queue = Queue, reductions = Reductions, heard = now_ms()}.

%% @doc The looker has found out who the suspect is.
-spec known(map(), suspect()) -> suspect().
known(Who, Suspect) -> Suspect#suspect{who = Who}.

%% @doc The looker has looked what the suspect does, some dozen times.
-spec looked(weir_watch_look:look(), suspect()) -> suspect().
looked(#{samples := Samples} = Look, #suspect{looks = Looks, waits = Waits} = Suspect) ->
    (handled(Look, Suspect))#suspect{
        looks = lists:sublist([Look | Looks], 4),
        waits = lists:sublist(lists:usort(weir_watch_causes:waits(Samples) ++ Waits), ?MOST_WAITS)
    }.

%% From one telling of a weir_server to the next. When the first one was is not known.
handled(#{handled := undefined}, Suspect) -> Suspect;
handled(#{handled := Total}, #suspect{total = none} = Suspect) -> Suspect#suspect{total = {unknown, Total}};
handled(#{handled := Total}, #suspect{total = {Since, Total}} = Suspect) ->
    case is_integer(Since) andalso now_ms() - Since > 1000 * ?FRESH_S of
        true -> Suspect#suspect{handled = undefined};
        false -> Suspect
    end;
handled(#{handled := Total}, #suspect{total = {unknown, _}} = Suspect) -> Suspect#suspect{total = {now_ms(), Total}};
handled(#{handled := Total}, #suspect{total = {Since, Before}} = Suspect) ->
    Now = now_ms(),
    Handled = round((Total - Before) * 1000 / max(1, Now - Since)),
    Suspect#suspect{total = {Now, Total}, handled = max(0, Handled)}.

%% @doc A collection of so many milliseconds has ended.
-spec collected(Ms :: non_neg_integer(), suspect()) -> suspect().
collected(Ms, #suspect{collections = Collections} = Suspect) ->
    Suspect#suspect{collections = lists:sublist([{now_ms(), Ms} | Collections], ?MOST_COLLECTIONS)}.

%% @doc The agent has found the suspect in trouble or busy, at this tick.
-spec notice(tick(), suspect()) -> suspect().
notice(Tick, Suspect) -> Suspect#suspect{noticed = Tick}.

%% @doc A second has ended, which took so many milliseconds.
-spec second(Ms :: pos_integer(), waiters(), tick(), suspect()) -> suspect().
second(Ms, {_, Sustained, _} = Waiters, Tick, Suspect) ->
    #suspect{reductions = Reductions, reductions0 = Before, queue = Queue, queues = Queues, looks = Looks} = Suspect,
    Noticed =
        case Queue >= ?LONG orelse Sustained > 0 orelse silent(Suspect) > 0 orelse kept(Looks) > 0.0 of
            true -> Tick;
            false -> Suspect#suspect.noticed
        end,
    Suspect#suspect{
        rate = case Before of 0 -> 0; _ -> max(0, Reductions - Before) * 1000 div Ms end,
        reductions0 = Reductions,
        %% What it has drained is known with the first look.
        queues = [Queue + drained(Suspect) || Looks =/= []] ++ lists:sublist(Queues, 59),
        waiters = Waiters, noticed = Noticed
    }.

%% @doc The rules say this of the suspect. If they said something a second ago, too, it is told, with since when they
%% do.
-spec judged(none | {weir_watch:cause(), term()}, tick(), suspect()) -> {{since, integer()} | untold, suspect()}.
judged(none, _Tick, Suspect) ->
    {untold, Suspect#suspect{verdict = none}};
judged({Cause, _}, Tick, #suspect{verdict = none} = Suspect) ->
    {untold, Suspect#suspect{verdict = Cause, since = erlang:system_time(millisecond), noticed = Tick}};
judged({Cause, _}, Tick, #suspect{since = Since} = Suspect) ->
    {{since, Since}, Suspect#suspect{verdict = Cause, noticed = Tick}}.

%% ---------------------------------------------------------------- what the agent decides by

%% @doc How many messages make a mailbox long.
-spec long() -> pos_integer().
long() -> ?LONG.

-spec is_long(suspect()) -> boolean().
is_long(#suspect{queue = Queue}) -> Queue >= ?LONG.

%% @doc The suspect has not answered its looker for a second.
-spec is_late(suspect()) -> boolean().
is_late(#suspect{heard = Heard}) -> now_ms() - Heard >= ?LATE_MS.

-spec is_in_trouble(suspect()) -> boolean().
is_in_trouble(#suspect{waiters = {_, Sustained, _}} = Suspect) -> is_long(Suspect) orelse Sustained > 0.

%% @doc No rule holds for the suspect, and it was not noticed from this tick on.
-spec is_quiet(tick(), suspect()) -> boolean().
is_quiet(Tick, #suspect{noticed = Noticed, verdict = Verdict}) -> Verdict =:= none andalso Noticed < Tick.

-spec noticed(suspect()) -> tick().
noticed(#suspect{noticed = Noticed}) -> Noticed.

%% @doc A process of Weir's that is asked nothing meanwhile, since it is in trouble or silent. One that only works hard,
%% as a log's writer may all day, is asked.
-spec to_be_spared(suspect()) -> boolean().
to_be_spared(#suspect{verdict = Verdict} = Suspect) -> Verdict =/= none orelse is_late(Suspect).

%% @doc The process of this node for whose answer the suspect waits most of the time.
-spec waits_for(suspect()) -> [pid()].
waits_for(#suspect{looks = [#{callee := Callee, samples := Samples} | _]}) when node(Callee) =:= node() ->
    InCall = [call || {waiting, [Function | _]} <- Samples, weir_watch_ask:is_call(Function)],
    case length(InCall) * 2 >= length(Samples) of
        true -> [Callee];
        false -> []
    end;
waits_for(_) ->
    [].

%% Those for whom it waits, until there is none, or one for the second time.
chain(Pid, Suspects, Seen) ->
    Next = case Suspects of #{Pid := Suspect} when length(Seen) < 10 -> waits_for(Suspect); #{} -> [] end,
    case Next -- [Pid | Seen] of
        [New] -> [New | chain(New, Suspects, [Pid | Seen])];
        [] -> Next
    end.

%% ---------------------------------------------------------------- tracing

%% @doc What the tracer is to be asked about one that is so described: one in trouble, or at whom somebody looks
%% (`IsPinned'). Nothing of one that was traced some seconds ago.
-spec questions(tick(), IsPinned :: boolean(), weir_watch:suspect(), suspect()) -> [weir_watch_trace:question()].
questions(Tick, IsPinned, Description, #suspect{traced = Traced, verdict = Verdict} = Suspect) when
    Traced =:= 0 orelse Traced =< Tick - ?TRACED_S * ?SECOND, Verdict =/= none orelse IsPinned
->
    #{pid := Pid, name := Name, queue := Queue} = Description,
    #suspect{total = Total, too_large = TooLarge} = Suspect,
    Functions = functions(Description),
    [{handled, Functions} || Total =:= none, Functions =/= []] ++
        [{sent, names(Pid, Name)} || Queue >= ?SENT_AT, not TooLarge] ++
        [tables || Verdict =:= ets_lock, not TooLarge];
questions(_Tick, _IsPinned, _Description, _Suspect) ->
    [].

names(Pid, undefined) -> [Pid];
names(Pid, Name) -> [Pid, Name, {Name, node()}].

functions(#{module := undefined}) -> [];
functions(#{module := Module, behaviour := Behaviour}) ->
    [{Module, Function, Arity} || {Function, Arity} <- weir_watch_trace:callbacks(Behaviour)].

%% @doc When it was traced last; 0 of one that never was.
-spec traced(suspect()) -> tick().
traced(#suspect{traced = Traced}) -> Traced.

%% @doc The tracer is asked about it now.
-spec traced(tick(), suspect()) -> suspect().
traced(Tick, Suspect) -> Suspect#suspect{traced = Tick}.

%% @doc What the tracer has found.
-spec found(tick(), weir_watch_trace:found(), suspect()) -> suspect().
found(_Tick, Found, Suspect) when map_size(Found) =:= 0 -> Suspect;
found(Tick, Found, Suspect) -> Suspect#suspect{found = {Tick, Found}}.

%% @doc Its messages are too large to be traced.
-spec too_large(suspect()) -> suspect().
too_large(Suspect) -> Suspect#suspect{too_large = true}.

%% ---------------------------------------------------------------- what users see

%% @doc All that is told of it. The last seconds took so many milliseconds each, the newest first.
-spec describe(suspect(), suspects(), Lasted :: [pos_integer()], tick()) -> weir_watch:suspect().
describe(#suspect{pid = Pid, looks = Looks, queues = Queues, queue = Queue} = Suspect, Suspects, Lasted, Tick) ->
    #suspect{who = Who, rate = Rate, waiters = {Waiters, _, Waiting}, seen_since = SeenSince, since = Since,
        verdict = Verdict} = Suspect,
    Samples = samples(Looks, 4),
    Newest = newest(Looks),
    Growth = growth(Queues, Lasted),
    Found = fresh(Suspect, Tick),
    Handled =
        case Suspect#suspect.total of
            none -> maps:get(handled, Found, undefined);
            _ -> Suspect#suspect.handled
        end,
    Sent = maps:get(sent, Found, []),
    %% Of a long mailbox, what was seen to be sent.
    Messages = case maps:get(messages, Newest, []) of [] -> [Kind || {_, _, Kind} <- Sent]; Kinds -> Kinds end,
    #{
        pid => Pid,
        name => maps:get(name, Who, undefined),
        label => maps:get(label, Who, undefined),
        module => maps:get(module, Who, undefined),
        behaviour => behaviour(Samples),
        application => maps:get(application, Who, undefined),
        ancestors => maps:get(ancestors, Who, []),
        supervisor => case Who of #{ancestors := [Parent | _]} -> Parent; #{} -> undefined end,
        since => if Verdict =:= none -> SeenSince + erlang:time_offset(millisecond); true -> Since end,
        queue => Queue,
        queues => lists:reverse(Queues),
        drained => drained(Suspect),
        growth => Growth,
        until_million => until_million(Queue + drained(Suspect), Growth),
        handled => Handled,
        arriving => arriving(Handled, Growth),
        reductions => Rate,
        core => core(Samples),
        heap => maps:get(heap, Newest, 0),
        doing => shares([Function || {_, [Function | _]} <- Samples]),
        states => maps:from_list(shares([Status || {Status, _} <- Samples])),
        messages => shares(Messages),
        sent_by => shares([Function || {_, Function, _} <- Sent, Function =/= undefined]),
        senders => lists:usort([Sender || {Sender, _, _} <- Sent]),
        tables => shares(maps:get(tables, Found, [])),
        waiters => Waiters,
        waiting => Waiting,
        waits_for => case waits_for(Suspect) of [Callee] -> Callee; [] -> undefined end,
        chain => chain(Pid, Suspects, []),
        answers => silent(Suspect) =:= 0
    }.

newest([Look | _]) -> Look;
newest([]) -> #{}.

fresh(#suspect{found = {At, Found}}, Tick) ->
    case Tick - At =< ?FRESH_S * ?SECOND of
        true -> Found;
        false -> #{}
    end.

%% What it handles, and by how much more comes.
arriving(undefined, _Growth) -> undefined;
arriving(Handled, Growth) -> max(0, Handled + Growth).

until_million(Waiting, Growth) when Growth > 0, Waiting < 1_000_000 -> (1_000_000 - Waiting) div Growth;
until_million(_Waiting, _Growth) -> infinity.

%% What a weir_server has taken out of its mailbox and not handled.
drained(#suspect{looks = [#{drained := Drained} | _]}) -> Drained;
drained(#suspect{}) -> 0.

%% In a second, over the last five at most.
growth(Queues, Lasted) ->
    case lists:sublist(Queues, 6) of
        [Now, _ | _] = Last ->
            (Now - lists:last(Last)) * 1000 div lists:sum(lists:sublist(Lasted, length(Last) - 1));
        _ -> 0
    end.

core([]) -> 0.0;
core(Samples) -> length([1 || {State, _} <- Samples, lists:member(State, [running, runnable,
    garbage_collecting])]) / length(Samples).

%% The most frequent ten, with their shares.
shares(Things) ->
    [{Thing, N / length(Things)} || {Thing, N} <- lists:sublist(counts(Things), 10)].

%% @doc How many there are of each, the most frequent first.
-spec counts([Thing]) -> [{Thing, pos_integer()}].
counts(Things) ->
    Counts = lists:foldl(fun(Thing, Acc) -> maps:update_with(Thing, fun(N) -> N + 1 end, 1, Acc) end, #{}, Things),
    lists:reverse(lists:keysort(2, maps:to_list(Counts))).

behaviour(Samples) ->
    Known = [Module || {_, Stack} <- lists:sublist(Samples, 3), {Module, _, _} <- Stack, is_behaviour(Module)],
    case Known of
        [weir_server_loop | _] -> weir_server;
        [Module | _] -> Module;
        [] -> process
    end.

is_behaviour(Module) -> lists:member(Module, [gen_server, gen_statem, gen_event, weir_server_loop, gen_batch_server,
    gen_server2]).

%% ---------------------------------------------------------------- what the rules judge

%% @doc What the rules are to know of one that is so described. The agent adds what it knows of others and the node.
-spec facts(suspect(), weir_watch:suspect()) -> map().
facts(#suspect{looks = Looks, queues = Queues, waiters = {_, Sustained, _}} = Suspect, Description) ->
    #{pid := Pid, queue := Queue, drained := Drained, chain := Chain} = Description,
    Newest = newest(Looks),
    Shares = fun(Samples) -> weir_watch_causes:shares(Samples, Suspect#suspect.waits, Queue + Drained) end,
    Lately = samples(Looks, 4),
    #{
        suspect => Description,
        shares => Shares(samples(Looks, 2)),
        lately_in_ets => {maps:get(ets, Shares(Lately), 0.0), length(Lately)},
        queue => case lists:sublist(Queues, 3) of [_, _ | _] = Last -> lists:min(Last); _ -> 0 end,
        waiters => Sustained,
        %% Who waits in front of a cycle is not in it.
        cycle => lists:suffix([Pid], Chain) andalso length(Looks) >= 2,
        inherited => false,
        distribution => lists:any(fun(#{distribution := Busy}) -> Busy end, Looks),
        ports => maps:get(ports, Newest, []),
        monitors => maps:get(monitors, Newest, []),
        collecting => collecting(Suspect),
        kept => kept(Looks),
        silent => silent(Suspect),
        turns => turns()
    }.

%% For how many milliseconds it has not answered, having run when it last did. One that never answered may wait behind
%% another that runs. A large heap may keep the runtime that long with a collection; nor can one answer who waits for
%% his turn, behind others.
silent(#suspect{heard = Heard, status = running, looks = Looks, queue = Queue}) ->
    Large = case Looks of [#{heap := Heap} | _] -> Heap + ?MESSAGE_BYTES * Queue > ?LARGE_HEAP; [] -> false end,
    case now_ms() - Heard of
        Late when Late >= ?LATE_MS, not Large ->
            case Late >= ?LATE_MS * (1 + 2 * turns()) of
                true -> Late;
                false -> 0
            end;
        _ ->
            0
    end;
silent(#suspect{}) ->
    0.

%% How many wait for each scheduler.
turns() -> erlang:statistics(total_run_queue_lengths) div erlang:system_info(schedulers_online).

%% The share of the last seconds, or of those since it has been a suspect.
collecting(#suspect{collections = Collections, seen_since = Since}) ->
    Now = now_ms(),
    Noted = max(?LEAST_COLLECTIONS_MS, min(?COLLECTIONS_MS, Now - Since)),
    lists:sum([Ms || {At, Ms} <- Collections, At > Now - Noted]) / Noted.

kept([#{kept := A}, #{kept := B} | _]) -> (A + B) / 2;
kept(_) -> 0.0.

samples(Looks, N) -> lists:append([Samples || #{samples := Samples} <- lists:sublist(Looks, N)]).
