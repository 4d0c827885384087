%% @doc Calls of workers, in the process of the caller, and how many are under way in each slot.
%%
%% A call is a pick and a `gen_server:call/3' from the caller itself, so its exits are those of the call, unchanged.
%% With strategies that choose by load it is counted while it is under way; a call that is given up by its timeout is no
%% longer, even if the worker has yet to get to it. Casts are not counted: nobody hears when one is done.
%%
%% Counting takes four steps in the process that calls:
%%
%% ```
%%   1. enter its row {Pid, Base, Slot} into the calls table      (Base tells the pool)
%%   2. add one to the slot's calls word
%%      ... the call ...
%%   3. subtract one from the word
%%   4. delete its row
%% '''
%%
%% A process is in at most one call at a time, so its pid is the key. The call is wrapped in `try ... after': whatever
%% it raises, 3 and 4 are made. What is left is a caller that is killed: in the call, nearly always, with a row and a
%% count. The pool's manager polls the rows about once a second ({@link poll/2}) and monitors those callers that it
%% finds there; whoever deletes the row of a dead one subtracts one.
%%
%% A caller that is killed between 1 and 2, or between 3 and 4, has a row without a count, and the word is then one too
%% low. A word that is not 0, and the same at two polls in a row with no row of its slot at either, is therefore taken
%% back to 0, by addition, so that a call which begins at that moment is not lost. In a slot that is never without calls
%% for that long it stays one too low; its worker then gets one call more than others.
%%
%% Words do not move when a pool is resized, nor when a worker is replaced; the calls of a worker that dies end by their
%% exits. Rows are tied to the table of one run of the application. A call that is under way when the application is
%% stopped finds no table to leave, and one that finds none to enter is not counted.
%% @private
-module(weir_pool_call).

-export([call/3, call_within/4, call_key/4]).
-export([new_table/0, is_counted/1, calls/2]).
-export([new/0, poll/2, caller_down/3, forget/1]).

-export_type([callers/0]).

-include("weir_pool.hrl").

-define(TABLE, weir_pool_calls).

-record(callers, {
    monitors = #{} :: #{Caller :: pid() => Monitor :: reference()},
    %% Words that are not 0 though their slot has no row.
    doubtful = #{} :: #{weir_pool:slot() => integer()}
}).

-opaque callers() :: #callers{}.

%% @doc Calls the next worker.
-spec call(weir_pool:name(), Request :: term(), timeout()) ->
    {ok, Reply :: term()} | {error, no_pool | no_worker}.
call(Name, Request, Timeout) ->
    case weir_pool_terms:pool(Name) of
        #pool{} = Pool -> call_picked(weir_pool_pick:next_in(Pool), Pool, Request, Timeout, infinity);
        undefined -> {error, no_pool}
    end.

%% @doc Calls the next worker, unless it has so many calls under way.
-spec call_within(weir_pool:name(), Request :: term(), timeout(), Room :: pos_integer() | infinity) ->
    {ok, Reply :: term()} | {error, no_pool | no_worker | busy}.
call_within(Name, Request, Timeout, Room) ->
    case weir_pool_terms:pool(Name) of
        #pool{} = Pool -> call_picked(weir_pool_pick:next_in(Pool), Pool, Request, Timeout, Room);
        undefined -> {error, no_pool}
    end.

%% @doc Calls the worker of a key.
-spec call_key(weir_pool:name(), Key :: term(), Request :: term(), timeout()) ->
    {ok, Reply :: term()} | {error, no_pool | no_worker}.
call_key(Name, Key, Request, Timeout) ->
    case weir_pool_terms:pool(Name) of
        #pool{} = Pool -> call_picked(weir_pool_pick:key_in(Pool, Key), Pool, Request, Timeout, infinity);
        undefined -> {error, no_pool}
    end.

call_picked({ok, Slot, Pid}, Pool, Request, Timeout, Room) ->
    case is_counted(Pool) andalso enter(Pool, Slot, Room) of
        busy ->
            {error, busy};
        false ->
            {ok, gen_server:call(Pid, Request, Timeout)};
        Entry ->
            try
                {ok, gen_server:call(Pid, Request, Timeout)}
            after
                leave(Entry)
            end
    end;
call_picked({error, no_worker} = None, _Pool, _Request, _Timeout, _Room) ->
    None.

%% ---------------------------------------------------------------- counting, in the caller

%% @doc Makes the calls table; it belongs to the caller.
%% One that has it already keeps it: an upgrade runs the init/1 of a supervisor again.
-spec new_table() -> ok.
new_table() ->
    _ = ets:info(?TABLE, owner) =:= self() orelse
        ets:new(?TABLE, [named_table, public, set, {write_concurrency, true}]),
    ok.

%% @doc Whether calls of a pool are counted.
-spec is_counted(#pool{}) -> boolean().
is_counted(#pool{strategy = round_robin}) -> false;
is_counted(#pool{strategy = random}) -> false;
is_counted(#pool{strategy = hash}) -> false;
is_counted(#pool{strategy = direct}) -> false;
is_counted(#pool{}) -> true.

%% @doc The calls word of a slot: the calls under way in it. After a kill it may be wrong for some seconds, and below 0.
-spec calls(#pool{}, weir_pool:slot()) -> integer().
calls(Pool, Slot) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    atomics:get(Words, ?CALLS_WORD(First, Slot)).

add(Pool, Slot, N) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    atomics:add(Words, ?CALLS_WORD(First, Slot), N).

one_more(Pool, Slot) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    atomics:add_get(Words, ?CALLS_WORD(First, Slot), 1).

%% `infinity' is more than any number.
enter(#pool{base = Base, signals = Signals} = Pool, Slot, Room) ->
    case atomics:get(Signals, ?SIGNAL_MODE) of
        ?UNWATCHED -> weir_pool_manager:watch(Pool);
        _ -> ok
    end,
    try ets:insert(?TABLE, {self(), Base, Slot}) of
        true ->
            Entry = {Pool, Slot},
            case one_more(Pool, Slot) > Room of
                true -> ok = leave(Entry), busy;
                false -> Entry
            end
    catch
        error:badarg -> uncounted
    end.

leave({Pool, Slot}) ->
    ok = add(Pool, Slot, -1),
    try ets:delete(?TABLE, self()) of
        true -> ok
    catch
        error:badarg -> ok
    end;
leave(uncounted) ->
    ok.

%% ---------------------------------------------------------------- counting, in the manager

%% @doc The callers of a pool of which none is known.
-spec new() -> callers().
new() -> #callers{}.

%% @doc Polls the rows of a pool, so as to hear of callers that are killed, and takes words back to 0 that nobody
%% will. Gives how many calls are under way, or in doubt.
%%
%% Cost: goes over the calls table, which has a row for each call under way in any pool (5 ms for 10,000 calls of this
%% one), and reads a word of each slot. Nothing for a pool whose calls are not counted.
-spec poll(#pool{}, callers()) -> {non_neg_integer(), callers()}.
poll(#pool{base = Base, limit = Limit} = Pool, #callers{monitors = Monitors, doubtful = Doubtful} = Callers) ->
    case is_counted(Pool) of
        true ->
            Rows = maps:from_list(rows(Base)),
            _ = [demonitor(Monitor, [flush]) || Monitor <- maps:values(maps:without(maps:keys(Rows), Monitors))],
            Called = maps:from_keys(maps:values(Rows), called),
            NowDoubtful = maps:from_list([
                {Slot, Word}
             || Slot <- lists:seq(1, Limit), not is_map_key(Slot, Called), Word <- [calls(Pool, Slot)], Word =/= 0
            ]),
            _ = [
                add(Pool, Slot, -Word)
             || {Slot, Word} <- maps:to_list(NowDoubtful), maps:get(Slot, Doubtful, 0) =:= Word
            ],
            {
                map_size(Rows) + map_size(NowDoubtful),
                #callers{monitors = maps:map(fun(Pid, _) -> monitored(Pid, Monitors) end, Rows), doubtful = NowDoubtful}
            };
        false ->
            {0, Callers}
    end.

monitored(Caller, Monitors) ->
    case Monitors of
        #{Caller := Monitor} -> Monitor;
        #{} -> erlang:monitor(process, Caller, [{tag, caller_down}])
    end.

rows(Base) ->
    try
        ets:select(?TABLE, [{{'$1', Base, '$2'}, [], [{{'$1', '$2'}}]}])
    catch
        error:badarg -> []
    end.

%% @doc A caller is dead: its row goes, and its count. It may have begun another call before it was killed.
-spec caller_down(Caller :: pid(), #pool{}, callers()) -> callers().
caller_down(Caller, #pool{base = Base} = Pool, #callers{monitors = Monitors} = Callers) ->
    try ets:take(?TABLE, Caller) of
        [{Caller, Base, Slot}] -> add(Pool, Slot, -1);
        %% Another pool's manager is told too.
        [Another] -> true = ets:insert(?TABLE, Another);
        [] -> ok
    catch
        error:badarg -> ok
    end,
    Callers#callers{monitors = maps:remove(Caller, Monitors)}.

%% @doc Deletes the rows of a pool that is gone for good: killed callers leave some that no manager polls any more.
%%
%% Cost: goes over the calls table.
-spec forget(Base :: non_neg_integer()) -> ok.
forget(Base) ->
    try ets:match_delete(?TABLE, {'_', Base, '_'}) of
        true -> ok
    catch
        error:badarg -> ok
    end.
