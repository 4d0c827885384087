%% @doc What a caller does: finds its writer, makes the entry final, keeps to its window and to the cap, and waits.
%%
%% No process but the caller and the writer takes part. A caller that waits monitors the writer, so it learns of its
%% death. If it does not wait for ever the answer goes to an alias, so that one that comes too late is nobody's; an
%% alias costs 0.7 us of processor time more (OTP 25). The reference is made and waited for in one function, by which
%% the runtime skips what was in the mailbox before.
%%
%% *Window.* Of each process at most `window' entries of alog/2 wait (weir_log_window). At the edge a caller waits until
%% the writer has taken the entry in, or the entry is handled as the log's policy says.
%%
%% *Cap.* The bytes that wait in a shard are a word that callers add to before they send. An entry that finds
%% `max_bytes' there already is handled as the policy says.
%%
%% *Policy.* One that waits is sent all the same, and its caller waits till it is written: so above the cap, and above
%% a window, there is at most one entry of each caller, and no order is lost. One that does not wait is taken back.
%%
%% *Stuck.* Who has waited for the log's `timeout' in vain sets the word STUCK, and has the writer told to look; from
%% then on nobody waits, and what would have to is dropped, until the writer does look. So the first callers wait for
%% the time-out, once, and a node whose disk stands still goes on.
%%
%% A caller that is killed leaves nothing but, at the worst, the word too high, which the writer mends.
%% @private
-module(weir_log_client).

-export([log/3, log/4, alog/3, offer/3, drop/2, ask_all/2, ask_all/3, final/2, max_framed/0, format_error/2]).

-include("weir_log.hrl").

%% Bytes of an entry to which a newline is added by copying it.
-define(APPEND, 512).

%% The time of the call, in the frame before the entry.
-define(TIME_BYTES, 8).

%% The bytes of a binary that is copied into the message, whatever it refers to.
-define(HEAP_BINARY, 64).

%% @doc Sends an entry and waits for what the log was opened for. See {@link weir_log:log/3}.
-spec log(weir_log:log(), iodata(), weir_log:level()) -> ok | {error, weir_log:error()}.
log(Name, Entry, Level) -> log(as_opened, Name, Entry, Level).

%% @doc As log/3, and may wait for something else than the log was opened for.
-spec log(weir_log:ack() | as_opened, weir_log:log(), iodata(), weir_log:level()) -> ok | {error, weir_log:error()}.
log(Ack, Name, Entry, Level) ->
    case persistent_term:get(?MAIN_KEY(Name), none) of
        #log{format = Format, shards = Shards} = Log ->
            {Final, Bytes} = final(Format, Entry),
            #shard{words = Words} = Shard = shard(Shards),
            Writer = weir_log_terms:writer(Shard),
            ok = atomics:add(Words, ?QUEUED, ?QUEUED_OF(1, Bytes)),
            wait(ack(Ack, Log), Log, Words, Writer, Level, Bytes, Final);
        none ->
            {error, no_log}
    end.

