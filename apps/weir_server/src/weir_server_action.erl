%% @doc The actions that a callback may return: weir_server:action().
%%
%% A pure module.
%% @private
-module(weir_server_action).

-export([is_action/1, is_abs/1, start_timer/2]).

-define(is_timeout(X), (X =:= infinity orelse (is_integer(X) andalso X >= 0))).

%% @doc Returns whether a term is an action.
-spec is_action(term()) -> boolean().
is_action(hibernate) -> true;
is_action({continue, _}) -> true;
is_action({Kind, Time, _Message}) when Kind =:= timeout; Kind =:= hibernate -> ?is_timeout(Time);
is_action({Kind, Time, _Message, Options}) when Kind =:= timeout; Kind =:= hibernate -> is_timer(Time, is_abs(Options));
is_action(Time) -> ?is_timeout(Time).

is_timer(_Time, wrong) -> false;
is_timer(Time, true) -> Time =:= infinity orelse is_integer(Time);
is_timer(Time, false) -> ?is_timeout(Time).

%% @doc Returns whether the options of a timer say that its time is absolute. The last such option counts. Returns
%% `wrong' if the term is no options.
-spec is_abs(Options :: term()) -> boolean() | wrong.
is_abs(Options) when is_list(Options) -> is_abs(Options, false);
is_abs(Option) -> is_abs([Option], false).

is_abs([{abs, Abs} | Options], _) when is_boolean(Abs) -> is_abs(Options, Abs);
is_abs([], Abs) -> Abs;
is_abs(_Other, _) -> wrong.

%% @doc Starts the timer of an action. The timer's message has this tag. Returns what the server waits for.
-spec start_timer(weir_server:action(), Tag :: reference()) ->
    infinity | hibernate | {timer, Timer :: reference(), Message :: term(), infinity | hibernate}.
start_timer({Kind, Time, Message}, Tag) -> start_timer({Kind, Time, Message, []}, Tag);
start_timer({Kind, infinity, _Message, _Options}, _Tag) -> sleep(Kind);
start_timer({Kind, Time, Message, Options}, Tag) ->
    {timer, erlang:start_timer(due(Time, is_abs(Options)), self(), Tag, [{abs, true}]), Message, sleep(Kind)}.

sleep(timeout) -> infinity;
sleep(hibernate) -> hibernate.

%% Returns a time in monotonic milliseconds for which the runtime can start a timer. A time in the past is due now.
due(Time, IsAbsolute) ->
    Now = erlang:monotonic_time(millisecond),
    Due =
        case IsAbsolute of
            true -> max(Now, Time);
            false -> Now + Time
        end,
    min(Due, erlang:convert_time_unit(erlang:system_info(end_time), native, millisecond)).
