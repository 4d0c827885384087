%% @doc Requests to a pool's manager, from the process that makes them.
%%
%% A request is a call without a time-out: the manager keeps the time of each change, and makes no call itself.
%% @private
-module(weir_pool_request).

-export([call/2, member/2]).

%% @doc Calls the manager of a pool. If the pool does not exist or has ended in order, returns `{error, no_pool}'; if
%% the manager was killed, `{error, {pool_down, Reason}}'.
-spec call(weir_pool:name(), Request :: term()) -> term() | {error, weir_pool:change_error()}.
call(Name, Request) ->
    case weir_pool_registry:lookup(Name) of
        {ok, {_, Manager, _, _, _}} ->
            try
                gen_server:call(Manager, Request, infinity)
            catch
                exit:{Reason, _} when Reason =:= noproc; Reason =:= normal; Reason =:= shutdown -> {error, no_pool};
                exit:{{shutdown, _}, _} -> {error, no_pool};
                exit:{Reason, _} -> {error, {pool_down, Reason}}
            end;
        {error, no_pool} ->
            {error, no_pool}
    end.

%% @doc Calls the manager of a pool whose processes connect themselves.
%%
%% If the manager answers that another process is connected, this function checks here whether that process lives, and
%% if not, tells the manager and calls again. The check takes as long as a dying process needs to end, so the manager
%% does not make it. If the manager answers `again', because the claim of a predecessor has ended, calls again.
-spec member(weir_pool:name(), weir_pool_members:request()) -> term() | {error, weir_pool:change_error()}.
member(Name, Request) ->
    case call(Name, {member, Request}) of
        {error, {connected, Pid}} = Connected ->
            case is_process_alive(Pid) of
                true ->
                    Connected;
                false ->
                    _ = call(Name, {member, {dead, element(2, Request), Pid}}),
                    member(Name, Request)
            end;
        {error, again} ->
            member(Name, Request);
        Reply ->
            Reply
    end.
