%% @doc The options of a server, checked before a process is made for it.
%%
%% A pure module: no process, no state. There are two kinds of options in one list. gen_server's (`timeout', `debug',
%% `hibernate_after', `spawn_opt') are handed on to `gen' as they are, so they mean what they mean there. The others
%% are weir_server's and become a record.
%%
%% Of an option that is given twice the first one counts, as with gen_server, but both must be valid. `debug' is
%% checked for being a list and no further: gen_server logs `ignoring erroneous debug options' and starts all the same.
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
%% `drain': how many messages are moved out of the mailbox at a time, and so the size of a batch. `{Min, Max}': `Min' in
%% any case, if there are so many, and up to `Max' when that is worth it; `N' is `{N, N}',
%% and `1' is as in gen_server: nothing is drained. `auto' (default): none in any case, and up to 1000 if messages are
%% kept off the heap, all otherwise; batches of 64 to 1024.
%%
%% `batch_bytes': a batch ends when it is estimated to have this many bytes, by `erlang:external_size/1' (`infinity').
%% `linger': how long a batch that is not full is waited for, in microseconds (0); below a millisecond the
%% server is busy waiting, and lets others run.
%%
%% `max_queue': how many calls and casts may wait (`infinity'). `overload': what happens to more. `reject' (default),
%% which queueing disciplines call `drop_newest': the message that comes is not let in, unless one of a lower priority
%% waits, of which the newest goes. `drop_oldest': the one that has waited longest, of the lowest priority, goes
%% instead. A call that is not let in or goes is answered `{error, {overload, _}}' (see {@link weir_server:overload()});
%% casts are counted. Infos are neither counted nor dropped, unless `prioritise_info/3' says so.

%% @doc Every option: its key, whose it is, gen's or ours, and what says whether a value is one. The type above tells
%% users of ours; the record #conf{} has a field of each one's name, and its default.
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
%% `Options' is a list or a map. Of several mistakes the first in the list is reported, or the first in the order of
%% the keys of a map. An element of a list that is not a pair is reported with the value `undefined'. Neither a proper
%% list nor a map: `badarg'.
%% Cost: one pass; less than a microsecond for two options.
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

%% Whether the user has chosen where messages are kept.
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

%% @doc Whether a term is what `init/1' may return to have the time before hibernation adapted:
%% `{backoff, InitialMs, MinimumMs, DesiredMs}', each an integer greater than zero.
-spec is_backoff(term()) -> boolean().
is_backoff({backoff, Initial, Minimum, Desired}) ->
    is_positive(Initial) andalso is_positive(Minimum) andalso is_positive(Desired);
is_backoff(_) ->
    false.
