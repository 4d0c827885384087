%% Windows under random sequences of casts, with and without time limits, to receivers that are blocked, released,
%% suspended, resumed and killed meanwhile.
-module(weir_flow_prop_SUITE).

-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_flow_test_machine, [changes/1]).

-define(STATEM, weir_flow_test_machine).
-define(RECEIVERS, [weir_flow_r1, weir_flow_r2]).
%% Senders with their windows.
-define(SENDERS, [{weir_flow_s1, 2}, {weir_flow_s2, 3}, {weir_flow_s3, 8}]).

all() -> weir_kit:cases(?MODULE).

end_per_testcase(_Case, _Config) -> weir_flow_test_lib:no_stray().

initial_state() -> maps:from_list([{Receiver, running} || Receiver <- ?RECEIVERS]).

command(State) ->
    %% A sender without a time limit makes no further casts until its receiver goes on.
    Timeout = frequency([{1, infinity}, {2, 0}, {3, 1}, {1, 5}]),
    frequency([{80, {call, ?MODULE, cast, [elements(?SENDERS), elements(?RECEIVERS), Timeout, range(1, 12)]}}
        | changes(State)]).

precondition(State, Call) -> ?STATEM:precondition(State, Call).

next_state(State, _Result, Call) -> ?STATEM:next_state(State, Call).

postcondition(State, Call, Result) ->
    After = next_state(State, Result, Call),
    Result =:= ok andalso lists:all(fun({R, Now}) -> is_bounded(Now, whereis(R)) end, maps:to_list(After)).

%% A receiver that handles nothing has at most two requests of each sender: of the sender, and of its watch.
is_bounded(running, _Pid) ->
    true;
is_bounded(Now, Pid) ->
    {messages, Messages} = process_info(Pid, messages),
    Requests = [x || {system, _, _} <- Messages],
    length(Requests) =< 2 * length(?SENDERS) andalso
        lists:all(
            fun({Sender, Window}) ->
                Notes = [x || {'$gen_cast', {note, {S, _}}} <- Messages, S =:= whereis(Sender)],
                length(Notes) =< most(Now, Window)
            end,
            ?SENDERS
        ).

most(blocked, Window) -> Window - 1;
most(suspended, Window) -> 16 * (Window - 1).

cast({Sender, Window}, Receiver, Timeout, Count) ->
    ok = ?STATEM:cast(Sender, Receiver, #{window => Window, timeout => Timeout}, Count),
    ?STATEM:await_burst(Sender).

random_sequences(_Config) ->
    ?STATEM:holds(?MODULE, fun set_up/0, fun wrong/1, [{numtests, weir_kit:long(50, 100)}, {max_size, 100}]).

%% Senders cast without a pause, and each change follows the change before it at once.
everything_at_once(_Config) ->
    try
        set_up(),
        _ = rand:seed(exsss, {1, 2, 3}),
        weir_kit:none(wrong, wrong(lists:foldl(fun change_and_cast/2, initial_state(), lists:seq(1, 300))))
    after
        ?STATEM:clean_up()
    end.

change_and_cast(N, State) ->
    Timeout = element(N rem 3 + 1, {infinity, 0, 1}),
    [?STATEM:cast(S, R, #{window => W, timeout => Timeout}, 3) || {S, W} <- ?SENDERS, R <- ?RECEIVERS],
    Changes = changes(State),
    {_, {call, Module, Change, Args} = Call} = lists:nth(rand:uniform(length(Changes)), Changes),
    ok = apply(Module, Change, Args),
    ?STATEM:next_state(State, Call).

set_up() ->
    Start = fun() -> element(2, {ok, _} = weir_flow_test_receiver:start(gen_server)) end,
    ?STATEM:set_up([{Name, Start} || Name <- ?RECEIVERS], [Name || {Name, _} <- ?SENDERS]).

wrong(State) -> ?STATEM:wrong(State, fun(_Receiver) -> [] end).
