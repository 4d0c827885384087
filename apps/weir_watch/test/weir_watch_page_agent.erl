%% An agent for tests, which gives the snapshots that it is told. install/0 puts it into the place of weir_watch_agent.
-module(weir_watch_page_agent).
-behaviour(gen_server).

-export([install/0, uninstall/0, start/0, kill/0, tell/1]).
-export([subscribe/1, next/1]).
-export([init/1, handle_call/3, handle_cast/2]).

%% This module under the name of the true one, for as long as a suite runs.
install() ->
    {ok, {_, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(code:which(?MODULE), [abstract_code]),
    Renamed = lists:map(
        fun
            ({attribute, Line, module, ?MODULE}) -> {attribute, Line, module, weir_watch_agent};
            (Form) -> Form
        end,
        Forms
    ),
    {ok, weir_watch_agent, Code} = compile:forms(Renamed, [nowarn_missing_spec]),
    unload(),
    {module, _} = code:load_binary(weir_watch_agent, "weir_watch_page_agent", Code),
    ok.

uninstall() -> unload().

unload() ->
    _ = code:purge(weir_watch_agent),
    _ = code:delete(weir_watch_agent),
    _ = code:purge(weir_watch_agent),
    ok.

start() -> gen_server:start({local, weir_watch_agent}, ?MODULE, [], []).

kill() ->
    weir_kit:kill(whereis(weir_watch_agent)).

%% Returns when each subscriber has had the snapshot and asked for another. Waits for the first subscriber.
tell(Snapshot) -> gen_server:call(weir_watch_agent, {tell, Snapshot}, weir_kit:wait_ms()).

subscribe(Agent) -> gen_server:cast(Agent, {subscribe, self()}).

next(Agent) -> gen_server:cast(Agent, {next, self()}).

init([]) -> {ok, {none, none}}.

%% {Subscriber, who has told a snapshot and waits}. There is one page.
handle_call({tell, Snapshot}, From, {none, none}) ->
    {noreply, {none, {Snapshot, From}}};
handle_call({tell, Snapshot}, From, {Pid, none}) ->
    Pid ! {weir_watch, self(), Snapshot},
    {noreply, {Pid, {Snapshot, From}}}.

handle_cast({subscribe, Pid}, {_, none}) ->
    {noreply, {Pid, none}};
handle_cast({subscribe, Pid}, {_, {Snapshot, _} = Told}) ->
    Pid ! {weir_watch, self(), Snapshot},
    {noreply, {Pid, Told}};
handle_cast({next, Pid}, {Pid, {_, From}}) ->
    gen_server:reply(From, ok),
    {noreply, {Pid, none}}.