ack(as_opened, #log{ack = Ack}) -> Ack;
ack(Ack, #log{}) -> Ack.

%% @doc Sends an entry, and waits at the edge of the window. See {@link weir_log:alog/3}.
-spec alog(weir_log:log(), weir_log:entry(), weir_log:level()) -> ok | {error, weir_log:error()}.
alog(Name, Entry, Level) ->
    Key = ?MAIN_KEY(Name),
    case persistent_term:get(Key, none) of
        #log{shards = Shards} = Log ->
            #shard{words = Words} = Shard = shard(Shards),
            Writer = weir_log_terms:writer(Shard),
            IsOver = is_function(Entry) andalso is_over(Log, Key, Words, Writer),
            case IsOver andalso refused(Log, Words, Level) of
                {error, _} = Refused -> Refused;
                _ -> send(Log, Key, Words, Writer, Level, made(Entry))
            end;
        none ->
            {error, no_log}
    end.

%% Whether an entry that is not made yet would meet the edge or the cap.
is_over(#log{overload = wait}, _Key, _Words, _Writer) ->
    false;
is_over(#log{window = Window, max_bytes = Max}, Key, Words, Writer) ->
    not is_below(atomics:get(Words, ?QUEUED), Max) orelse weir_log_window:is_full(Key, Window, Writer).

made(Entry) when is_function(Entry, 0) -> Entry();
made(Entry) -> Entry.

send(#log{format = Format, overload = Overload, window = Window} = Log, Key, Words, Writer, Level, Entry) ->
    {Final, Bytes} = final(Format, Entry),
    case has_room(Log, Words, Bytes) of
        true when Overload =:= wait ->
            case weir_log_window:take(Key, Window) of
                free -> tell(Writer, {alog, Level, Bytes, Final});
                edge -> at_edge(wait(accepted, Log, Words, Writer, Level, Bytes, Final), Key)
            end;
        true ->
            case weir_log_window:take(Key, Window, Writer) of
                free -> tell(Writer, {alog, Level, Bytes, Final});
                {count, Count} -> tell(Writer, {counted, Count, Level, Bytes, Final});
                full -> overloaded(Log, Words, Writer, Level, Bytes, Final)
            end;
        false ->
            overloaded(Log, Words, Writer, Level, Bytes, Final)
    end.

%% Who has not learned that its entries were taken in is at the edge still.
at_edge({error, Why} = Error, Key) when Why =:= timeout; element(1, Why) =:= stuck ->
    ok = weir_log_window:stay(Key),
    Error;
at_edge(Result, _Key) ->
    Result.

%% Counts an entry as waiting. An atom is greater than any number.
has_room(#log{max_bytes = Max}, Words, Bytes) ->
    Own = ?QUEUED_OF(1, Bytes),
    is_below(atomics:add_get(Words, ?QUEUED, Own) - Own, Max).

%% The word may be too low, below zero even: see weir_log_writer.
is_below(Word, _Max) when Word < 0 -> true;
is_below(Word, Max) -> ?QUEUED_BYTES(Word) < Max.

overloaded(Log, Words, Writer, Level, Bytes, Entry) ->
    case refused(Log, Words, Level) of
        ok ->
            ok = atomics:add(Words, ?WAITED, 1),
            wait(written, Log, Words, Writer, Level, Bytes, Entry);
        {error, _} = Refused ->
            ok = atomics:sub(Words, ?QUEUED, ?QUEUED_OF(1, Bytes)),
            Refused
    end.

%% What the policy says of an entry that meets the cap or the edge of the window; one that is not to wait is counted.
refused(#log{overload = wait}, _Words, _Level) ->
    ok;
refused(#log{overload = reject, name = Name} = Log, Words, _Level) ->
    ok = atomics:add(Words, ?REJECTED, 1),
    ok = nudge(Log, Words),
    {error, {overload, Name}};
refused(#log{overload = {drop, What}, name = Name} = Log, Words, Level) ->
    case is_dropped(What, Level) of
        true -> dropped(Log, Words, Level, {dropped, Name});
        false -> ok
    end.

is_dropped(What, none) when is_atom(What) -> true;
is_dropped(What, Level) when is_atom(What) -> logger:compare_levels(Level, What) =:= lt;
is_dropped(Fun, Level) ->
    %% A function that fails drops nothing.
    try
        Fun(Level) =:= true
    catch
        _:_ -> false
    end.

dropped(Log, Words, Level, Why) ->
    ok = weir_log_drops:drop(Words, Level),
    ok = nudge(Log, Words),
    {error, Why}.

%% The writer may have nothing to do, and then does not see that something is wrong.
nudge(Log, Words) ->
    case atomics:compare_exchange(Words, ?NUDGED, 0, 1) of
        ok -> have_it_look(Log);
        _ -> ok
    end.

%% The writer's pid is read after NUDGED is set: one that has died meanwhile has a successor which either clears the
%% word after this, or is the one that is told.
have_it_look(#log{shards = Shards}) -> tell(weir_log_terms:writer(shard(Shards)), look).

%% @doc Sends an entry and never waits, whatever the log was opened for: at the cap the entry is dropped. For those who
%% others cannot do without; no window bounds them. The entry is made though it may be dropped.
-spec offer(weir_log:log(), iodata(), weir_log:level()) -> ok | {error, weir_log:error()}.
offer(Name, Entry, Level) ->
    case persistent_term:get(?MAIN_KEY(Name), none) of
        #log{format = Format, shards = Shards} = Log ->
            {Final, Bytes} = final(Format, Entry),
            #shard{words = Words} = Shard = shard(Shards),
            Writer = weir_log_terms:writer(Shard),
            case has_room(Log, Words, Bytes) of
                true ->
                    tell(Writer, {alog, Level, Bytes, Final});
                false ->
                    ok = atomics:sub(Words, ?QUEUED, ?QUEUED_OF(1, Bytes)),
                    dropped(Log, Words, Level, {dropped, Name})
            end;
        none ->
            {error, no_log}
    end.

%% @doc Counts an entry that is not to be logged, by its level. The log tells of it.
-spec drop(weir_log:log(), weir_log:level()) -> {error, no_log | {dropped, weir_log:log()}}.
drop(Name, Level) ->
    case weir_log_terms:log(Name) of
        #log{shards = Shards} = Log ->
            #shard{words = Words} = shard(Shards),
            dropped(Log, Words, Level, {dropped, Name});
        none ->
            {error, no_log}
    end.

%% @doc Asks the writers of all shards before it waits for the first answer. The first error, if there is one. See
%% {@link weir_log:sync/1}, {@link weir_log:rotate/1}, {@link weir_log:reopen/1}.
-spec ask_all(weir_log:log(), sync | rotate | reopen | {change, #conf{}}) -> ok | {error, weir_log:error()}.
ask_all(Name, Request) -> ask_all(Name, Request, infinity).

%% @doc The same, for so many milliseconds at most, whatever the log was opened with.
-spec ask_all(weir_log:log(), sync | rotate | reopen | {change, #conf{}}, timeout()) ->
    ok | {error, weir_log:error()}.
ask_all(Name, Request, Most) ->
    case weir_log_terms:log(Name) of
        #log{timeout = Timeout} = Log ->
            %% An atom is greater than any number.
            ask_each(weir_log_terms:writers(Log), Request, min(Timeout, Most));
        none ->
            {error, no_log}
    end.

%% A call, where one is enough: the runtime skips what is in the caller's mailbox already.
ask_each([Writer], Request, Timeout) when is_pid(Writer) ->
    try
        gen_server:call(Writer, Request, Timeout)
    catch
        exit:{timeout, _} -> {error, timeout};
        exit:_ -> {error, writer_down}
    end;
ask_each(Writers, Request, Timeout) ->
    Asked = [{Writer, ask(Writer, Request)} || Writer <- Writers],
    Deadline = deadline(Timeout),
    Answers = [answer(Question, Deadline) || Question <- Asked],
    case [Error || {error, _} = Error <- Answers] of
        [] -> ok;
        [Error | _] -> Error
    end.

ask(none, _Request) -> none;
ask(Writer, Request) -> gen_server:send_request(Writer, Request).

answer({none, none}, _Deadline) ->
    {error, no_log};
answer({_Writer, Asked}, Deadline) ->
    case gen_server:receive_response(Asked, Deadline) of
        {reply, Answer} -> Answer;
        timeout -> {error, timeout};
        {error, {_Reason, _}} -> {error, writer_down}
    end.

deadline(infinity) -> infinity;
deadline(Timeout) -> {abs, erlang:monotonic_time(millisecond) + Timeout}.

%% ---------------------------------------------------------------- sending and waiting

%% A process keeps to its shard. The hash of a pid does not depend on where the process runs.
shard({Shard}) -> Shard;
shard(Shards) -> element(erlang:phash2(self(), tuple_size(Shards)) + 1, Shards).

tell(none, _Message) ->
    ok;
tell(Writer, Message) ->
    Writer ! Message,
    ok.

%% Sends an entry that is counted already, and waits for its answer.
wait(_Ack, _Log, Words, none, _Level, Bytes, _Entry) ->
    ok = atomics:sub(Words, ?QUEUED, ?QUEUED_OF(1, Bytes)),
    {error, no_log};
wait(Ack, #log{timeout = infinity}, _Words, Writer, Level, Bytes, Entry) ->
    Monitor = erlang:monitor(process, Writer),
    Writer ! {Ack, {self(), Monitor}, Level, Bytes, Entry},
    receive
        {Monitor, Answer} ->
            _ = erlang:demonitor(Monitor, [flush]),
            Answer;
        {'DOWN', Monitor, process, _, _} ->
            {error, writer_down}
    end;
wait(Ack, #log{timeout = Timeout, name = Name} = Log, Words, Writer, Level, Bytes, Entry) ->
    case atomics:get(Words, ?STUCK) of
        0 ->
            Alias = erlang:monitor(process, Writer, [{alias, reply_demonitor}]),
            Writer ! {Ack, {Alias, Alias}, Level, Bytes, Entry},
            receive
                {Alias, Answer} -> Answer;
                {'DOWN', Alias, process, _, _} -> {error, writer_down}
            after Timeout -> late(Alias, Log, Words)
            end;
        _ ->
            ok = atomics:sub(Words, ?QUEUED, ?QUEUED_OF(1, Bytes)),
            dropped(Log, Words, Level, {stuck, Name})
    end.

late(Alias, Log, Words) ->
    _ = erlang:demonitor(Alias, [flush]),
    receive
        {Alias, Answer} -> Answer
    after 0 ->
        %% Sent in any case: a caller that was killed may have set the word that says that a look is under way.
        ok = atomics:put(Words, ?STUCK, 1),
        ok = atomics:put(Words, ?NUDGED, 1),
        ok = have_it_look(Log),
        {error, timeout}
    end.

%% @doc An entry as it goes into the file, and its bytes. Raises `badarg' for what is no iodata.
%%
%% A binary that is a part of a much larger one is copied, since the message would hold all of that.
-spec final(weir_log_open:format(), iodata()) -> {iodata(), Bytes :: non_neg_integer()}.
final(raw, Entry) when is_binary(Entry), byte_size(Entry) =< ?HEAP_BINARY ->
    {Entry, byte_size(Entry)};
final(raw, Entry) when is_binary(Entry) ->
    Bytes = byte_size(Entry),
    case binary:referenced_byte_size(Entry) > 2 * Bytes of
        true -> {binary:copy(Entry), Bytes};
        false -> {Entry, Bytes}
    end;
final(raw, Entry) ->
    bytes(Entry);
final(newline, Entry) when is_binary(Entry), byte_size(Entry) =< ?APPEND ->
    {<<Entry/binary, $\n>>, byte_size(Entry) + 1};
final(newline, Entry) ->
    bytes([Entry, $\n]);
final(lines, Entry) ->
    final(raw, Entry);
final(frame, Entry) ->
    bytes(weir_log_frame:entry([<<(erlang:system_time(microsecond)):?TIME_BYTES/unit:8>>, Entry])).

%% @doc How many bytes an entry of a log with `frame' may have, beside its time.
-spec max_framed() -> pos_integer().
max_framed() -> weir_log_frame:max_payload() - ?TIME_BYTES.

bytes(Entry) ->
    try iolist_to_binary(Entry) of
        Final -> {Final, byte_size(Final)}
    catch
        error:badarg -> erlang:error(badarg, [Entry], [{error_info, #{module => ?MODULE}}])
    end.

%% @private For the shell: what is wrong with an entry.
-spec format_error(term(), erlang:stacktrace()) -> #{general := binary()}.
format_error(badarg, [{_, _, [Entry], _} | _]) ->
    {Text, Shown} =
        case stranger(Entry) of
            {ok, Char} when is_integer(Char), Char > 255 ->
                {"an entry is bytes, and ~w is a character: give unicode:characters_to_binary(Entry)", Char};
            {ok, Other} ->
                {"an entry is iodata, a list of bytes and binaries, and ~tp is neither", Other};
            none ->
                {"an entry is iodata, and ~tp is an improper list", Entry}
        end,
    %% Elixir takes a binary only.
    #{general => unicode:characters_to_binary(io_lib:format(Text, [Shown]))}.

%% The first element that is neither a byte, nor a binary, nor a list.
stranger([First | Rest]) ->
    case stranger(First) of
        none -> stranger(Rest);
        Found -> Found
    end;
stranger(Part) when Part =:= []; is_binary(Part); is_integer(Part), Part >= 0, Part < 256 -> none;
stranger(Other) -> {ok, Other}.
