%% @doc Sending to workers, in the process of the caller.
%%
%% A call is a pick and a `gen_server:call/3' from the caller itself, so its exits are those of the call, unchanged.
%% With strategies that choose by load it is counted while it is under way (weir_pool_load); a call that is given up by
%% its timeout is no longer, even if the worker has yet to get to it. Casts are not counted: nobody hears when one is
%% done.
-module(weir_pool_send).

-export([call/3, call_key/4, cast/2, cast_key/3, broadcast/2, map/2]).

-include("weir_pool.hrl").

%% @doc Calls the next worker.
-spec call(weir_pool:name(), Request :: term(), timeout()) ->
    {ok, Reply :: term()} | {error, no_pool | no_worker}.
call(Name, Request, Timeout) ->
    case weir_pool_terms:pool(Name) of
        #pool{} = Pool -> call_picked(weir_pool_pick:next_in(Pool), Pool, Request, Timeout);
        undefined -> {error, no_pool}
    end.

%% @doc Calls the worker of a key.
-spec call_key(weir_pool:name(), Key :: term(), Request :: term(), timeout()) ->
    {ok, Reply :: term()} | {error, no_pool | no_worker}.
call_key(Name, Key, Request, Timeout) ->
    case weir_pool_terms:pool(Name) of
        #pool{} = Pool -> call_picked(weir_pool_pick:key_in(Pool, Key), Pool, Request, Timeout);
        undefined -> {error, no_pool}
    end.

call_picked({ok, Slot, Pid}, Pool, Request, Timeout) ->
    case weir_pool_load:is_counted(Pool) of
        true ->
            Entry = weir_pool_load:enter(Pool, Slot),
            try
                {ok, gen_server:call(Pid, Request, Timeout)}
            after
                weir_pool_load:leave(Entry)
            end;
        false ->
            {ok, gen_server:call(Pid, Request, Timeout)}
    end;
call_picked({error, no_worker} = None, _Pool, _Request, _Timeout) ->
    None.

%% @doc Casts to the next worker.
-spec cast(weir_pool:name(), Message :: term()) -> ok | {error, no_pool | no_worker}.
cast(Name, Message) -> cast_picked(weir_pool_pick:next(Name), Message).

%% @doc Casts to the worker of a key.
-spec cast_key(weir_pool:name(), Key :: term(), Message :: term()) -> ok | {error, no_pool | no_worker}.
cast_key(Name, Key, Message) -> cast_picked(weir_pool_pick:key(Name, Key), Message).

cast_picked({ok, Pid}, Message) -> gen_server:cast(Pid, Message);
cast_picked({error, _} = Error, _Message) -> Error.

%% @doc Casts to every worker that is picked from.
%%
%% Cost: reads every slot, and sends (copies) the message once for each that is filled.
-spec broadcast(weir_pool:name(), Message :: term()) -> {ok, non_neg_integer()} | {error, no_pool}.
broadcast(Name, Message) ->
    case weir_pool_terms:pool(Name) of
        #pool{} = Pool ->
            Workers = weir_pool_terms:workers(Pool),
            lists:foreach(fun({_Slot, Pid}) -> gen_server:cast(Pid, Message) end, Workers),
            {ok, length(Workers)};
        undefined ->
            {error, no_pool}
    end.

%% @doc Calls a function with every worker that is picked from.
%%
%% All slots are read before the first call: a worker that is replaced meanwhile is visited as it was.
-spec map(weir_pool:name(), fun((pid()) -> Result)) -> {ok, [Result]} | {error, no_pool}.
map(Name, Fun) when is_function(Fun, 1) ->
    case weir_pool_terms:pool(Name) of
        #pool{} = Pool -> {ok, [Fun(Pid) || {_Slot, Pid} <- weir_pool_terms:workers(Pool)]};
        undefined -> {error, no_pool}
    end.
