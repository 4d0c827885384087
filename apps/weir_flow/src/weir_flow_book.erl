%% @private The windows of a process in its dictionary.
%%
%% One entry for each receiver that was sent to: `{weir_flow, To} => weir_flow_window:state()'. Another entry, under
%% the key `weir_flow', counts them, because a process that sends to ever new receivers must not keep the entries of
%% all that there ever were. When there are more than 1,000, and twice as many as the last sweep left, those are
%% dropped of which it is known without asking that nobody receives any more: dead processes of this node, and nodes
%% that are not connected.
%%
%% What remains: live processes of this node, and all processes, dead or alive, of connected nodes. A process that
%% sends to ever new processes of another node should forget them itself (weir_flow:forget/1), or hold its windows in
%% handles.
-module(weir_flow_book).

-export([pass/4, forget/1, windows/0]).

-include("weir_flow.hrl").

-define(KEY(To), {weir_flow, (To)}).
-define(COUNT_KEY, weir_flow).
-define(SWEEP_ABOVE, 1000).

%% @doc Sends a message through the window that is in the dictionary, or a new one.
-spec pass(weir_flow_dest:to(), Message :: term(), weir_flow_window:state() | undefined, #opts{}) ->
    ok | {error, weir_flow:reason()}.
pass(To, Message, undefined, Opts) ->
    case weir_flow_window:pass(To, Message, ?NEW_WINDOW, Opts) of
        {Result, {_, #past{phase = new}}} ->
            Result;
        {Result, Window} ->
            _ = put(?KEY(To), Window),
            ok = added(),
            Result
    end;
pass(To, Message, Old, Opts) ->
    case weir_flow_window:pass(To, Message, Old, Opts) of
        {Result, {_, #past{phase = new}}} ->
            ok = forget(To),
            Result;
        {Result, Window} ->
            _ = put(?KEY(To), Window),
            Result
    end.

%% @doc Drops a window.
-spec forget(weir_flow_dest:to()) -> ok.
forget(To) ->
    case erase(?KEY(To)) of
        undefined -> ok;
        _ -> count(-1)
    end.

%% @doc The windows of this process.
-spec windows() -> [{weir_flow_dest:to(), weir_flow_window:state()}].
windows() -> [{To, Window} || {?KEY(To), Window} <- get()].

added() ->
    ok = count(1),
    case get(?COUNT_KEY) of
        {Entries, Left} when Entries > ?SWEEP_ABOVE, Entries >= 2 * Left -> sweep();
        _ -> ok
    end.

%% Someone may have erased the whole dictionary.
count(Change) ->
    {Entries, Left} =
        case get(?COUNT_KEY) of
            undefined -> {0, 0};
            Count -> Count
        end,
    _ = put(?COUNT_KEY, {max(0, Entries + Change), Left}),
    ok.

sweep() ->
    All = [To || ?KEY(To) <- get_keys()],
    Gone = [To || To <- All, weir_flow_dest:is_gone(To)],
    _ = [erase(?KEY(To)) || To <- Gone],
    Left = length(All) - length(Gone),
    _ = put(?COUNT_KEY, {Left, Left}),
    ok.
