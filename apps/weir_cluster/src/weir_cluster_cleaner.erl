%% @doc Takes what a published pool has left away, when it is published no longer. The first child of its supervisor, so
%% the last that is stopped; those behind it may be started again without callers noticing.
%% @private
-module(weir_cluster_cleaner).

-behaviour(gen_server).

-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, terminate/2]).

-include("weir_cluster.hrl").

%% @doc Starts it.
-spec start_link(#conf{}) -> gen_server:start_ret().
start_link(#conf{name = Name}) -> weir_cluster_start:start(fun() -> gen_server:start_link(?MODULE, Name, []) end).

%% @private
-spec init(weir_pool:name()) -> {ok, weir_pool:name()}.
init(Name) ->
    _ = process_flag(trap_exit, true),
    ok = weir_cluster_view:put_process(Name, cleaner),
    {ok, Name}.

%% @private
-spec handle_call(term(), gen_server:from(), weir_pool:name()) -> {reply, term(), weir_pool:name()}.
handle_call(Request, _From, Name) -> {reply, {error, {unknown_call, Request}}, Name}.

%% @private
-spec handle_cast(term(), weir_pool:name()) -> {noreply, weir_pool:name()}.
handle_cast(_Message, Name) -> {noreply, Name}.

%% @private
-spec terminate(term(), weir_pool:name()) -> ok.
terminate(_Reason, Name) ->
    %% When the supervisor was killed they are ending too, and may still write.
    ok = weir_cluster_view:await_children(Name),
    weir_cluster_view:close(Name).
