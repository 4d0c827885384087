%% @doc System messages: what `sys' makes of them, with a server that it knows by weir_server's callbacks.
%%
%% While one is handled, or the server is suspended, the loop is left, and everything that it worked on is in a
%% `#suspended{}'. What was drained stays drained.
%% @private
-module(weir_server_system).

-export([handle/3, terminate/4, code_change/4, get_state/1, replace_state/2, format_status/2]).

-include("weir_server.hrl").
-include("weir_server_loop.hrl").

%% @doc Handles a system message; the loop goes on by weir_server_loop:continue/3.
-spec handle(Request :: term(), {pid(), term()}, #suspended{}) -> no_return().
handle(suspend, From, #suspended{server = #server{parent = Parent, inbox = Inbox} = S, chunk = Chunk} = Suspended) ->
    %% From now on `sys' waits in a receive of its own for what ends or resumes the server: that must not be drained.
    {Messages, ChunkLeft, Left} = weir_server_inbox:take_for_sys(Chunk, Inbox),
    ok = weir_server_mailbox:give_to_sys(Messages, Parent),
    handle_now(suspend, From, Suspended#suspended{server = S#server{inbox = Left}, chunk = ChunkLeft});
handle(Request, From, Suspended) ->
    handle_now(Request, From, Suspended).

handle_now(Request, From, #suspended{server = #server{parent = Parent, debug = Debug}, wait = Wait} = Suspended) ->
    sys:handle_system_msg(Request, From, Parent, weir_server, Debug, Suspended, Wait =:= hibernate).

%% @doc `sys' ends the server.
-spec terminate(term(), pid(), [sys:dbg_opt()], #suspended{}) -> no_return().
terminate(Reason, _Parent, Debug, #suspended{server = S, chunk = Chunk, state = State}) ->
    weir_server_report:stop(Reason, undefined, [], S#server{debug = Debug}, Chunk, State).

%% @doc The drained messages survive the change, and are put to the new version when it goes on: whether they are
%% batched, in what order they are and whether they are dropped may change with it.
-spec code_change(#suspended{}, module(), term(), term()) -> {ok, #suspended{}} | term().
code_change(#suspended{server = #server{mod = Mod}} = Suspended, _Module, OldVsn, Extra) ->
    %% As in all callbacks, a throw is a return. What else is raised `sys' catches.
    Result =
        try
            Mod:code_change(OldVsn, Suspended#suspended.state, Extra)
        catch
            throw:Thrown -> Thrown
        end,
    case Result of
        {ok, NewState} ->
            {ok, Suspended#suspended{state = NewState, changed = true}};
        Other ->
            Other
    end.

%% @doc The callback module's state.
-spec get_state(#suspended{}) -> {ok, term()}.
get_state(#suspended{state = State}) ->
    {ok, State}.

%% @doc Another state.
-spec replace_state(fun((term()) -> term()), #suspended{}) -> {ok, term(), #suspended{}}.
replace_state(Replace, #suspended{state = State} = Suspended) ->
    NewState = Replace(State),
    {ok, NewState, Suspended#suspended{state = NewState}}.

%% @doc The answer to `sys:get_status'.
-spec format_status(term(), [term()]) -> [term()].
format_status(Opt, [PDict, SysState, Parent, Debug, #suspended{server = S, chunk = Chunk, state = State}]) ->
    About = weir_server_report:about(undefined, [], S#server{debug = Debug}, Chunk, State),
    weir_server_report:format_status(Opt, [PDict, SysState, Parent, Debug, About]).
