%% @doc The process of a poll set.
%%
%% It asks the kernel what is ready and serves it ({@link weir_socket_nif:poll/2}), lets others run, and asks again.
%% When nothing is ready, it looks once more after others have run, and then sleeps until the runtime sends a message.
%% So under load there is a look for each turn of the scheduler, and whatever has become ready meanwhile shares its
%% cost.
%%
%% To sleep and be woken costs some 20 us of latency, and on releases before 28 a thread of the runtime's besides. So
%% when a sleep turns out to have been short, it looks more often before the next one, and as soon as that is in vain,
%% half as often. With one connection that answers at once it does not sleep at all; when nothing happens for long, it
%% does nothing. Where several sockets are ready at a time, or much is read, a wake-up is shared by enough to be cheap,
%% and looking only takes the core from who could use it (measured on two cores: a stream into the node 2,800 MB a
%% second with patience, 4,500 without; an echo over 64 connections 130,000 a second with it, 146,000 without; over one
%% connection 37,000 with it, 27,000 without).
%%
%% It is not bound to the scheduler of its set, though the runtime has an undocumented flag for that. Bound pollers are
%% slower by a twentieth (measured on two cores that others use too; alike with 1 and with 512 connections), and one
%% whose scheduler goes offline does not run at all, not even to die. Whoever asks the runtime about such a process
%% waits for ever, and that is what the end of any application and init:stop/0 do. So the runtime moves pollers as it
%% moves any process.
%%
%% A poller may be killed at any time. What the kernel has said to it in a turn is done in that turn, which a kill does
%% not interrupt; the next poller of the set asks for the rest, and for packets that the dead one was to decode.
-module(weir_socket_poller).
-behaviour(gen_server).

-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-record(state, {
    set :: non_neg_integer(),
    %% How often nothing has been found in a row, and how often it may be before it sleeps.
    empty = 0 :: non_neg_integer(),
    patience :: pos_integer(),
    %% When it went to sleep, native monotonic time.
    slept = 0 :: integer(),
    %% A sleep below this, native time, is short.
    short :: pos_integer(),
    %% The mode of weir_socket_nif:poll/2 after a message.
    wake :: woken | rearm
}).

%% How often it looks in vain, letting others run in between, before it sleeps: at least, and after a short sleep. A
%% look costs 1 us.
-define(LOOKS, 2).
-define(MORE_LOOKS, 48).
-define(SHORT_US, 50).

%% From this release on a set that has woken its poller has to be watched again in the same turn.
-define(REARM_RELEASE, 28).

%% @doc Starts a poller of a set.
-spec start_link(Set :: non_neg_integer()) -> {ok, pid()} | {error, term()}.
start_link(Set) ->
    case gen_server:start_link(?MODULE, Set, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec init(non_neg_integer()) -> {ok, #state{}, timeout()}.
init(Set) ->
    ok = weir_socket_nif:serve(Set),
    Short = erlang:convert_time_unit(?SHORT_US, microsecond, native),
    {ok, #state{set = Set, patience = ?LOOKS, short = Short, wake = wake_mode()}, 0}.

wake_mode() ->
    case list_to_integer(erlang:system_info(otp_release)) >= ?REARM_RELEASE of
        true -> rearm;
        false -> woken
    end.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, {error, unknown_call}, #state{}, timeout()}.
handle_call(_Request, _From, State) -> {reply, {error, unknown_call}, State, 0}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}, timeout()}.
handle_cast(_Other, State) -> {noreply, State, 0}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {noreply, #state{}, timeout()}.
handle_info(timeout, #state{set = Set, empty = Empty, patience = Patience} = State) when Empty < Patience ->
    next(weir_socket_nif:poll(Set, look), State);
handle_info(timeout, #state{set = Set} = State) ->
    next(weir_socket_nif:poll(Set, sleep), State);
handle_info({select, _Set, _Ref, ready_input}, #state{set = Set, wake = Wake} = State) ->
    next(weir_socket_nif:poll(Set, Wake), woken(State#state{empty = 0}));
handle_info({decode, Sock}, State) ->
    ok = weir_socket_decode:deliver(Sock),
    {noreply, State, 0};
handle_info(_Other, State) ->
    {noreply, State, 0}.

next({decode, Socks, Next}, State) ->
    lists:foreach(fun weir_socket_decode:deliver/1, Socks),
    next(Next, State);
next(again, State) ->
    look_again(State#state{empty = 0});
next(busy, State) ->
    look_again(State#state{empty = 0, patience = ?LOOKS});
next(nothing, #state{empty = Empty} = State) ->
    look_again(State#state{empty = Empty + 1});
next(idle, #state{patience = Patience} = State) ->
    {noreply, State#state{empty = 0, patience = max(?LOOKS, Patience div 2), slept = erlang:monotonic_time()}};
next(gone, State) ->
    {noreply, State}.

%% Others first; and a message, if there is one.
look_again(State) ->
    true = erlang:yield(),
    {noreply, State, 0}.

woken(#state{slept = Slept, short = Short} = State) ->
    case erlang:monotonic_time() - Slept < Short of
        true -> State#state{patience = ?MORE_LOOKS};
        false -> State
    end.
