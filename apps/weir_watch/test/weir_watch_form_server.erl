%% A gen_server that does in a call, and in a cast, what it is told when it starts:
%% Fun :: fun((Request, State) -> NewState).
-module(weir_watch_form_server).
-behaviour(gen_server).

-export([start/2, start/3, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start(Init, Fun) -> gen_server:start(?MODULE, {Init, Fun}, []).
start(Name, Init, Fun) -> gen_server:start({local, Name}, ?MODULE, {Init, Fun}, []).

init({Init, Fun}) -> {ok, {Init(), Fun}}.

handle_call(Request, _From, {State, Fun}) -> {reply, ok, {Fun(Request, State), Fun}}.
handle_cast(Request, {State, Fun}) -> {noreply, {Fun(Request, State), Fun}}.
handle_info(Request, {State, Fun}) -> {noreply, {Fun(Request, State), Fun}}.
