%% @doc The process that writes one shard: everything that waits with one write and at most one sync, and then answers.
%%
%% Protocol. Callers (weir_log_client) count an entry in the shard's word of what waits, then send it:
%% ```
%%   {alog, Level, Bytes, Entry}              nobody waits
%%   {counted, Count, Level, Bytes, Entry}    the same; the count goes into the word of a window (weir_log_window)
%%   {Ack, {To, Ref}, Level, Bytes, Entry}    To, a process or an alias, waits for {Ref, ok | {error, Reason}}
%% '''
%% Ack says when it is answered: `accepted' when the writer has taken it in, `written' when the write has returned,
%% `synced' when fdatasync has returned. While the file is in trouble, or closed, `accepted' is answered as `written'
%% is, so that this is told to those who can be told. Requests to rotate, reopen, change, close, and for information are
%% calls, and are handled in their place: entries before them are written first. A call to sync waits as a `synced'
%% entry does. `look' says only that there is something to see: that entries are dropped or refused, or that somebody
%% has waited too long. A batch is what weir_server hands over; more than ?FLUSH_BYTES of it are written with several
%% writes, and synced several times if need be, since a write may rotate the file and a sync is for one file.
%%
%% After each write the word of what waits is lowered, then answers are sent. So at any moment an entry is counted as
%% waiting or is in the file, or in `failed', and whoever has `ok' for `written' is in the file.
%%
%% Failures. A write that fails fails its entries, each waiter gets the reason, and the others are counted and told of
%% in the log itself, as drops are, when it works again. A sync that fails fails those who wait for it; the file then
%% refuses everything until it is reopened (weir_log_file says why), which the owner of the log may have done by this
%% process, with the next entry (`heal'). None of it ends this process. A crash or a kill loses what waits: the next
%% writer counts it (`lost'), and callers learn of it by their monitors.
%% Entries of the batch that was in hand may be in the file although nobody was told so. The next writer appends
%% to the file; if it cannot open it, it answers everybody with the reason, and tries again with each write, once a
%% second.
%%
%% Losses. Callers count what they drop, this process what it could not write. It looks after each write, and a second
%% after it has first seen any it writes an entry that says how many there were, of which levels, from when to when; so
%% there is at most one a second. `logger' is told when the file cannot be written, and when it could be for
%% ?CALM_MS without a failure: on a full disk small entries may fit where large ones do not.
%%
%% Mending. What a caller adds to the word and never sends, or sends to a dead writer, stays in it. A writer
%% that has had no entry for ?IDLE_MS subtracts the least that it has seen in the word since. A caller that is held up
%% for longer than that between adding and sending makes the word too low, by its entry; that is mended in the same way.
%% @private
-module(weir_log_writer).
-behaviour(weir_server).

-export([start_link/1]).
-export([init/1, handle_batch/2, terminate/2]).

-include("weir_log.hrl").

%% Messages to a batch. Larger ones are not faster, smaller ones are: 4096 and 512 took a tenth to a half longer.
-define(BATCH, 1024).

%% Words of the heap at first, 3 MB. A batch leaves some 30 words an entry behind; with room for a dozen of them few are
%% alive when the garbage is collected. A tenth of this took a third longer.
-define(HEAP_WORDS, 400_000).

%% Bytes gathered before they are written though the batch goes on.
-define(FLUSH_BYTES, 1_048_576).

%% Milliseconds: without work before the word of what waits is mended; between two entries about drops; between two
%% tries to open a file that a writer could not open when it was started again.
-define(IDLE_MS, 1000).
-define(REPORT_MS, 1000).
-define(RETRY_MS, 1000).
-define(CALM_MS, 5000).

-record(state, {
    boot :: #boot{},
    words :: atomics:atomics_ref(),
    module :: module(),
    file :: {open, term()} | {closed, Reason :: term(), RetryMs :: integer() | infinity} | no_log,
    %% Why the last write or sync failed, `none' if it did not.
    trouble = none :: term(),
    %% What `logger' has been told: that it works; that it does not; or the latter, and since when it does.
    reported = works :: works | fails | {calm, SinceMs :: integer()},
    %% Whether something was written since the last sync; whether a timer for a sync runs.
    dirty = true :: boolean(),
    sync_timer = false :: boolean(),
    %% When the log is to tell of what it has lost, if there is anything to tell.
    tell_ms = none :: none | integer(),
    %% Since when there was no entry although the word says that some wait, and the least that it has said since.
    idle = none :: none | {SinceMs :: integer(), Word :: integer()}
}).

%% @doc Starts the writer of a shard, and opens its file.
-spec start_link(#boot{}) -> {ok, pid()} | {error, term()}.
start_link(Boot) ->
    Options = #{drain => ?BATCH, spawn_opt => [{min_heap_size, ?HEAP_WORDS}]},
    case weir_log_start:start(fun() -> weir_server:start_link(?MODULE, Boot, Options) end) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec init(#boot{}) -> {ok, #state{}, timeout()} | {stop, {shutdown, {file, file:filename_all(), term()}}}.
init(#boot{name = Name, id = Id, path = Path, shard = #shard{words = Words} = Shard} = Began) ->
    #boot{conf = Conf} = Boot = Began#boot{conf = current(Began)},
    #conf{file_module = Module} = Conf,
    State = #state{boot = Boot, words = Words, module = Module, file = no_log},
    case {open(State), weir_log_terms:is_open(Name, Id)} of
        {{error, Reason}, false} ->
            {stop, {shutdown, {file, Path, Reason}}};
        {Opened, _} ->
            ok = weir_log_terms:publish(Shard),
            ok = looking(Words),
            {ok, look(opened(Opened, State)), ?IDLE_MS}
    end.

%% The options may have been changed since the log was started.
current(#boot{name = Name, id = Id, conf = Conf}) ->
    case weir_log_terms:log(Name) of
        #log{id = Id, conf = Changed} -> Changed;
        _ -> Conf
    end.

opened({ok, File}, State) ->
    State#state{file = {open, File}};
opened({error, Reason}, State) ->
    trouble(Reason, State#state{file = {closed, Reason, now_ms() + ?RETRY_MS}}).

open(#state{module = Module, boot = Boot}) -> Module:open(file_options(Boot)).

file_options(#boot{path = Path, conf = Conf}) ->
    #conf{format = Format, rotate = Rotate, check_ms = CheckMs, mode = Mode, owner = Owner} = Conf,
    #{path => Path, format => Format, rotate => Rotate, check_ms => CheckMs, mode => Mode, owner => Owner}.

%% @private
-spec handle_batch([weir_server:message()], #state{}) -> {noreply, #state{}} | {noreply, #state{}, timeout()}.
handle_batch([{info, timeout}], State) ->
    rest(State);
handle_batch(Batch, State) ->
    rest(take(Batch, Batch, [], 0, [], State)).

%% What is due by now, and whether something is left to be done when nothing comes.
rest(#state{words = Words} = State) ->
    case mend(atomics:get(Words, ?QUEUED), calm(tell(look(State)))) of
        #state{idle = none, tell_ms = none, reported = Reported} = Rested when is_atom(Reported) -> {noreply, Rested};
        Rested -> {noreply, Rested, ?IDLE_MS}
    end.

%% The least that was in the word since the last entry: what callers that are refused add and take back is not to count.
mend(0, State) ->
    State#state{idle = none};
mend(Word, #state{idle = none} = State) ->
    State#state{idle = {now_ms(), Word}};
mend(Word, #state{idle = {Since, Before}, words = Words} = State) ->
    Least = min(Word, Before),
    case now_ms() - Since >= ?IDLE_MS of
        true ->
            %% In this order: at any moment an entry is counted as waiting or as unsent.
            ok = atomics:add(Words, ?UNSENT, max(0, ?QUEUED_ENTRIES(Least))),
            ok = atomics:sub(Words, ?QUEUED, Least),
            State#state{idle = none};
        false ->
            State#state{idle = {Since, Least}}
    end.

%% ---------------------------------------------------------------- taking in

%% `Start': the batch from the first message on that is not written. Of what was taken in since then: the entries and
%% the messages of those who wait for more than that, the latest first, and how many bytes it is.
take(Batch, Start, Entries, Bytes, Waiting, State) when Bytes >= ?FLUSH_BYTES ->
    take(Batch, Batch, [], 0, [], flush(Start, Entries, Bytes, Waiting, State));
take([{info, {alog, _Level, Size, Entry}} | Batch], Start, Entries, Bytes, Waiting, State) ->
    take(Batch, Start, [Entry | Entries], Bytes + Size, Waiting, State);
take([{info, {counted, Window, _Level, Size, Entry}} | Batch], Start, Entries, Bytes, Waiting, State) ->
    ok = weir_log_window:taken_in(Window),
    take(Batch, Start, [Entry | Entries], Bytes + Size, Waiting, State);
take(
    [{info, {accepted, From, _Level, Size, Entry}} | Batch], Start, Entries, Bytes, Waiting,
    #state{trouble = none, file = {open, _}} = State
) ->
    ok = answer_one(From, ok),
    take(Batch, Start, [Entry | Entries], Bytes + Size, Waiting, State);
take([{info, {Ack, _From, _Level, Size, Entry} = Message} | Batch], Start, Entries, Bytes, Waiting, State) when
    Ack =:= accepted; Ack =:= written; Ack =:= synced
->
    take(Batch, Start, [Entry | Entries], Bytes + Size, [Message | Waiting], State);
take([{call, From, sync} | Batch], Start, Entries, Bytes, Waiting, State) ->
    take(Batch, Start, Entries, Bytes, [{sync, From} | Waiting], State);
take([{call, From, Request} | Batch], Start, Entries, Bytes, Waiting, State) ->
    {Answer, Called} = request(Request, flush(Start, Entries, Bytes, Waiting, State)),
    ok = weir_server:reply(From, Answer),
    take(Batch, Batch, [], 0, [], Called);
take([{info, sync_due} | Batch], Start, Entries, Bytes, Waiting, State) ->
    take(Batch, Start, Entries, Bytes, Waiting, sync_due(State#state{sync_timer = false}));
take([{info, look} | Batch], Start, Entries, Bytes, Waiting, #state{words = Words} = State) ->
    ok = looking(Words),
    take(Batch, Start, Entries, Bytes, Waiting, State);
take([_Stray | Batch], Start, Entries, Bytes, Waiting, State) ->
    take(Batch, Start, Entries, Bytes, Waiting, State);
take([], Start, Entries, Bytes, Waiting, State) ->
    flush(Start, Entries, Bytes, Waiting, State).

%% In this order: who finds that the writer has been told already was before this, and what it has set is cleared.
looking(Words) ->
    ok = atomics:put(Words, ?NUDGED, 0),
    atomics:put(Words, ?STUCK, 0).

%% ---------------------------------------------------------------- writing

flush(_Start, [], 0, [], State) ->
    State;
flush(Start, Entries, Bytes, Waiting, #state{words = Words} = State) ->
    Count = length(Entries),
    {Result, Wrote} = write(lists:reverse(Entries), Count, Bytes, State),
    ok = failed(Result, Count, Start, Words),
    ok = atomics:sub(Words, ?QUEUED, ?QUEUED_OF(Count, Bytes)),
    {Written, Synced} = in_order(Waiting, [], []),
    ok = answer(Written, Result),
    sync(Result, Synced, Wrote#state{idle = none}).

in_order([{synced, From, _Level, _Size, _Entry} | Waiting], Written, Synced) ->
    in_order(Waiting, Written, [From | Synced]);
in_order([{sync, From} | Waiting], Written, Synced) ->
    in_order(Waiting, Written, [From | Synced]);
in_order([{_AcceptedOrWritten, From, _Level, _Size, _Entry} | Waiting], Written, Synced) ->
    in_order(Waiting, [From | Written], Synced);
in_order([], Written, Synced) ->
    {Written, Synced}.

%% Counts the entries from here on, so many of them, by their levels. Who waits and is told that there is no log counts
%% his entry himself.
failed(ok, _Count, _Start, _Words) ->
    ok;
failed({error, _}, 0, _Start, _Words) ->
    ok;
failed(Error, Count, [{info, {alog, Level, _Size, _Entry}} | Start], Words) ->
    ok = weir_log_drops:fail(Words, Level),
    failed(Error, Count - 1, Start, Words);
failed({error, no_log} = Error, Count, [{info, {Ack, _From, _Level, _Size, _Entry}} | Start], Words) when
    Ack =:= accepted; Ack =:= written; Ack =:= synced
->
    failed(Error, Count - 1, Start, Words);
failed(Error, Count, [{info, {What, _Of, Level, _Size, _Entry}} | Start], Words) when
    What =:= counted; What =:= accepted; What =:= written; What =:= synced
->
    ok = weir_log_drops:fail(Words, Level),
    failed(Error, Count - 1, Start, Words);
failed(Error, Count, [_NoEntry | Start], Words) ->
    failed(Error, Count, Start, Words).

answer(Waiting, Result) -> lists:foreach(fun(From) -> answer_one(From, Result) end, Waiting).

answer_one({To, Ref}, Result) when is_reference(Ref) ->
    To ! {Ref, Result},
    ok;
answer_one(From, Result) ->
    weir_server:reply(From, Result).

write(_Entries, 0, _Bytes, State) ->
    {ok, State};
write(Entries, Count, Bytes, #state{words = Words} = State) ->
    {Result, _} = Tried = attempt(Entries, Bytes, State),
    _ = Result =:= ok andalso wrote(Words, Count, Bytes),
    Tried.

wrote(Words, Count, Bytes) ->
    ok = atomics:add(Words, ?ENTRIES, Count),
    ok = atomics:add(Words, ?BYTES, Bytes),
    ok = atomics:add(Words, ?WRITES, 1),
    case atomics:get(Words, ?LARGEST_BATCH) of
        Largest when Count > Largest -> atomics:put(Words, ?LARGEST_BATCH, Count);
        _ -> ok
    end.

attempt(Entries, Bytes, #state{trouble = {sync_failed, _}, boot = #boot{conf = #conf{heal = true}}} = State) ->
    case request(reopen, State) of
        {ok, Reopened} -> attempt(Entries, Bytes, Reopened);
        {{error, _}, _} = Failed -> Failed
    end;
attempt(Entries, Bytes, #state{module = Module, file = {open, File}} = State) ->
    case Module:write(Entries, Bytes, erlang:system_time(millisecond), File) of
        {ok, Wrote} -> {ok, written(State#state{file = {open, Wrote}})};
        {error, Reason, Left} -> {{error, Reason}, trouble(Reason, State#state{file = {open, Left}})}
    end;
attempt(Entries, Bytes, #state{file = {closed, Reason, RetryMs}} = State) ->
    case now_ms() >= RetryMs andalso opened(open(State), State) of
        #state{file = {open, _}} = Opened -> attempt(Entries, Bytes, Opened);
        #state{file = {closed, NewReason, _}} = Closed -> {{error, NewReason}, Closed};
        false -> {{error, Reason}, State}
    end;
attempt(_Entries, _Bytes, #state{file = no_log} = State) ->
    {{error, no_log}, State}.

%% A sync is due some time after the first write that it is for.
written(#state{trouble = none, dirty = true, sync_timer = true} = State) -> State;
written(#state{boot = #boot{conf = #conf{sync_interval = Interval}}, sync_timer = Timer} = State) ->
    Set =
        case Interval of
            infinity -> Timer;
            _ when Timer -> Timer;
            Ms -> is_reference(erlang:send_after(Ms, self(), sync_due))
        end,
    trouble(none, State#state{dirty = true, sync_timer = Set}).

sync(_Result, [], State) ->
    State;
sync({error, _} = Error, Synced, State) ->
    ok = answer(Synced, Error),
    State;
sync(ok, Synced, State) ->
    {Result, Tried} = datasync(State),
    ok = answer(Synced, Result),
    Tried.

datasync(#state{module = Module, file = {open, File}, words = Words} = State) ->
    case Module:sync(File) of
        {ok, Synced} ->
            ok = atomics:add(Words, ?SYNCS, 1),
            {ok, State#state{file = {open, Synced}, dirty = false}};
        {error, Reason, Left} ->
            ok = atomics:add(Words, ?SYNC_FAILURES, 1),
            {{error, Reason}, trouble(Reason, State#state{file = {open, Left}})}
    end;
datasync(#state{file = {closed, Reason, _}} = State) ->
    {{error, Reason}, State};
datasync(#state{file = no_log} = State) ->
    {{error, no_log}, State}.

sync_due(#state{dirty = true} = State) ->
    {_Result, Tried} = datasync(State),
    Tried;
sync_due(State) ->
    State.

%% ---------------------------------------------------------------- requests

request(info, #state{file = {open, File}, module = Module} = State) ->
    {{ok, Module:info(File)}, State};
request(info, #state{file = {closed, Reason, _}} = State) ->
    {{ok, #{state => closed, last_error => Reason}}, State};
request(rotate, #state{file = {open, File}, module = Module} = State) ->
    changed(Module:rotate(erlang:system_time(millisecond), File), State);
request(reopen, #state{file = {open, File}, module = Module} = State) ->
    changed(Module:reopen(File), State);
request(Request, #state{file = {closed, _, _}} = State) when Request =:= rotate; Request =:= reopen ->
    reopened(opened(open(State), State));
request({change, Conf}, #state{boot = Before} = State) ->
    Boot = Before#boot{conf = Conf},
    Changed = State#state{boot = Boot},
    case file_options(Boot) =:= file_options(Before) of
        true -> {ok, Changed};
        false -> opened_anew(Changed)
    end;
request(close, State) ->
    {ok, close(State)};
request(_Request, #state{file = no_log} = State) ->
    {{error, no_log}, State};
request(Request, State) ->
    {{error, {bad_call, Request}}, State}.

%% What is not open will be opened with the options of then.
opened_anew(#state{file = {open, File}, module = Module} = State) ->
    case Module:close(File) of
        ok ->
            reopened(opened(open(State), State));
        {error, Reason} ->
            %% Nothing until it is reopened: an atom is greater than any number.
            {ok, trouble(Reason, State#state{file = {closed, Reason, infinity}})}
    end;
opened_anew(State) ->
    {ok, State}.

reopened(#state{file = {open, _}} = State) -> {ok, trouble(none, State)};
reopened(#state{file = {closed, Reason, _}} = State) -> {{error, Reason}, State}.

changed({ok, File}, State) -> {ok, trouble(none, State#state{file = {open, File}})};
changed({error, Reason, File}, State) -> {{error, Reason}, trouble(Reason, State#state{file = {open, File}})}.

%% What is in the file is made durable, whatever the log was opened for: closing is rare.
close(#state{file = {open, _}} = State) ->
    #state{file = {open, File}, module = Module} = Closing = sync_due(tell_now(look(State))),
    _ = Module:close(File),
    Closing#state{file = no_log};
close(State) ->
    State#state{file = no_log}.

%% @private
-spec terminate(term(), #state{}) -> #state{}.
terminate(_Reason, State) -> close(State).

%% ---------------------------------------------------------------- what is told

%% Whether there is something to tell.
look(#state{tell_ms = none, words = Words} = State) ->
    case weir_log_drops:is_new(Words) of
        true -> State#state{tell_ms = now_ms() + ?REPORT_MS};
        false -> State
    end;
look(State) ->
    State.

tell(#state{tell_ms = none} = State) ->
    State;
tell(#state{tell_ms = TellMs} = State) ->
    case now_ms() >= TellMs of
        true -> tell_now(State);
        false -> State
    end.

%% The entry tries the file as any entry does. One that fails is not counted: it is written later.
tell_now(#state{tell_ms = none} = State) ->
    State;
tell_now(#state{words = Words, boot = #boot{name = Name, path = Path, conf = Conf}} = State) ->
    #conf{format = Format, tell = Fun} = Conf,
    {Text, Loss, Told} = weir_log_drops:entry(Words, Fun),
    {Entry, Bytes} = weir_log_client:final(Format, Text),
    case attempt([Entry], Bytes, State) of
        {ok, Wrote} ->
            ok = wrote(Words, 1, Bytes),
            ok = weir_log_drops:told(Words, Told),
            %% Without room for a process there is no event. The entry is in the log.
            _ = weir_log_event:lost(Name, Path, Loss),
            Wrote#state{tell_ms = none};
        {{error, _}, Failed} ->
            Failed#state{tell_ms = now_ms() + ?REPORT_MS}
    end.

trouble(none, #state{reported = fails} = State) ->
    State#state{trouble = none, reported = {calm, now_ms()}};
trouble(none, State) ->
    State#state{trouble = none};
trouble(Reason, #state{reported = works, boot = #boot{name = Name, path = Path, conf = Conf}} = State) ->
    #conf{report = Report} = Conf,
    case weir_log_event:failing(Report, Name, Path, Reason) of
        ok -> State#state{trouble = Reason, reported = fails};
        %% The next failure is reported.
        no_room -> State#state{trouble = Reason}
    end;
trouble(Reason, State) ->
    State#state{trouble = Reason, reported = fails}.

calm(#state{reported = {calm, Since}, boot = #boot{name = Name, path = Path, conf = #conf{report = Report}}} = State) ->
    case now_ms() - Since >= ?CALM_MS of
        true ->
            case weir_log_event:recovered(Report, Name, Path) of
                ok -> State#state{reported = works};
                %% The report comes a second later.
                no_room -> State
            end;
        false ->
            State
    end;
calm(State) ->
    State.

now_ms() -> erlang:monotonic_time(millisecond).
