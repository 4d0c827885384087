%% @doc The end of a server, whatever brought it about.
-module(weir_server_end).

-export([stop/7, crash/9, about/6]).

-include("weir_server.hrl").
-include("weir_server_loop.hrl").

%% @doc A callback, the parent or `sys' says so.
-spec stop(
    term(), weir_server:from() | undefined, term(), #server{}, [term()], term(), [sys:dbg_opt()]
) -> no_return().
stop(Reason, From, Message, S, Chunk, State, Debug) ->
    weir_server_report:stop(Reason, about(From, Message, S, Chunk, State, Debug)).

%% @doc A callback has raised an exception.
-spec crash(
    error | exit,
    term(),
    erlang:stacktrace(),
    weir_server:from() | undefined,
    term(),
    #server{},
    [term()],
    term(),
    [sys:dbg_opt()]
) -> no_return().
crash(Class, Reason, Stacktrace, From, Message, S, Chunk, State, Debug) ->
    weir_server_report:crash(Class, Reason, Stacktrace, about(From, Message, S, Chunk, State, Debug)).

%% @doc What reports and statuses are made of.
-spec about(weir_server:from() | undefined, Message :: term(), #server{}, Chunk :: [term()], term(), [sys:dbg_opt()]) ->
    weir_server_report:about().
about(From, Message, #server{name = Name, mod = Mod} = S, Chunk, State, Debug) ->
    #{
        name => Name,
        mod => Mod,
        from => From,
        message => Message,
        state => State,
        debug => Debug,
        drained => drained(S, Chunk)
    }.

%% What has been drained and is not handled, but for requests for an acknowledgement, which are nobody's work.
drained(#server{inbox = Inbox}, Chunk) ->
    All = Chunk ++ weir_server_inbox:to_list(Inbox),
    [weir_server_batch:uncredited(Message) || Message <- All, not is_ack(Message)].

is_ack(?ACK_REQUEST(_)) -> true;
is_ack(_Message) -> false.
