%% @doc Starts again what the application consists of when it has died: the agent, the page, and what emits telemetry.
%%
%% These are temporary children of the application's supervisor. So none of them can end the supervisor, however often
%% it dies, and with it a node on which the application is permanent. This process, which does nothing else, asks once a
%% second which of them are there, and starts one that is not: after a second, and after twice as long as the last time,
%% a minute at most, when it has lived for less than a minute. One that has ended by itself (`normal', `shutdown', or
%% `{shutdown, _}', as the agent does at its limits) stays away.
%%
%% Killed, it is started again by the supervisor; it has forgotten who has ended by himself then, and starts him.
%% @private
-module(weir_watch_keeper).
-behaviour(gen_server).

-include_lib("kernel/include/logger.hrl").

-export([start_link/2, start_child/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(LOOK_MS, 1000).
-define(LONGEST_MS, 60_000).

-record(part, {
    spec :: supervisor:child_spec(),
    monitor = none :: none | reference(),
    %% When it was first seen alive, and how often in a row it has died soon after.
    since = 0 :: integer(),
    deaths = 0 :: non_neg_integer(),
    %% When it is to be started again.
    next = now_ms() :: integer() | never
}).

-record(state, {
    supervisor :: atom(),
    parts :: #{Id :: term() => #part{}}
}).

%% @doc Starts it for a supervisor, which must be the one that starts it, and the specifications of its other children.
-spec start_link(atom(), [supervisor:child_spec()]) -> {ok, pid()} | {error, term()}.
start_link(Supervisor, Specs) ->
    weir_watch_start:start(fun() -> gen_server:start_link(?MODULE, {Supervisor, Specs}, []) end).

%% @doc Starts a child of the supervisor. One that is there already is started: at the start of the application this
%% process and the one who starts that may both do it.
-spec start_child(atom(), supervisor:child_spec()) -> {ok, pid()} | {error, term()}.
start_child(Supervisor, Spec) ->
    case supervisor:start_child(Supervisor, Spec) of
        {ok, Pid} when is_pid(Pid) ->
            {ok, Pid};
        %% From some OTP on also where somebody else has its name.
        {error, {already_started, Pid} = Reason} ->
            case lists:keymember(Pid, 2, supervisor:which_children(Supervisor)) of
                true -> {ok, Pid};
                false -> {error, Reason}
            end;
        %% Without the options, of which one may be a token.
        {error, {Reason, _Child}} ->
            {error, Reason}
    end.

%% @private
-spec init({atom(), [supervisor:child_spec()]}) -> {ok, #state{}}.
init({Supervisor, Specs}) ->
    look_later(),
    Parts = maps:from_list([{Id, #part{spec = Spec}} || #{id := Id} = Spec <- Specs]),
    {ok, #state{supervisor = Supervisor, parts = Parts}}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, {error, {bad_call, term()}}, #state{}}.
handle_call(Request, _From, State) -> {reply, {error, {bad_call, Request}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(look, #state{supervisor = Supervisor, parts = Parts} = State) ->
    There = maps:from_list([{Id, Pid} || {Id, Pid, _, _} <- supervisor:which_children(Supervisor), is_pid(Pid)]),
    Looked = maps:map(
        fun
            (Id, Part) when is_map_key(Id, There) -> seen(maps:get(Id, There), Part);
            (_Id, #part{monitor = none, next = Next} = Part) when is_integer(Next) -> missing(Supervisor, Part);
            %% Its end is on the way here, or was its own.
            (_Id, Part) -> Part
        end,
        Parts
    ),
    look_later(),
    {noreply, State#state{parts = Looked}};
handle_info({'DOWN', Monitor, process, _, Reason}, #state{parts = Parts} = State) ->
    Ended = fun
        (_Id, #part{monitor = Its} = Part) when Its =:= Monitor -> ended(Reason, Part#part{monitor = none});
        (_Id, Part) -> Part
    end,
    {noreply, State#state{parts = maps:map(Ended, Parts)}};
handle_info(_, State) ->
    {noreply, State}.

seen(Pid, #part{monitor = none} = Part) -> Part#part{monitor = monitor(process, Pid), since = now_ms()};
seen(_Pid, Part) -> Part.

missing(Supervisor, #part{next = Next, spec = #{id := Id} = Spec} = Part) ->
    case now_ms() >= Next of
        true ->
            case start_child(Supervisor, Spec) of
                {ok, Pid} ->
                    seen(Pid, Part);
                {error, Reason} ->
                    Again = died(Part),
                    ok = report([Id, wait_ms(Again) div 1000, Reason]),
                    Again
            end;
        false ->
            Part
    end.

%% The report is another process': a handler of the log may take long. Without room for the process, the next attempt
%% that fails is reported.
report(Args) ->
    _ = try
        spawn(fun() -> ?LOG_WARNING("~tp does not start, and is tried again after ~b s: ~0tp", Args) end)
    catch
        error:system_limit -> none
    end,
    ok.

ended(Reason, Part) when Reason =:= normal; Reason =:= shutdown; element(1, Reason) =:= shutdown ->
    Part#part{next = never};
ended(_Reason, #part{since = Since} = Part) ->
    case now_ms() - Since >= ?LONGEST_MS of
        true -> died(Part#part{deaths = 0});
        false -> died(Part)
    end.

died(#part{deaths = Deaths} = Part) ->
    More = Part#part{deaths = min(Deaths + 1, ?LONGEST_MS)},
    More#part{next = now_ms() + wait_ms(More)}.

wait_ms(#part{deaths = Deaths}) -> min(?LONGEST_MS, ?LOOK_MS bsl min(Deaths - 1, 10)).

look_later() ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    ok.

now_ms() -> erlang:monotonic_time(millisecond).
