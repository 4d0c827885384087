%% @doc Keeps pg's scope. Should that fail, it is started again a second later, however often that is; members join it
%% again by themselves, and the views stay as they are. So a pg that fails whenever it hears of another node, as that of
%% OTP 25 does when it hears of one of OTP 28 and later, takes nothing with it.
%% @private
-module(weir_cluster_scope).

-behaviour(gen_server).

-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(AGAIN_MS, 1000).

%% @doc Starts it.
-spec start_link() -> gen_server:start_ret().
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @private
-spec init([]) -> {ok, none}.
init([]) ->
    _ = process_flag(trap_exit, true),
    start_scope(),
    {ok, none}.

%% @private
-spec handle_call(term(), gen_server:from(), none) -> {reply, term(), none}.
handle_call(Request, _From, none) -> {reply, {error, {unknown_call, Request}}, none}.

%% @private
-spec handle_cast(term(), none) -> {noreply, none}.
handle_cast(_Message, none) -> {noreply, none}.

%% @private
-spec handle_info(term(), none) -> {noreply, none}.
handle_info({'EXIT', _Scope, _Reason}, none) ->
    _ = erlang:send_after(?AGAIN_MS, self(), start),
    {noreply, none};
handle_info(start, none) ->
    start_scope(),
    {noreply, none};
handle_info(_Message, none) ->
    {noreply, none}.

start_scope() ->
    case pg:start_link(weir_cluster) of
        {ok, _Pid} ->
            ok;
        {error, _} ->
            _ = erlang:send_after(?AGAIN_MS, self(), start),
            ok
    end.
