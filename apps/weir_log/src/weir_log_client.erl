%% @doc What a caller does: finds its writer, makes the entry final, keeps to its window and to the cap, and waits.
%%
%% No process but the caller and the writer takes part, and nothing is monitored: a caller that waits has a fresh
%% reference, which its answer carries. A writer that dies between taking an entry in and answering leaves the caller
%% with `{error, writer_down}', which it gets as weir_log_wait describes: the entry may be in the file.
%%
%% *Window.* Of each process at most `window' entries of alog/2 wait (weir_log_window). At the edge a caller waits until
%% the writer has taken the entry in, or the entry is handled as the log's policy says.
%%
%% *Cap.* The bytes that wait in a shard are a word that callers add to before they send. The entry that crosses the cap
%% is handled as the policy says. An entry that is alone in its shard is always let in.
%%
%% *Policy.* One that waits is sent all the same, and its caller waits till it is written: so above the cap, and above
%% a window, there is at most one entry of each caller, and no order is lost. One that does not wait is taken back.
%%
%% A caller that is killed leaves nothing but, at the worst, the word too high, which the writer mends.
-module(weir_log_client).

-export([log/2, alog/3, admit/2, sync/1, ask_all/2, final/2]).

-include("weir_log.hrl").

%% An entry that is no binary is made one if it has not more bytes than this: sending the parts would copy the list
%% anyway.
-define(FLATTEN, 65_536).

%% Bytes of an entry to which a newline is added by copying it.
-define(APPEND, 512).

%% @doc Sends an entry and waits for what the log was opened for. See {@link weir_log:log/2}.
-spec log(weir_log:log(), iodata()) -> ok | {error, weir_log:error()}.
log(Name, Entry) ->
    case persistent_term:get(?MAIN_KEY(Name), none) of
        #log{format = Format, ack = Ack, shards = Shards} ->
            {Final, Bytes} = final(Format, Entry),
            #shard{words = Words} = Shard = shard(Shards),
            Writer = weir_log_terms:writer(Shard),
            ok = atomics:add(Words, ?QUEUED, ?QUEUED_OF(1, Bytes)),
            ask(Ack, Writer, Bytes, Final);
        none ->
            {error, no_log}
    end.

%% @doc Sends an entry, and waits at the edge of the window. See {@link weir_log:alog/3}.
-spec alog(weir_log:log(), iodata(), weir_log:level()) -> ok | {error, weir_log:error()}.
alog(Name, Entry, Level) ->
    Key = ?MAIN_KEY(Name),
    case persistent_term:get(Key, none) of
        #log{format = Format, max_bytes = Max, shards = Shards} = Log ->
            {Final, Bytes} = final(Format, Entry),
            #shard{words = Words} = Shard = shard(Shards),
            Writer = weir_log_terms:writer(Shard),
            case atomics:add_get(Words, ?QUEUED, ?QUEUED_OF(1, Bytes)) of
                %% An atom is greater than any number.
                Queued when ?QUEUED_BYTES(Queued) =< Max; ?QUEUED_ENTRIES(Queued) =< 1 ->
                    send(Log, Key, Words, Level, Writer, Bytes, Final);
                _ ->
                    overloaded(Log, Words, Level, Writer, Bytes, Final)
            end;
        none ->
            {error, no_log}
    end.

