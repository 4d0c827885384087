%% A receiver of any behaviour, which keeps the terms of all messages `{note, Term}' in the order of arrival.
%%
%% A callback that gets `{block, Controller}' returns when the controller calls release/1. After `{flush, Controller}',
%% the callback then throws all messages in its mailbox away.
-module(weir_flow_test_receiver).

-export([start/1, start/2, blocked/0, notes/1, block/1, flush/1, release/1, handle/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export([callback_mode/0, handle_event/4]).
-export([handle_event/2, handle_call/2]).

start(Kind) -> start(Kind, none).

start(gen_server, none) -> gen_server:start(?MODULE, server, []);
start(gen_server, Name) -> gen_server:start(Name, ?MODULE, server, []);
start(hibernating, none) -> gen_server:start(?MODULE, hibernating, []);
start(gen_statem, none) -> gen_statem:start(?MODULE, statem, []);
start(gen_event, none) ->
    {ok, Manager} = gen_event:start(),
    ok = gen_event:add_handler(Manager, ?MODULE, event),
    {ok, Manager}.

%% Starts a gen_server and blocks it.
blocked() ->
    {ok, Pid} = start(gen_server),
    ok = block(Pid),
    Pid.

notes(Pid) ->
    Ref = make_ref(),
    Pid ! {notes, self(), Ref},
    receive
        {Ref, Notes} -> Notes
    after weir_kit:wait_ms() -> error({no_result, notes})
    end.

%% Returns when the receiver is blocked.
block(Pid) -> block(Pid, block).

%% Like block/1. Messages that arrive before the release are lost.
flush(Pid) -> block(Pid, flush).

block(Pid, How) ->
    Pid ! {How, self()},
    weir_flow_test_lib:await({blocked, Pid}).

release(Pid) ->
    Pid ! {release, self()},
    ok.

init(server) -> {ok, []};
init(hibernating) -> {ok, {hibernate, []}, hibernate};
init(statem) -> {ok, state, []};
init(event) -> {ok, []}.

callback_mode() -> handle_event_function.

%% gen_server
handle_call(_Request, _From, State) -> {reply, ok, State}.
handle_cast(Message, {hibernate, Notes}) -> {noreply, {hibernate, handle(Message, Notes)}, hibernate};
handle_cast(Message, Notes) -> {noreply, handle(Message, Notes)}.
%% gen_server and gen_event
handle_info(Message, {hibernate, Notes}) -> {noreply, {hibernate, handle(Message, Notes)}, hibernate};
handle_info(Message, Notes) ->
    New = handle(Message, Notes),
    case get('$initial_call') of
        {gen_event, init_it, _} -> {ok, New};
        _ -> {noreply, New}
    end.

%% gen_statem
handle_event(_Type, Message, state, Notes) -> {keep_state, handle(Message, Notes)}.

%% gen_event
handle_event(Message, Notes) -> {ok, handle(Message, Notes)}.
handle_call(_Request, Notes) -> {ok, ok, Notes}.

%% Handles a message, and returns the notes with the latest first.
handle({note, Term}, Notes) ->
    [Term | Notes];
handle({block, Controller}, Notes) ->
    Controller ! {blocked, self()},
    receive
        {release, Controller} -> Notes
    end;
handle({flush, Controller}, Notes) ->
    Notes = handle({block, Controller}, Notes),
    ok = flush(),
    Notes;
handle({notes, To, Ref}, Notes) ->
    To ! {Ref, lists:reverse(Notes)},
    Notes;
handle(_Other, Notes) ->
    Notes.

flush() ->
    receive
        _ -> flush()
    after 0 -> ok
    end.
