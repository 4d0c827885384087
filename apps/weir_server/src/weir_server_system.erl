%% @doc System messages. `sys' handles them, and calls this module back through weir_server.
%%
%% Meanwhile the process has left the loop, and the loop's arguments are in a `#suspended{}'. Drained messages stay
%% drained.
%% @private
-module(weir_server_system).

-export([handle/3, terminate/4, code_change/4, get_state/1, replace_state/2, format_status/2]).

-include("weir_server.hrl").
-include("weir_server_loop.hrl").

%% @doc Handles a system message. `sys' then calls weir_server_loop:continue/3.
-spec handle(Request :: term(), {pid(), term()}, #suspended{}) -> no_return().
handle(suspend, From, #suspended{server = #server{parent = Parent, inbox = Inbox} = S, chunk = Chunk} = Suspended) ->
    %% While the server is suspended, `sys' looks in the mailbox for the message that resumes or ends the server.
    {Messages, ChunkLeft, Left} = weir_server_inbox:take_for_sys(Chunk, Inbox),
    ok = weir_server_mailbox:give_to_sys(Messages, Parent),
    handle_now(suspend, From, Suspended#suspended{server = S#server{inbox = Left}, chunk = ChunkLeft});
handle(Request, From, Suspended) ->
    handle_now(Request, From, Suspended).

handle_now(Request, From, #suspended{server = #server{parent = Parent, debug = Debug}, wait = Wait} = Suspended) ->
    sys:handle_system_msg(Request, From, Parent, weir_server, Debug, Suspended, Wait =:= hibernate).

%% @doc Ends the server for `sys'.
-spec terminate(term(), pid(), [sys:dbg_opt()], #suspended{}) -> no_return().
terminate(Reason, _Parent, Debug, #suspended{server = S, chunk = Chunk, state = State}) ->
    weir_server_report:stop(Reason, undefined, [], S#server{debug = Debug}, Chunk, State).

%% @doc Changes the state for a new version of the callback module. The drained messages stay. When the server goes on,
%% the new version decides about their batches, their order and their bound.
-spec code_change(#suspended{}, module(), term(), term()) -> {ok, #suspended{}} | term().
code_change(#suspended{server = #server{mod = Mod}} = Suspended, _Module, OldVsn, Extra) ->
    %% As in all callbacks, a throw is a return. `sys' catches other exceptions.
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

%% @doc Returns the callback module's state.
-spec get_state(#suspended{}) -> {ok, term()}.
get_state(#suspended{state = State}) ->
    {ok, State}.

%% @doc Replaces the callback module's state.
-spec replace_state(fun((term()) -> term()), #suspended{}) -> {ok, term(), #suspended{}}.
replace_state(Replace, #suspended{state = State} = Suspended) ->
    NewState = Replace(State),
    {ok, NewState, Suspended#suspended{state = NewState}}.

%% @doc Returns the answer to `sys:get_status'.
-spec format_status(term(), [term()]) -> [term()].
format_status(Opt, [PDict, SysState, Parent, Debug, #suspended{server = S, chunk = Chunk, state = State}]) ->
    About = weir_server_report:about(undefined, [], S#server{debug = Debug}, Chunk, State),
    weir_server_report:format_status(Opt, [PDict, SysState, Parent, Debug, About]).