send(#log{overload = wait, window = Window}, Key, _Words, _Level, Writer, Bytes, Entry) ->
    case weir_log_window:take(Key, Window) of
        free -> tell(Writer, {alog, Bytes, Entry});
        edge -> ask(accepted, Writer, Bytes, Entry)
    end;
send(#log{window = Window} = Log, Key, Words, Level, Writer, Bytes, Entry) ->
    case weir_log_window:take(Key, Window, Writer) of
        free -> tell(Writer, {alog, Bytes, Entry});
        {count, Count} -> tell(Writer, {counted, Count, Bytes, Entry});
        full -> overloaded(Log, Words, Level, Writer, Bytes, Entry)
    end.

overloaded(Log, Words, Level, Writer, Bytes, Entry) ->
    case refused(Log, Words, Level, Writer) of
        ok ->
            wait(Words, Writer, Bytes, Entry);
        {error, _} = Refused ->
            ok = atomics:sub(Words, ?QUEUED, ?QUEUED_OF(1, Bytes)),
            Refused
    end.

%% What the policy says of an entry that meets the cap or the edge of the window; one that is not to wait is counted.
%% The writer may have nothing to do, and then does not see that something is wrong.
refused(#log{overload = wait}, _Words, _Level, _Writer) ->
    ok;
refused(#log{overload = reject, name = Name}, Words, _Level, Writer) ->
    ok = atomics:add(Words, ?REJECTED, 1),
    ok = nudge(Words, Writer),
    {error, {overload, Name}};
refused(#log{overload = {drop, What}, name = Name}, Words, Level, Writer) ->
    case is_dropped(What, Level) of
        true ->
            ok = weir_log_drops:drop(Words, Level),
            ok = nudge(Words, Writer),
            {error, {dropped, Name}};
        false ->
            ok
    end.

nudge(Words, Writer) ->
    case atomics:compare_exchange(Words, ?NUDGED, 0, 1) of
        ok -> tell(Writer, look);
        _ -> ok
    end.

wait(Words, Writer, Bytes, Entry) ->
    ok = atomics:add(Words, ?WAITED, 1),
    ask(written, Writer, Bytes, Entry).

is_dropped(What, none) when is_atom(What) -> true;
is_dropped(What, Level) when is_atom(What) -> logger:compare_levels(Level, What) =:= lt;
is_dropped(Fun, Level) ->
    %% A function that fails drops nothing.
    try
        Fun(Level) =:= true
    catch
        _:_ -> false
    end.

%% @doc Whether an entry of one byte would be taken in now, or waited for. See {@link weir_log:admit/2}.
-spec admit(weir_log:log(), weir_log:level()) ->
    ok | {error, no_log | {overload, weir_log:log()} | {dropped, weir_log:log()}}.
admit(Name, Level) ->
    Key = ?MAIN_KEY(Name),
    case persistent_term:get(Key, none) of
        #log{overload = wait} ->
            ok;
        #log{window = Window, max_bytes = Max, shards = Shards} = Log ->
            #shard{words = Words} = Shard = shard(Shards),
            Writer = weir_log_terms:writer(Shard),
            Queued = atomics:get(Words, ?QUEUED),
            IsOver = ?QUEUED_BYTES(Queued) >= Max andalso ?QUEUED_ENTRIES(Queued) >= 1,
            case IsOver orelse weir_log_window:is_full(Key, Window, Writer) of
                false -> ok;
                true -> refused(Log, Words, Level, Writer)
            end;
        none ->
            {error, no_log}
    end.

%% @doc Waits until everything that was sent to any shard before is durable. All shards sync at the same time.
-spec sync(weir_log:log()) -> ok | {error, weir_log:error()}.
sync(Name) ->
    all(
        Name,
        fun(Writer) ->
            Ref = make_ref(),
            ok = tell(Writer, {sync, self(), Ref}),
            {Writer, Ref}
        end,
        fun
            ({none, _Ref}) -> {error, no_log};
            ({Writer, Ref}) -> weir_log_wait:answer(Writer, Ref)
        end
    ).

%% @doc Calls all writers at the same time. See {@link weir_log:rotate/1}.
-spec ask_all(weir_log:log(), rotate | reopen) -> ok | {error, weir_log:error()}.
ask_all(Name, Request) ->
    all(
        Name,
        fun(Writer) -> gen_server:send_request(Writer, Request) end,
        fun(Asked) ->
            case gen_server:receive_response(Asked, infinity) of
                {reply, Answer} -> Answer;
                {error, {_Reason, _Writer}} -> {error, writer_down}
            end
        end
    ).

%% Asks the writers of all shards before it waits for the first answer. The first error, if there is one.
all(Name, Ask, Await) ->
    case weir_log_terms:log(Name) of
        #log{} = Log ->
            Answers = lists:map(Await, lists:map(Ask, weir_log_terms:writers(Log))),
            case [Error || {error, _} = Error <- Answers] of
                [] -> ok;
                [Error | _] -> Error
            end;
        none ->
            {error, no_log}
    end.

%% ---------------------------------------------------------------- sending and waiting

%% A process keeps to its shard. The hash of a pid does not depend on where the process runs.
shard({Shard}) -> Shard;
shard(Shards) -> element(erlang:phash2(self(), tuple_size(Shards)) + 1, Shards).

tell(none, _Message) ->
    ok;
tell(Writer, Message) ->
    Writer ! Message,
    ok.

ask(_Ack, none, _Bytes, _Entry) ->
    {error, no_log};
ask(Ack, Writer, Bytes, Entry) ->
    Ref = make_ref(),
    Writer ! {Ack, self(), Ref, Bytes, Entry},
    weir_log_wait:answer(Writer, Ref).

%% @doc An entry as it goes into the file, and its bytes. Raises `badarg' for what is no iodata.
-spec final(raw | newline | frame, iodata()) -> {iodata(), Bytes :: non_neg_integer()}.
final(raw, Entry) when is_binary(Entry) ->
    {Entry, byte_size(Entry)};
final(raw, Entry) ->
    flatten(Entry, iolist_size(Entry));
final(newline, Entry) when byte_size(Entry) =< ?APPEND ->
    {<<Entry/binary, $\n>>, byte_size(Entry) + 1};
final(newline, Entry) ->
    flatten([Entry, $\n], iolist_size(Entry) + 1);
final(frame, Entry) ->
    Framed = weir_log_frame:entry([<<(erlang:system_time(microsecond)):64>>, Entry]),
    flatten(Framed, iolist_size(Framed)).

flatten(Entry, Bytes) when Bytes =< ?FLATTEN -> {iolist_to_binary(Entry), Bytes};
flatten(Entry, Bytes) -> {Entry, Bytes}.
