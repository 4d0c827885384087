%% @doc Sees to it that sets whose scheduler is offline are served.
%%
%% The poller of a set is bound to the set's scheduler, and does not run while that is offline: not even to die. Nothing
%% tells when a scheduler goes offline or comes back, so this process looks, several times a second. For a set whose
%% scheduler is offline it starts a stand-in, a poller that is not bound; when the scheduler is back, it asks the bound
%% one to serve the set again, and stops the stand-in, which by then has been told `gone'.
%%
%% If it dies, its stand-ins die with it, and the next one starts others: serving a set again is harmless. It takes
%% the bound pollers from the supervisor, which may have started them again meanwhile.
-module(weir_socket_keeper).
-behaviour(gen_server).

-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% How long a set may go without a poller, at most.
-define(PERIOD_MS, 200).

-record(state, {
    sets :: pos_integer(),
    %% How many schedulers were online at the last look.
    online :: pos_integer(),
    %% The bound poller of a set, as the supervisor knows it.
    poller :: fun((Set :: non_neg_integer()) -> pid() | undefined),
    %% By set.
    stand_ins = #{} :: #{non_neg_integer() => pid()}
}).

%% @doc Starts it.
-spec start_link(fun((non_neg_integer()) -> pid() | undefined)) -> {ok, pid()} | {error, term()}.
start_link(Poller) ->
    case gen_server:start_link({local, ?MODULE}, ?MODULE, Poller, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec init(fun((non_neg_integer()) -> pid() | undefined)) -> {ok, #state{}, timeout()}.
init(Poller) ->
    Sets = weir_socket_nif:pollsets(),
    {ok, #state{sets = Sets, online = Sets, poller = Poller}, 0}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, {error, unknown_call}, #state{}, timeout()}.
handle_call(_Request, _From, State) -> {reply, {error, unknown_call}, State, ?PERIOD_MS}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}, timeout()}.
handle_cast(_Other, State) -> {noreply, State, ?PERIOD_MS}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}, timeout()}.
handle_info(_Timeout, #state{online = Before} = State) ->
    case min(erlang:system_info(schedulers_online), State#state.sets) of
        Before -> {noreply, State, ?PERIOD_MS};
        Fewer when Fewer < Before -> {noreply, stand_in(Fewer, Before - 1, State), ?PERIOD_MS};
        More -> {noreply, stand_down(Before, More - 1, State), ?PERIOD_MS}
    end.

%% Sets count from 0, schedulers from 1: with N online, sets 0 to N - 1 have theirs.
stand_in(First, Last, #state{stand_ins = StandIns} = State) ->
    Started = maps:from_list([
        begin
            {ok, Pid} = weir_socket_poller:start_link(Set, free),
            {Set, Pid}
        end
     || Set <- lists:seq(First, Last)
    ]),
    State#state{online = First, stand_ins = maps:merge(StandIns, Started)}.

stand_down(First, Last, #state{poller = Poller, stand_ins = StandIns} = State) ->
    Sets = lists:seq(First, Last),
    lists:foreach(
        fun(Set) ->
            ok = back(Poller(Set)),
            ok = gen_server:stop(maps:get(Set, StandIns))
        end,
        Sets
    ),
    State#state{online = Last + 1, stand_ins = maps:without(Sets, StandIns)}.

%% It serves the set before the stand-in stops. One that the supervisor starts just now serves it by itself.
back(undefined) -> ok;
back(Pid) -> weir_socket_poller:serve(Pid).
