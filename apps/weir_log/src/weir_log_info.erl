%% @doc What weir_log:info/1 says, and weir_log:change/2 changes: a log as a whole, for those who run it.
%%
%% Everything but the state of the files is read in the caller, and is there however busy a writer is. Of the
%% counters, which change meanwhile, no two need to agree.
%% @private
-module(weir_log_info).

-export([info/1, change/2]).

-include("weir_log.hrl").

%% Milliseconds that writers are waited for.
-define(WAIT_MS, 1000).

%% @doc See {@link weir_log:info/1}.
-spec info(weir_log:log()) -> {ok, weir_log:info()} | {error, no_log}.
info(Name) ->
    case {weir_log_terms:log(Name), weir_log_registry:files(Name)} of
        {#log{} = Log, {ok, Paths}} -> {ok, info(Log, Paths)};
        _ -> {error, no_log}
    end.

%% @doc See {@link weir_log:change/2}.
-spec change(weir_log:log(), map()) -> ok | {error, term()}.
change(Name, Changes) ->
    case weir_log_terms:log(Name) of
        #log{id = Id, conf = Conf, shards = Shards} ->
            case weir_log_opts:change(Changes, Conf) of
                {ok, Changed} ->
                    case weir_log_registry:open(weir_log_terms:new(Name, Id, Changed, tuple_to_list(Shards))) of
                        ok -> weir_log_client:ask_all(Name, {change, Changed});
                        {error, gone} -> {error, no_log}
                    end;
                {error, Reason} ->
                    {error, Reason}
            end;
        none ->
            {error, no_log}
    end.

info(#log{shards = Shards} = Log, Paths) ->
    Until = erlang:monotonic_time(millisecond) + ?WAIT_MS,
    Asked = [
        {Path, Shard, ask(weir_log_terms:writer(Shard))}
     || {Path, Shard} <- lists:zip(Paths, tuple_to_list(Shards))
    ],
    Infos = [shard(Path, Shard, Question, Until) || {Path, Shard, Question} <- Asked],
    Counters = [weir_log_terms:counters(Shard) || Shard <- tuple_to_list(Shards)],
    maps:merge(sum(Counters), #{
        name => Log#log.name,
        ack => Log#log.ack,
        format => Log#log.format,
        window => Log#log.window,
        max_bytes => Log#log.max_bytes,
        overload => Log#log.overload,
        timeout => Log#log.timeout,
        shards => Infos
    }).

%% The question itself is not to be seen in the queue.
ask(none) ->
    #{writer => none, queue => 0};
ask(Writer) ->
    Queue =
        case process_info(Writer, message_queue_len) of
            {message_queue_len, Length} -> Length;
            undefined -> 0
        end,
    #{writer => Writer, queue => Queue, request => gen_server:send_request(Writer, info)}.

shard(Path, Shard, #{writer := Writer, queue := Queue} = Question, Until) ->
    {Entries, Bytes} = weir_log_terms:queued(Shard),
    Counters = weir_log_terms:counters(Shard),
    Counters#{
        path => Path,
        writer => Writer,
        queue => Queue,
        waiting_entries => Entries,
        waiting_bytes => Bytes,
        lost_by_level => weir_log_drops:by_level([Shard#shard.words]),
        stuck => atomics:get(Shard#shard.words, ?STUCK) =:= 1,
        file => file(Question, Until)
    }.

file(#{request := Request}, Until) ->
    case gen_server:receive_response(Request, {abs, Until}) of
        {reply, {ok, Info}} -> Info;
        _ -> busy
    end;
file(#{}, _Until) ->
    busy.

sum(Counters) ->
    lists:foldl(
        fun(Map, Sums) -> maps:fold(fun add/3, Sums, Map) end,
        #{},
        Counters
    ).

add(largest_batch, Value, Sums) -> Sums#{largest_batch => max(Value, maps:get(largest_batch, Sums, 0))};
add(Key, Value, Sums) -> Sums#{Key => Value + maps:get(Key, Sums, 0)}.
