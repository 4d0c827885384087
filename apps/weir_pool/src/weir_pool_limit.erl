%% @doc Limits of the node: what a start returns when the node can have no other process, port, table or atom, and
%% starts that wait until it can.
%%
%% A pure module, but for patiently/1.
%% @private
-module(weir_pool_limit).

-export([is_limit/1, patiently/1]).

%% Milliseconds before a start is tried again.
-define(AGAIN_MS, 100).

%% @doc Returns whether a start failed at a limit of the node.
-spec is_limit(Reason :: term()) -> boolean().
is_limit({exception, error, Reason, _Stacktrace}) -> is_limit(Reason);
is_limit({'EXIT', Reason}) -> is_limit(Reason);
is_limit({system_limit, _Stacktrace}) -> true;
is_limit(Reason) -> Reason =:= system_limit.

%% @doc Calls a start function, for a supervisor that restarts a child, and calls it again after a pause as long as the
%% start fails at a limit of the node. A supervisor itself tries again without a pause, and soon gives up.
%%
%% The supervisor handles no other message meanwhile. If its parent tells it to end, the start fails, so the supervisor
%% goes on to that message.
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

%% Returns whether to go on after the pause. A supervisor calls start functions in a `catch', so an exit would be lost.
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
