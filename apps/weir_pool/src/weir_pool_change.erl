%% @doc Changes of a whole pool: another size, and its end in good order.
%%
%% Not a process: the keeper holds the value of the change that is under way and calls these functions. Whoever asked
%% for the change is answered from here, once.
%%
%% A resize to more slots, unless the pool starts its workers asynchronously, first starts the workers of the new slots,
%% puts them in, and then publishes the new shape: nobody sees a new slot without its worker. (The registry is told of
%% the highest slot before, so that no slot's term can be left over.) A resize to fewer publishes first: nobody picks or
%% claims a slot any more by the time that it is taken out of use.
-module(weir_pool_change).

-export([publish/2, resize/4, started/4, drain/3, drained/2, drain_timeout/1, cancel/2]).

-export_type([change/0]).

-include("weir_pool.hrl").

-record(resize, {
    from :: gen_server:from(),
    size :: weir_pool:size(),
    %% New slots whose start has not ended, those that have, and the first that failed.
    starting :: [weir_pool:slot()],
    started = [] :: [{weir_pool:slot(), SlotSup :: pid()}],
    failed = none :: none | {start_failed, weir_pool:slot(), Reason :: term()}
}).

-record(drain, {
    %% none: has been answered.
    from :: gen_server:from() | none,
    %% Slots, and supervisors that are in no slot any more, whose workers are not done.
    busy :: [weir_pool:slot() | pid()]
}).

-opaque change() :: #resize{} | #drain{}.

%% @doc Gives the pool another size, and takes the slots out of use that it has no more.
-spec publish(Size :: 0 | weir_pool:size(), weir_pool_slots:slots()) -> {ok, weir_pool_slots:slots()} | {error, gone}.
publish(Size, Slots) ->
    #boot{name = Name, id = Id} = weir_pool_slots:boot(Slots),
    #pool{limit = Before} = weir_pool_slots:pool(Slots),
    #pool{limit = Limit} = Pool = reshape(Size, Slots),
    case weir_pool_registry:open(Name, Id, Pool) of
        ok ->
            %% Some may have been on their way out.
            Kept = over(fun weir_pool_slots:keep/2, Before + 1, Limit, weir_pool_slots:set_pool(Pool, Slots)),
            Fewer = over(fun(Slot, S) -> weir_pool_slots:take_out(Slot, retire, S) end, Limit + 1, Before, Kept),
            ok = weir_pool_queue:wake(Pool),
            {ok, Fewer};
        {error, gone} ->
            {error, gone}
    end.

over(Do, First, Last, Slots) -> lists:foldl(Do, Slots, lists:seq(First, max(First - 1, Last))).

reshape(Size, Slots) ->
    #conf{overflow = {Overflow, _}} = weir_pool_slots:conf(Slots),
    weir_pool_terms:reshape(weir_pool_slots:pool(Slots), Size, Size + Overflow).

%% @doc Another size, which is at least `Last'. `{done, _}': it has that size, and whoever asked is to be told.
%% Otherwise it is told when all has been done.
-spec resize(Size :: term(), Last :: 0 | weir_pool:slot(), gen_server:from(), weir_pool_slots:slots()) ->
    {done, weir_pool_slots:slots()} | {change(), weir_pool_slots:slots()} | {error, gone | Refused} when
    Refused :: {bad_size, term()} | {slot_taken, weir_pool:slot()}.
resize(Size, Last, From, Slots) ->
    #conf{worker = Worker, overflow = {Overflow, _}, start = Start} = weir_pool_slots:conf(Slots),
    case is_size(Size, Worker) andalso Size + Overflow =< ?MAX_SIZE of
        false -> {error, {bad_size, Size}};
        true when Size < Last -> {error, {slot_taken, Last}};
        true when Worker =/= none, Start =:= sync -> start_and_publish(Size, From, Slots);
        true -> publish_and_start(Size, Slots)
    end.

is_size(0, Worker) -> Worker =:= none;
is_size(Size, _Worker) -> is_integer(Size) andalso Size > 0.

publish_and_start(Size, Slots) ->
    case publish(Size, Slots) of
        {ok, Published} -> {done, weir_pool_starts:start_missing(Published)};
        {error, gone} -> {error, gone}
    end.

start_and_publish(Size, From, Slots) ->
    Old = weir_pool_slots:pool_size(Slots),
    case weir_pool_starts:missing(Old + 1, Size, Slots) of
        [] ->
            publish_and_start(Size, Slots);
        New ->
            #boot{name = Name, id = Id} = weir_pool_slots:boot(Slots),
            Pool = weir_pool_slots:pool(Slots),
            %% The new slots have words from now on, and nobody knows.
            Wide = (reshape(Size, Slots))#pool{size = Old, limit = Pool#pool.limit},
            case weir_pool_registry:reach(Name, Id, Size) of
                ok ->
                    Start = fun(Slot, S) -> weir_pool_starts:start(Slot, resize, S) end,
                    Starting = lists:foldl(Start, weir_pool_slots:set_pool(Wide, Slots), New),
                    {#resize{from = From, size = Size, starting = New}, Starting};
                {error, gone} ->
                    {error, gone}
            end
    end.

%% @doc The start of a new slot's worker has ended.
-spec started(weir_pool:slot(), {ok, SlotSup :: pid()} | {error, term()}, change(), weir_pool_slots:slots()) ->
    {change() | none, weir_pool_slots:slots()} | {error, gone}.
started(Slot, Result, #resize{starting = Starting, started = Started, failed = Failed} = Resize, Slots) ->
    Left = Resize#resize{starting = lists:delete(Slot, Starting)},
    case Result of
        {ok, Sup} -> resized(Left#resize{started = [{Slot, Sup} | Started]}, Slots);
        {error, Reason} when Failed =:= none -> resized(Left#resize{failed = {start_failed, Slot, Reason}}, Slots);
        {error, _} -> resized(Left, Slots)
    end.

resized(#resize{starting = [_ | _]} = Resize, Slots) ->
    {Resize, Slots};
resized(#resize{from = From, size = Size, started = Started, failed = none}, Slots) ->
    Filled = lists:foldl(fun({Slot, Sup}, S) -> weir_pool_slots:put_sup(Slot, Sup, S) end, Slots, Started),
    case publish(Size, Filled) of
        {ok, Published} ->
            gen_server:reply(From, ok),
            %% Some worker may have been lost meanwhile.
            {none, weir_pool_starts:start_missing(Published)};
        {error, gone} ->
            {error, gone}
    end;
resized(#resize{from = From, started = Started, failed = Failed}, Slots) ->
    Boot = weir_pool_slots:boot(Slots),
    lists:foreach(fun({_Slot, Sup}) -> ok = weir_pool_slot_sup:drain(Sup, Boot) end, Started),
    gen_server:reply(From, {error, Failed}),
    {none, Slots}.

%% @doc Every worker is taken out of use when it is released, and then waited for. The pool is closed.
-spec drain(timeout(), gen_server:from(), weir_pool_slots:slots()) -> {change(), weir_pool_slots:slots()}.
drain(Timeout, From, Slots) ->
    Seats = weir_pool_slots:seats(Slots),
    Filled = [Slot || {Slot, _Pid} <- weir_pool_slots:filled(Slots)],
    Retired = weir_pool_seats:retired(Seats),
    _ = Timeout =:= infinity orelse erlang:send_after(Timeout, self(), drain_timeout),
    Drained = lists:foldl(fun(Slot, S) -> weir_pool_slots:take_out(Slot, drain, S) end, Slots, Filled),
    lists:foreach(
        fun(Sup) -> weir_pool_probe:start({drained, Sup}, weir_pool_seats:worker(Seats, Sup), infinity) end, Retired
    ),
    {answer(#drain{from = From, busy = Filled ++ Retired}), Drained}.

%% @doc A worker is done.
-spec drained(weir_pool:slot() | SlotSup :: pid(), change()) -> change().
drained(Which, #drain{busy = Busy} = Drain) -> answer(Drain#drain{busy = lists:delete(Which, Busy)}).

answer(#drain{from = From, busy = []} = Drain) when From =/= none ->
    gen_server:reply(From, ok),
    Drain#drain{from = none};
answer(Drain) ->
    Drain.

%% @doc The time of a drain is over.
-spec drain_timeout(change()) -> change().
drain_timeout(#drain{from = From, busy = Busy} = Drain) when From =/= none ->
    gen_server:reply(From, {error, {timeout, length(Busy)}}),
    Drain#drain{from = none};
drain_timeout(Drain) ->
    Drain.

%% @doc Tells whoever waits for the change that nothing will come of it.
-spec cancel(Reason :: term(), none | change()) -> ok.
cancel(Reason, #resize{from = From}) -> gen_server:reply(From, {error, Reason});
cancel(_Reason, _NoResize) -> ok.
