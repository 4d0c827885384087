%% @doc The process of a poll set.
%%
%% It asks the kernel what is ready and serves it ({@link weir_socket_nif:poll/1}), lets others run, and asks again.
%% When nothing is ready, it looks once more after others have run, and then sleeps until its bell rings
%% ({@link weir_socket_bell}). So under load there is a look for each turn of the scheduler, and whatever has become
%% ready meanwhile shares its cost.
%%
%% To sleep and be woken costs some 20 us of latency. So when one socket after a short sleep has something to say again
%% and again, as when a single connection answers at once, it looks more often before the next sleep, and as soon as
%% that is in vain, half as often. Such a connection does not let it sleep at all; when nothing happens for long, it
%% does nothing. Where several sockets speak in turn or much is read, a wake-up is shared by enough to be cheap, and
%% looking only takes the core from who could use it (measured on two cores: a stream into the node 2,800 MB a second
%% with patience, 4,500 without; 30,000 requests a second over 64 connections 32 us of processor time each with it,
%% 19 without; a single connection 37,000 requests a second with it, 13,000 without).
%%
%% It is not bound to the scheduler of its set, though the runtime has an undocumented flag for that. Bound pollers are
%% slower by a twentieth (measured on two cores that others use too; alike with 1 and with 512 connections), and one
%% whose scheduler goes offline does not run at all, not even to die. Whoever asks the runtime about such a process
%% waits for ever, and that is what the end of any application and init:stop/0 do. So the runtime moves pollers as it
%% moves any process.
%%
%% A poller may be killed at any time, and its bell closed. What the kernel has said to it in a turn is done in that
%% turn, which a kill does not interrupt; the next poller of the set asks for the rest, and for packets that the dead
%% one was to decode.
%% @private
-module(weir_socket_poller).
-behaviour(gen_server).

-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-record(state, {
    set :: non_neg_integer(),
    bell :: port(),
    %% How often nothing has been found in a row, and how often it may be before it sleeps.
    empty = 0 :: non_neg_integer(),
    patience :: pos_integer(),
    %% When it went to sleep, native monotonic time.
    slept = 0 :: integer(),
    %% A sleep below this, native time, is short.
    short :: pos_integer()
}).

%% How often it looks in vain, letting others run in between, before it sleeps: at least, and after a short sleep. A
%% look costs 1 us.
-define(LOOKS, 2).
-define(MORE_LOOKS, 48).
-define(SHORT_US, 50).

%% Packets that are decoded between two looks, in all, and of each of the sockets (64 of them) at least: below 2 ms.
-define(PACKETS, 256).
-define(LEAST_PACKETS, 16).

%% It tries so often to get a bell, with such pauses, in case the node has no descriptors left: so long that the
%% supervisor, which counts restarts, does not give up.
-define(TRIES, 50).
-define(PAUSE_MS, 100).

%% @doc Starts a poller of a set. If the node has no descriptors left, this takes up to 5 seconds.
-spec start_link(Set :: non_neg_integer()) -> {ok, pid()} | {error, term()}.
start_link(Set) ->
    case weir_socket_start:start(fun() -> gen_server:start_link(?MODULE, Set, []) end) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec init(non_neg_integer()) -> {ok, #state{}, timeout()} | {stop, {bell, term()}}.
init(Set) ->
    Epoll = weir_socket_nif:serve(Set),
    case open_bell(Epoll, ?TRIES) of
        {ok, Bell} ->
            _ = erlang:monitor(port, Bell),
            Short = erlang:convert_time_unit(?SHORT_US, microsecond, native),
            {ok, #state{set = Set, bell = Bell, patience = ?LOOKS, short = Short}, 0};
        {error, Reason} ->
            {stop, {bell, Reason}}
    end.

open_bell(Epoll, Tries) ->
    case weir_socket_bell:open(Epoll) of
        {error, _} when Tries > 1 ->
            timer:sleep(?PAUSE_MS),
            open_bell(Epoll, Tries - 1);
        Result ->
            Result
    end.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, {error, unknown_call}, #state{}, timeout()}.
handle_call(_Request, _From, State) -> {reply, {error, unknown_call}, State, 0}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}, timeout()}.
handle_cast(_Other, State) -> {noreply, State, 0}.

%% @private
-spec handle_info(term(), #state{}) ->
    {noreply, #state{}} | {noreply, #state{}, timeout()} | {stop, {bell, term()}, #state{}}.
handle_info(timeout, #state{set = Set, empty = Empty, patience = Patience} = State) when Empty < Patience ->
    next(weir_socket_nif:poll(Set), State);
handle_info(timeout, #state{bell = Bell, patience = Patience} = State) ->
    ok = weir_socket_bell:arm(Bell),
    {noreply, State#state{empty = 0, patience = max(?LOOKS, Patience div 2), slept = erlang:monotonic_time()}};
handle_info({Bell, ring}, #state{set = Set, bell = Bell} = State) ->
    next(weir_socket_nif:poll(Set), woken(State));
%% There is something to do now, however often nothing was found before.
handle_info({resume, Sock}, State) ->
    ok = resume(Sock),
    {noreply, State#state{empty = 0}, 0};
handle_info({'DOWN', _Monitor, port, Bell, Reason}, #state{bell = Bell} = State) ->
    {stop, {bell, Reason}, State};
handle_info(_Other, State) ->
    {noreply, State, 0}.

next({decode, Socks, Next}, State) ->
    Share = max(?LEAST_PACKETS, ?PACKETS div length(Socks)),
    lists:foreach(fun(Sock) -> weir_socket_decode:deliver(Sock, Share) =:= more andalso resume(Sock) end, Socks),
    next(Next, State);
next(again, State) ->
    look_again(State#state{empty = 0});
next(busy, State) ->
    look_again(State#state{empty = 0, patience = ?LOOKS});
next(nothing, #state{empty = Empty} = State) ->
    look_again(State#state{empty = Empty + 1});
next(gone, State) ->
    {noreply, State}.

%% The socket is served in a later turn of the set. `again': the poller before is at its last one.
resume(Sock) ->
    _ = weir_socket_nif:resume(Sock) =:= again andalso (self() ! {resume, Sock}),
    ok.

%% Others first; and a message, if there is one.
look_again(State) ->
    true = erlang:yield(),
    {noreply, State, 0}.

woken(#state{slept = Slept, short = Short} = State) ->
    case erlang:monotonic_time() - Slept < Short of
        true -> State#state{patience = ?MORE_LOOKS};
        false -> State
    end.
