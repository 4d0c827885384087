%% @doc Keeps pg's scope, and takes greetings for members of this node.
%%
%% Should the scope fail, it is started again a second later, and then after twice as long each time, up to a minute;
%% members join it again by themselves, and the views stay as they are. So a pg that fails whenever it hears of another
%% node, as that of OTP 25 does when it hears of one of OTP 28 and later, takes nothing with it.
%%
%% A member that has no pg cannot see the others there. It greets them here: `{hello, Name, Member, Info}' is handed on
%% to the member of that name, if there is one.
%% @private
-module(weir_cluster_scope).

-behaviour(gen_server).

-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% Until the next start: at first and at most. One that ran for longer than the latter begins anew.
-define(FIRST_MS, 1000).
-define(MOST_MS, 60_000).

-record(state, {
    %% What starts the scope again.
    timer = none :: none | reference(),
    wait = ?FIRST_MS :: pos_integer(),
    started :: integer()
}).

%% @doc Starts it.
-spec start_link() -> gen_server:start_ret().
start_link() -> weir_cluster_start:start(fun() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []) end).

%% @private
-spec init([]) -> {ok, #state{}}.
init([]) ->
    _ = process_flag(trap_exit, true),
    {ok, start_scope(#state{started = now_ms()})}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(Request, _From, State) -> {reply, {error, {unknown_call, Request}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Message, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({'EXIT', _Scope, _Reason}, State) ->
    {noreply, again(State)};
handle_info({timeout, Timer, start}, #state{timer = Timer} = State) ->
    {noreply, start_scope(State#state{timer = none})};
handle_info({hello, Name, Member, Info}, State) ->
    _ = [Here ! {hello_without_pg, Member, Info} || {ok, Here} <- [weir_cluster_view:member(Name)]],
    {noreply, State};
handle_info(_Message, State) ->
    {noreply, State}.

start_scope(State) ->
    try pg:start_link(weir_cluster) of
        {ok, _Pid} -> State#state{started = now_ms()};
        {error, _} -> again(State)
    catch
        error:system_limit -> again(State)
    end.

%% Of a start that failed both its result and its exit are told.
again(#state{timer = none, wait = Wait, started = Started} = State) ->
    Next = case now_ms() - Started > ?MOST_MS of
        true -> ?FIRST_MS;
        false -> Wait
    end,
    State#state{timer = erlang:start_timer(Next, self(), start), wait = min(2 * Next, ?MOST_MS)};
again(State) ->
    State.

now_ms() -> erlang:monotonic_time(millisecond).
