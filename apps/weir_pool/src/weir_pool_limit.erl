%% @doc Recognizes starts that failed at a limit of the node, which can have no other process, port, table or atom at
%% that time. Repeats such a start until it no longer fails at a limit.
%%
%% This module has no process. Only patiently/1 has effects.
%% @private
-module(weir_pool_limit).

-export([is_limit/1, patiently/1]).

-include("weir_pool.hrl").

%% @doc Returns whether a start failed at a limit of the node.
-spec is_limit(Reason :: term()) -> boolean().
is_limit({exception, error, Reason, _Stacktrace}) -> is_limit(Reason);
is_limit({'EXIT', Reason}) -> is_limit(Reason);
is_limit({pool_down, Reason}) -> is_limit(Reason);
is_limit({start_failed, _Slot, Reason}) -> is_limit(Reason);
is_limit({system_limit, _Stacktrace}) -> true;
is_limit(Reason) -> Reason =:= system_limit.

%% @doc Calls a start function, for a supervisor that restarts a child. As long as the start fails at a limit of the
%% node, calls the function again after a pause. An OTP supervisor itself would try again without a pause, and soon give
%% up.
%%
%% The supervisor handles no other message meanwhile. If the supervisor gets the exit signal of its parent, the start
%% fails, so that the supervisor handles the signal.
-spec patiently(fun(() -> Result)) -> Result when Result :: {ok, pid()} | ignore | {error, term()}.
patiently(Start) ->
    Result =
        try
            Start()
        catch
            error:system_limit -> {error, system_limit}
        end,
    case Result of
        {error, Reason} ->
            case is_limit(Reason) andalso pause() of
                true -> patiently(Start);
                false -> Result
            end;
        _ ->
            Result
    end.

%% Waits for the pause. Returns `false' if the parent's exit signal arrives meanwhile, and leaves the signal in the
%% mailbox. An exit here would be lost, because a supervisor calls start functions in a `catch'.
pause() ->
    [Parent | _] = get('$ancestors'),
    ParentPid =
        case is_pid(Parent) of
            true -> Parent;
            false -> whereis(Parent)
        end,
    receive
        {'EXIT', ParentPid, _Reason} = End ->
            self() ! End,
            false
    after ?AGAIN_MS -> true
    end.
