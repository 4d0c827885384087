%% @doc The hand of a handler's keeper: does what may take long, one thing after the other, so that the keeper need not
%% wait.
%%
%% Protocol: the keeper, to which it is linked, gives it a function, and is sent `{done, Hand, ok | {error, Reason}}'.
%% What a function raises is an error too. Functions that are given before the first is done wait. If the hand is
%% killed, what it was doing may be done or not, and what waits is not; the keeper hears of it by the link. If the
%% keeper is killed, the hand ends with it.
%%
%% A gen_server, so that no function of this module is on its stack while it waits, and new versions of the code can be
%% loaded.
-module(weir_log_h_hand).
-behaviour(gen_server).

-export([start_link/0, do/2, stop/1]).
-export([init/1, handle_call/3, handle_cast/2]).

-type result() :: ok | {ok, term()} | {error, term()}.

%% @doc Starts a hand of the calling process.
-spec start_link() -> pid().
start_link() ->
    {ok, Hand} = gen_server:start_link(?MODULE, [], []),
    Hand.

%% @doc Has it do something. Returns at once.
-spec do(pid(), fun(() -> result())) -> ok.
do(Hand, Fun) -> gen_server:cast(Hand, {do, self(), Fun}).

%% @doc Has it end when it has done all that it was given. Returns at once.
-spec stop(pid()) -> ok.
stop(Hand) -> gen_server:cast(Hand, stop).

%% @private
-spec init([]) -> {ok, none}.
init([]) -> {ok, none}.

%% @private
-spec handle_call(term(), gen_server:from(), none) -> {reply, {error, {bad_call, term()}}, none}.
handle_call(Request, _From, none) -> {reply, {error, {bad_call, Request}}, none}.

%% @private
-spec handle_cast({do, pid(), fun(() -> result())} | stop, none) -> {noreply, none} | {stop, normal, none}.
handle_cast({do, Keeper, Fun}, none) ->
    Keeper ! {done, self(), weir_log_h_keeper:attempt(Fun)},
    {noreply, none};
handle_cast(stop, none) ->
    {stop, normal, none}.
