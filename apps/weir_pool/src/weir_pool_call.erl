%% @doc Calls of workers, in the process of the caller.
%%
%% A call is a pick and a `gen_server:call/3' by the caller itself, so its exits are those of `gen_server:call/3'. If
%% the strategy chooses by load, the call is counted while it is under way (weir_pool_calls). A call that times out is
%% no longer counted, although the worker may still have to handle it.
%% @private
-module(weir_pool_call).

-export([call/3, call_within/4, call_key/4]).

-include("weir_pool.hrl").

%% @doc Calls the next worker.
-spec call(weir_pool:name(), Request :: term(), timeout()) ->
    {ok, Reply :: term()} | {error, no_pool | no_worker}.
call(Name, Request, Timeout) ->
    case weir_pool_terms:pool(Name) of
        #pool{} = Pool -> call_picked(weir_pool_pick:next_in(Pool), Pool, Request, Timeout, infinity);
        undefined -> {error, no_pool}
    end.

%% @doc Calls the next worker if fewer than `Room' calls are under way in its slot; otherwise returns `{error, busy}'.
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
    case weir_pool_calls:is_counted(Pool) andalso weir_pool_calls:enter(Pool, Slot, Room) of
        busy ->
            {error, busy};
        false ->
            {ok, gen_server:call(Pid, Request, Timeout)};
        Entry ->
            try
                {ok, gen_server:call(Pid, Request, Timeout)}
            after
                weir_pool_calls:leave(Entry)
            end
    end;
call_picked({error, no_worker} = None, _Pool, _Request, _Timeout, _Room) ->
    None.
