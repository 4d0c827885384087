%% @doc The options of a server, checked before a process is made for it.
%%
%% A pure module. The list has two kinds of options. gen_server's options (`timeout', `debug', `hibernate_after',
%% `spawn_opt') go to `gen' unchanged. The options of weir_server become a record.
%%
%% If an option is given twice, the first one counts, as with gen_server, but both must be valid. `debug' must be a
%% list. With wrong elements in that list the server starts, and `gen' logs `ignoring erroneous debug options'.
%% @private
-module(weir_server_opts).

-export([options/0, parse/1, is_backoff/1]).

-export_type([own_option/0]).

-include("weir_server.hrl").

-type own_option() ::
    {drain, auto | pos_integer() | {Min :: pos_integer(), Max :: pos_integer() | infinity}}
    | {batch_bytes, pos_integer() | infinity}
    | {linger, Microseconds :: non_neg_integer()}
    | {max_queue, pos_integer() | infinity}
    | {overload, reject | drop_oldest | drop_newest}.
%% `drain' is the number of messages that the server moves out of its mailbox at a time, and so the size of a batch.
%% `{Min, Max}' moves at least `Min' messages, if the mailbox has them, and up to `Max' if callbacks are slow. `N' is
%% `{N, N}'. `1' moves no messages, as in gen_server. `auto' (the default) moves messages only if callbacks are slow: up
%% to 1000 if the runtime keeps messages off the heap, otherwise all. With `auto' a batch has 64 to 1024 messages.
%%
%% `batch_bytes' (`infinity') is the number of bytes at which a batch ends, estimated by `erlang:external_size/1'.
%% `linger' (0) is the number of microseconds that a batch which is not full waits for more messages. During the last
%% millisecond the server is busy waiting, and yields to other processes.
%%
%% `max_queue' (`infinity') is the number of calls and casts that may wait. `overload' says which message is dropped
%% when more arrive. Messages of the lowest priority are dropped first. Among these, `reject' (the default) drops the
%% newest message, and `drop_oldest' the message that has waited longest. `drop_newest' is another name of `reject'. The
%% caller of a dropped call gets `{error, {overload, _}}' (see {@link weir_server:overload()}). Dropped casts are
%% counted. Infos are neither counted nor dropped, unless `prioritise_info/3' bounds them.

%% @doc Returns each option: its key, whether it is gen's or weir_server's own, and the check of its value. The type
%% own_option() describes the own options. The record #conf{} has a field and a default for each of them.
-spec options() -> [{atom(), gen | own, fun((term()) -> boolean())}].
options() ->
    [
        {timeout, gen, fun is_timeout/1},
        {hibernate_after, gen, fun is_timeout/1},
        {debug, gen, fun is_list/1},
        {spawn_opt, gen, fun is_list/1},
        {drain, own, fun is_drain/1},
        {batch_bytes, own, fun is_limit/1},
        {linger, own, fun(Value) -> is_integer(Value) andalso Value >= 0 end},
        {max_queue, own, fun is_limit/1},
        {overload, own, fun(Value) -> lists:member(Value, [reject, drop_oldest, drop_newest]) end}
    ].

%% @doc Separates gen_server's options from weir_server's, and checks both.
%%
%% `Options' is a list or a map. If several options are wrong, returns the first one in the list, or the first one in
%% the order of the map's keys. Returns an element that is not a pair as a key with the value `undefined'. Raises
%% `badarg' if `Options' is neither a proper list nor a map. Cost: one pass; less than a microsecond for two options.
-spec parse(weir_server:options()) ->
    {ok, [weir_server:start_opt()], #conf{}} | {error, {bad_option, Key :: term(), Value :: term()}}.
parse(Options) when is_map(Options) ->
    parse(lists:sort(maps:to_list(Options)), [], #{});
parse(Options) when is_list(Options), length(Options) >= 0 ->
    parse(Options, [], #{});
parse(Options) ->
    error(badarg, [Options]).

parse([{Key, Value} = Option | Rest], Gen, Own) ->
    case lists:keyfind(Key, 1, options()) of
        {Key, Whose, Is} ->
            case Is(Value) of
                true when Whose =:= gen -> parse(Rest, [Option | Gen], Own);
                true -> parse(Rest, Gen, maps:merge(#{Key => Value}, Own));
                false -> {error, {bad_option, Key, Value}}
            end;
        false ->
            {error, {bad_option, Key, Value}}
    end;
parse([Other | _], _, _) ->
    {error, {bad_option, Other, undefined}};
parse([], Gen, Own) ->
    {ok, lists:reverse(Gen), maps:fold(fun set/3, #conf{queue_data = queue_data(Gen)}, Own)}.

is_timeout(Value) -> Value =:= infinity orelse (is_integer(Value) andalso Value >= 0).

is_drain(auto) -> true;
is_drain({Min, infinity}) -> is_positive(Min);
is_drain({Min, Max}) -> is_positive(Min) andalso is_positive(Max) andalso Min =< Max;
is_drain(Max) -> is_positive(Max).

is_limit(Value) -> Value =:= infinity orelse is_positive(Value).

is_positive(Value) -> is_integer(Value) andalso Value > 0.

set(drain, N, Conf) when is_integer(N) -> Conf#conf{drain = {N, N}};
set(drain, Drain, Conf) -> Conf#conf{drain = Drain};
set(batch_bytes, Bytes, Conf) -> Conf#conf{batch_bytes = Bytes};
set(linger, Microseconds, Conf) -> Conf#conf{linger = Microseconds};
set(max_queue, Max, Conf) -> Conf#conf{max_queue = Max};
set(overload, Policy, Conf) -> Conf#conf{overload = Policy}.

%% Returns whether the user has chosen where the runtime keeps messages.
queue_data(Gen) ->
    case proplists:get_value(spawn_opt, Gen, []) of
        [_ | _] = SpawnOpts when length(SpawnOpts) > 0 ->
            case lists:keymember(message_queue_data, 1, SpawnOpts) of
                true -> given;
                false -> default
            end;
        _ ->
            default
    end.

%% @doc Returns whether a term is a back-off, which `init/1' may return: `{backoff, InitialMs, MinimumMs, DesiredMs}'
%% with integers greater than zero.
-spec is_backoff(term()) -> boolean().
is_backoff({backoff, Initial, Minimum, Desired}) ->
    is_positive(Initial) andalso is_positive(Minimum) andalso is_positive(Desired);
is_backoff(_) ->
    false.
