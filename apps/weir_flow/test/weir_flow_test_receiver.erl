%% A receiver of any behaviour, whose callbacks can be blocked. It keeps what it was sent, in the order of arrival,
%% for all messages `{note, Term}', however they come.
%%
%% `{block, Controller}': the callback tells the controller, and does not return before it is sent `{release,
%% Controller}'. `{flush, Controller}': the same, and then it takes whatever is in its mailbox.
-module(weir_flow_test_receiver).

-export([start/1, start/2, notes/1, block/1, flush/1, release/1, stop/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2, terminate/3]).
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

notes(Pid) ->
    Ref = make_ref(),
    Pid ! {notes, self(), Ref},
    receive
        {Ref, Notes} -> Notes
    after weir_kit:wait_ms() -> error({no_result, notes})
    end.

%% Returns when it is blocked.
block(Pid) -> block(Pid, block).

%% Like block/1; what has come by the time that it is released is lost.
flush(Pid) -> block(Pid, flush).

block(Pid, How) ->
    Pid ! {How, self()},
    receive
        {blocked, Pid} -> ok
    after weir_kit:wait_ms() -> error({never, blocked, process_info(Pid, [status, current_stacktrace])})
    end.

release(Pid) ->
    Pid ! {release, self()},
    ok.

stop(Pid) -> weir_kit:kill(Pid).

init(server) -> {ok, []};
init(hibernating) -> {ok, {hibernate, []}, hibernate};
init(statem) -> {ok, state, []};
init(event) -> {ok, []}.

callback_mode() -> handle_event_function.

%% gen_server
handle_call(_Request, _From, State) -> {reply, ok, State}.
handle_cast(Message, {hibernate, Notes}) -> {noreply, {hibernate, handle(Message, Notes)}, hibernate};
handle_cast(Message, Notes) -> {noreply, handle(Message, Notes)}.
%% and gen_event
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

terminate(_Reason, _State) -> ok.
terminate(_Reason, _State, _Data) -> ok.

handle({note, Term}, Notes) ->
    [Term | Notes];
handle({block, Controller}, Notes) ->
    Controller ! {blocked, self()},
    receive
        {release, Controller} -> Notes
    end;
handle({flush, Controller}, Notes) ->
    [] = handle({block, Controller}, []),
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
