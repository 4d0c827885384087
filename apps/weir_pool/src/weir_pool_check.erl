%% @doc Health checks: the manager checks idle workers one after the other, so only one at a time is out of use.
%%
%% Not a process: the manager calls these functions with its state. A task makes each check, because it calls a function
%% of the user's. The manager kills the task when the interval is over. The timer is the manager's own: no shared server
%% of the node can delay it.
%%
%% If a task cannot be spawned, the round ends, and the next one begins after the interval.
%% @private
-module(weir_pool_check).

-export([new/0, begin_round/1, round/1, overdue/2, checked/3]).

-export_type([check/0]).

-include("weir_pool.hrl").
-include("weir_pool_state.hrl").

-record(check, {
    %% Slots that this round has still to check.
    unchecked = [] :: [weir_pool:slot()],
    task = none :: none | {pid(), Monitor :: reference(), weir_pool:slot(), Timer :: reference()}
}).

-opaque check() :: #check{}.

%% @doc Returns the state of a pool's health checks before the first round.
-spec new() -> check().
new() -> #check{}.

%% @doc Sends `check_round' to the manager after the interval, if the pool has a check.
-spec begin_round(#state{}) -> ok.
begin_round(#state{conf = #conf{check = none}}) ->
    ok;
begin_round(#state{conf = #conf{check = {_, Interval}}}) ->
    _ = erlang:send_after(Interval, self(), check_round),
    ok.

%% @doc Begins a round over all slots. Ignores a stray message.
-spec round(#state{}) -> #state{}.
round(#state{conf = #conf{check = {_, _}}, check = #check{task = none} = Check, pool = #pool{limit = Limit}} = State) ->
    next(State#state{check = Check#check{unchecked = weir_pool_slots:entries(1, Limit, State)}});
round(State) ->
    State.

next(#state{check = #check{unchecked = []}} = State) ->
    ok = begin_round(State),
    State;
next(#state{check = #check{unchecked = [Slot | More]} = Check, conf = #conf{check = {Fun, Interval}}} = State) ->
    case weir_pool_slots:reserve(Slot, State) of
        true ->
            case weir_pool_slots:check(Slot, Fun, State) of
                {{Task, Monitor}, Checking} ->
                    Timer = erlang:start_timer(Interval, self(), check),
                    Checking#state{check = Check#check{unchecked = More, task = {Task, Monitor, Slot, Timer}}};
                {none, Unchecked} ->
                    next(Unchecked#state{check = Check#check{unchecked = []}})
            end;
        false ->
            next(State#state{check = Check#check{unchecked = More}})
    end.

%% @doc Kills the task of a check whose time is over. Ignores the timer of an earlier check.
-spec overdue(Timer :: reference(), #state{}) -> ok.
overdue(Timer, #state{check = #check{task = {Task, _Monitor, _Slot, Timer}}}) ->
    true = exit(Task, kill),
    ok;
overdue(_Earlier, _State) ->
    ok.

%% @doc Ends a check, and makes the next. A worker that failed is renewed if it is in its slot still.
-spec checked(Monitor :: reference(), Exit :: term(), #state{}) -> #state{}.
checked(Monitor, Exit, #state{check = #check{task = {_Task, Monitor, Slot, Timer}} = Check} = State) ->
    _ = erlang:cancel_timer(Timer),
    next(weir_pool_slots:examined(Slot, Monitor, Exit, #{why => check}, State#state{check = Check#check{task = none}}));
checked(_Stray, _Exit, State) ->
    State.
