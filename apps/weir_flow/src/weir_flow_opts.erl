%% @private Options of a call, as a window alone, a map or a keyword list, and the texts about wrong options.
%%
%% All functions are pure. Each call checks a map again, for about 50 ns.
-module(weir_flow_opts).

-export([check/1, format_error/2]).

-include("weir_flow.hrl").

%% @doc Checks options and fills in the defaults. If a key or a value is not in {@link weir_flow:opts()}, fails with
%% `badarg'.
-spec check(weir_flow:window() | weir_flow:opts()) -> #opts{}.
check(Window) when ?is_window(Window) ->
    #opts{window = Window, free = Window - 1};
check(Options) when is_map(Options) ->
    {Windows, Window} = window(Options),
    {Timeouts, Timeout} = timeout(Options),
    {Limits, Limit} = limit(Options),
    %% If the map has more keys than were found, it has an unknown key.
    case
        ?is_window(Window) andalso is_timeout(Timeout) andalso is_limit(Limit) andalso
            map_size(Options) =:= Windows + Timeouts + Limits
    of
        true -> #opts{window = Window, timeout = Timeout, limit = Limit, free = free(Window, Timeout, Limit)};
        false -> ?BADARG([Options], #{1 => why_not(Options)})
    end;
check([{_, _} | _] = Options) ->
    %% The first of several values of a key counts, as in proplists and keywords.
    try maps:from_list(lists:reverse(Options)) of
        Map -> check(Map)
    catch
        error:_ -> ?BADARG([Options], #{1 => "not a list of pairs"})
    end;
check([]) ->
    check(#{});
check(Window) when is_integer(Window) ->
    ?BADARG([Window], #{1 => why_not(#{window => Window})});
check(Options) ->
    ?BADARG([Options], #{1 => "neither a window nor a map or keyword list of options"}).

why_not(Options) ->
    Known = #{
        window => {fun(Window) -> ?is_window(Window) end, "an integer from 2 to 134217727"},
        timeout => {fun is_timeout/1, "milliseconds or infinity"},
        limit => {fun is_limit/1, "none, wait or busy"}
    },
    hd([Why || {Key, Value} <- lists:sort(maps:to_list(Options)), Why <- why_not(Key, Value, Known)]).

why_not(Key, Value, Known) ->
    case Known of
        #{Key := {Is, What}} -> [text("option ~tp is not ~ts: ~tp", [Key, What, Value]) || not Is(Value)];
        #{} -> [text("no such option: ~tp; there are window, timeout and limit", [Key])]
    end.

text(Format, Args) -> unicode:characters_to_list(io_lib:format(Format, Args)).

%% @doc Returns a text for the shell about each wrong argument.
-spec format_error(term(), erlang:stacktrace()) -> #{pos_integer() => string()}.
format_error(_Reason, [{_Module, _Function, _Args, Info} | _]) ->
    #{cause := Causes} = proplists:get_value(error_info, Info, #{cause => #{}}),
    Causes.

window(#{window := Window}) -> {1, Window};
window(#{}) -> {0, ?DEFAULT_WINDOW}.

timeout(#{timeout := Timeout}) -> {1, Timeout};
timeout(#{}) -> {0, infinity}.

limit(#{limit := Limit}) -> {1, Limit};
limit(#{}) -> {0, none}.

%% Returns the number of messages below which a message goes out at once. A sender that never waits asks behind the last
%% message of a window, so that message takes the slow path too. With a limit, every message takes the slow path.
free(Window, 0, none) -> Window - 2;
free(Window, _Timeout, none) -> Window - 1;
free(_Window, _Timeout, _Limit) -> 0.

is_timeout(infinity) -> true;
is_timeout(Ms) -> is_integer(Ms) andalso Ms >= 0 andalso Ms =< ?MAX_MS.

is_limit(Limit) -> Limit =:= none orelse Limit =:= wait orelse Limit =:= busy.
