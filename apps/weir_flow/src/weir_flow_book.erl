%% @private The windows in the dictionary of a process.
%%
%% The dictionary has one entry for each receiver: `{weir_flow, To} => weir_flow_window:state()'. The entry under the
%% key `weir_flow' has the number of these entries, and the number that the last sweep left.
%%
%% A sweep keeps the dictionary of a process small that sends to ever new receivers. A new entry causes a sweep if there
%% are more than 1,000 entries, and at least twice as many as the last sweep left. The sweep deletes the entries of dead
%% processes of this node and of nodes that are not connected. The sweep asks no other node.
%%
%% The sweep keeps the entries of live processes of this node, and of all processes of connected nodes, dead or alive. A
%% process that sends to ever new processes of another node therefore deletes the entries itself (weir_flow:forget/1),
%% or keeps its windows in handles.
-module(weir_flow_book).

-export([pass/4, forget/1, windows/0]).

-include("weir_flow.hrl").

-define(KEY(To), {weir_flow, (To)}).
-define(COUNT_KEY, weir_flow).
-define(SWEEP_ABOVE, 1000).

%% @doc Sends a message within the window that the dictionary had, or within a new window if it had none, and writes
%% the changed window back.
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

%% @doc Deletes the window of a receiver, if there is one.
-spec forget(weir_flow_dest:to()) -> ok.
forget(To) ->
    case erase(?KEY(To)) of
        undefined -> ok;
        _ -> count(-1)
    end.

%% @doc Returns the windows of this process.
-spec windows() -> [{weir_flow_dest:to(), weir_flow_window:state()}].
windows() -> [{To, Window} || {?KEY(To), Window} <- get()].

added() ->
    ok = count(1),
    case get(?COUNT_KEY) of
        {Entries, Left} when Entries > ?SWEEP_ABOVE, Entries >= 2 * Left -> sweep();
        _ -> ok
    end.

%% Changes the number of entries. The process may have erased its whole dictionary, so the number is never below 0.
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
