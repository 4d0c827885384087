%% @doc Keeps the windows of a process in its dictionary.
%%
%% The entry `weir_flow => {Windows, Kept}' has all windows, in a map from receivers to `{Sent, Past}'. `Sent' is an
%% atomic that only this process uses: the number of messages sent since the last acknowledgement. To raise the atomic
%% takes a third of the time of a new entry in the dictionary. `Past' is the rest of the window
%% (weir_flow_window:state()).
%%
%% A sweep keeps the map small if the process always sends to new receivers. The sweep deletes the windows of dead
%% processes of this node and of nodes that are not connected. A change of a window causes a sweep if the map has more
%% than 1,000 windows, and at least twice as many as the last sweep has kept. `Kept' is that number.
%%
%% The sweep asks no other node, so windows of dead processes of connected nodes stay. A process that always sends to
%% new processes of another node deletes these windows itself (weir_flow:forget/1), or holds its windows in handles.
%% @private
-module(weir_flow_book).

-export([send/4, forget/1, windows/0]).

-include("weir_flow.hrl").

-define(KEY, weir_flow).
-define(SWEEP_ABOVE, 1000).

%% @doc Sends a message within the window of the dictionary, or within a new window. If the message is one of the first
%% Free messages since the last acknowledgement, it goes out at once.
-spec send(weir_flow_dest:to(), Message :: term(), Free :: non_neg_integer(), weir_flow:window() | #opts{}) ->
    ok | {error, weir_flow:reason()}.
send(To, Message, Free, How) ->
    case get(?KEY) of
        {#{To := {Sent, Past}}, _Kept} ->
            case atomics:add_get(Sent, 1, 1) of
                N when N =< Free ->
                    _ = To ! Message,
                    ok;
                N ->
                    pass(To, Message, Sent, {N - 1, Past}, opts(How))
            end;
        _NoWindow ->
            first(To, Message, opts(How))
    end.

opts(Window) when is_integer(Window) -> weir_flow_opts:check(Window);
opts(Opts) -> Opts.

first(To, Message, Opts) ->
    case weir_flow_window:pass(To, Message, ?NEW_WINDOW, Opts) of
        {Result, {_, #past{phase = new}}} ->
            Result;
        {Result, Window} ->
            ok = keep(To, atomics:new(1, []), Window),
            Result
    end.

pass(To, Message, Sent, Old, Opts) ->
    case weir_flow_window:pass(To, Message, Old, Opts) of
        {Result, {_, #past{phase = new}}} ->
            ok = forget(To),
            Result;
        {Result, Window} ->
            ok = keep(To, Sent, Window),
            Result
    end.

keep(To, Sent, {N, Past}) ->
    ok = atomics:put(Sent, 1, N),
    {Windows, Kept} = all(),
    _ = put(?KEY, swept(Windows#{To => {Sent, Past}}, Kept)),
    ok.

%% Returns the entry. The program may have erased the whole dictionary.
all() ->
    case get(?KEY) of
        undefined -> {#{}, 0};
        All -> All
    end.

swept(Windows, Kept) when map_size(Windows) > ?SWEEP_ABOVE, map_size(Windows) >= 2 * Kept ->
    Left = maps:filter(fun(To, _Window) -> not weir_flow_dest:is_gone(To) end, Windows),
    {Left, map_size(Left)};
swept(Windows, Kept) ->
    {Windows, Kept}.

%% @doc Deletes the window of a receiver, if there is one.
-spec forget(weir_flow_dest:to()) -> ok.
forget(To) ->
    {Windows, Kept} = all(),
    _ = put(?KEY, {maps:remove(To, Windows), Kept}),
    ok.

%% @doc Returns the windows of this process.
-spec windows() -> [{weir_flow_dest:to(), weir_flow_window:state()}].
windows() ->
    {Windows, _Kept} = all(),
    [{To, {atomics:get(Sent, 1), Past}} || {To, {Sent, Past}} <- maps:to_list(Windows)].
