%% @doc What is in a mailbox, for one who asks. Nothing else of weir_watch tells what messages hold.
%%
%% The question is a signal to the process, which copies all of its messages for the answer: some milliseconds for as
%% many as there may be. Two processes of its node ask. The one waits, for five seconds at most and for no longer than
%% the one who wants to know lives; what it ends with is the answer, so that a late one is left in no mailbox. The other
%% asks, and has a limit of memory; the first one kills it when it is late.
%% @private
-module(weir_watch_messages).

-export([ask/1, answer/1]).
-export([wait/2, read/1]).

-export_type([answer/0]).

%% So many may be copied, of a process that takes no more bytes; so many are told, in so many characters each.
-define(MOST, 10_000).
-define(MOST_BYTES, 8_000_000).
-define(TOLD, 20).
-define(CHARS, 300).
-define(DEPTH, 50).
-define(ANSWER_MS, 5000).

-type answer() ::
    {ok, #{queue := non_neg_integer(), messages := [binary()]}}
    | {error, dead | too_many | too_large | timeout | disconnected | term()}.

%% @doc Asks a process, on a node that has this module. The caller gets `{{messages, Pid}, Asked, process, _, Reason}',
%% and {@link answer/1} reads the reason.
-spec ask(pid()) -> Asked :: reference().
ask(Pid) ->
    {_, Asked} = spawn_opt(node(Pid), ?MODULE, wait, [self(), Pid], [{monitor, [{tag, {messages, Pid}}]}]),
    Asked.

%% @doc The answer that is this reason.
-spec answer(Reason :: term()) -> answer().
answer({told, Answer}) -> Answer;
answer(noconnection) -> {error, disconnected};
answer(Reason) -> {error, Reason}.

%% @private
-spec wait(pid(), pid()) -> true | no_return().
wait(Asker, Pid) ->
    Gone = monitor(process, Asker),
    Options = [monitor, {priority, high}, weir_watch_look:bounded()],
    {Reader, Monitor} = spawn_opt(?MODULE, read, [Pid], Options),
    receive
        {'DOWN', Monitor, process, Reader, {told, _} = Told} -> exit(Told);
        %% By the runtime: there are more bytes than a moment ago.
        {'DOWN', Monitor, process, Reader, _} -> exit({told, {error, too_large}});
        {'DOWN', Gone, process, Asker, _} -> exit(Reader, kill)
    after ?ANSWER_MS ->
        exit(Reader, kill),
        exit({told, {error, timeout}})
    end.

%% @private
-spec read(pid()) -> no_return().
read(Pid) -> exit({told, messages(Pid)}).

%% Of a very long mailbox the runtime would go through all of it to tell the memory.
messages(Pid) ->
    case process_info(Pid, message_queue_len) of
        {_, Queue} when Queue > ?MOST -> {error, too_many};
        {_, _} -> few_messages(process_info(Pid, memory), Pid);
        undefined -> {error, dead}
    end.

few_messages({_, Bytes}, _Pid) when Bytes > ?MOST_BYTES ->
    {error, too_large};
few_messages(_, Pid) ->
    case process_info(Pid, messages) of
        {_, Messages} ->
            Oldest = lists:sublist(Messages, ?TOLD),
            {ok, #{queue => length(Messages), messages => [text(Message) || Message <- Oldest]}};
        undefined ->
            {error, dead}
    end.

text(Message) ->
    unicode:characters_to_binary(io_lib:format("~0tP", [Message, ?DEPTH], [{chars_limit, ?CHARS}])).
