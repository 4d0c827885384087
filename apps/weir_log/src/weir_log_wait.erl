%% @doc Waiting for a writer's answer, without a timer and without a monitor.
%%
%% A timer an entry costs a quarter of log/2, since the answer, which cancels it, may come from another scheduler; a
%% monitor and its removal cost two signals, which the writer handles. So a caller only says in its process dictionary
%% whom it waits for, and each writer has a *waker*: a process that does nothing until the writer is dead, and then goes
%% through all processes of the node and gives those that wait for it `{error, writer_down}'.
%%
%% ```
%%   caller                                      waker of W
%%     sends to W, with a fresh Ref                waits for the exit of W, to which it is linked
%%     puts {W, Ref} into its dictionary           each process, until none is left:
%%     is W alive?  no: what is in the mailbox        has not {W, Ref} there, or waits elsewhere: done
%%     waits for {Ref, Answer}                        waits in wait/1: sends {Ref, {error, writer_down}}; done
%%     puts none there                                anything else: looked at again soon
%% '''
%% *No caller waits for ever.* Who finds W alive has put the pair there before W died, so the waker, which looks
%% after that, finds it. Who finds W dead does not wait: what W has sent is in the mailbox.
%%
%% *No caller gets two answers.* What W has sent had arrived before its waker was told of its death. A process that
%% has a message which it has not looked at is not `waiting'; so one that waits in wait/1 has not got the answer,
%% and will not. The second answer cannot come from another waker: there is never more than one that looks for those who
%% wait for W, see below. One that is suspended (`erlang:suspend_process/1') is looked at until it is resumed.
%%
%% *Who is killed.* The waker does not belong to the log's supervisor and has no group leader of an application, so it
%% outlives the log, and the application when that is stopped. If it is killed the writer dies of it, which is linked.
%% The waker of the next writer, before it does anything else, waits until the one before it is gone, and looks for
%% those who wait for the writer before, whom a waker that was killed has left. Left waiting are callers only if a waker
%% is killed and the log goes down in the same moment, so that there is no next writer.
%%
%% Cost: two puts into the dictionary and a look whether the writer is alive, 0.05 us. After the death of a writer 1 us
%% for each process of the node, and what is in the dictionaries of those that happen to run is copied.
-module(weir_log_wait).
-behaviour(gen_server).

-export([answer/2, start/2]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2]).

-include("weir_log.hrl").

-define(KEY, weir_log_wait).

%% Milliseconds after which processes are looked at again that were about to wait, or to go on.
-define(AGAIN_MS, 5).

-record(state, {
    writer :: pid(),
    boot :: #boot{}
}).

%% ---------------------------------------------------------------- the caller

%% @doc Waits for the answer to a request that was sent to a writer with a fresh reference.
-spec answer(Writer :: pid(), reference()) -> ok | {error, weir_log:error()}.
answer(Writer, Ref) ->
    _ = put(?KEY, {Writer, Ref}),
    Answer =
        case is_process_alive(Writer) of
            true -> wait(Ref);
            false -> arrived(Ref)
        end,
    _ = put(?KEY, none),
    Answer.

%% The waker knows this function by its name.
wait(Ref) ->
    receive
        {Ref, Answer} -> Answer
    end.

arrived(Ref) ->
    receive
        {Ref, Answer} -> Answer
    after 0 -> {error, writer_down}
    end.

%% ---------------------------------------------------------------- the waker

%% @doc Starts a waker for the calling process, which is about to become the writer of a shard in place of another one.
-spec start(#boot{}, Before :: pid() | none) -> ok.
start(Boot, Before) ->
    {ok, _Waker} = gen_server:start(?MODULE, {self(), Boot, Before}, []),
    ok.

%% @private
-spec init({pid(), #boot{}, pid() | none}) -> {ok, #state{}, {continue, {pid() | none, pid() | none}}}.
init({Writer, #boot{shard = Shard} = Boot, Before}) ->
    _ = process_flag(trap_exit, true),
    %% An application that is stopped has all processes killed whose group leader it is.
    true = group_leader(whereis(init), self()),
    true = link(Writer),
    Waker = weir_log_terms:publish_waker(Shard),
    {ok, #state{writer = Writer, boot = Boot}, {continue, {Before, Waker}}}.

%% @private
-spec handle_continue({pid() | none, pid() | none}, #state{}) -> {noreply, #state{}, hibernate}.
handle_continue({Before, Waker}, State) when is_pid(Before), is_pid(Waker) ->
    Monitor = erlang:monitor(process, Waker),
    receive
        {'DOWN', Monitor, process, Waker, _Reason} -> ok
    end,
    ok = wake(Before, processes()),
    {noreply, State, hibernate};
handle_continue({_Before, _Waker}, State) ->
    {noreply, State, hibernate}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, {error, {bad_call, term()}}, #state{}, hibernate}.
handle_call(Request, _From, State) -> {reply, {error, {bad_call, Request}}, State, hibernate}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}, hibernate}.
handle_cast(_Stray, State) -> {noreply, State, hibernate}.

%% @private
-spec handle_info(term(), #state{}) -> {stop, normal, #state{}} | {noreply, #state{}, hibernate}.
handle_info({'EXIT', Writer, _Reason}, #state{writer = Writer, boot = Boot} = State) ->
    ok = wake(Writer, processes()),
    ok = weir_log_terms:retract_waker(Boot#boot.name, Boot#boot.id, Boot#boot.shard),
    {stop, normal, State};
handle_info(_Stray, State) ->
    {noreply, State, hibernate}.

wake(Writer, Pids) ->
    case [Pid || Pid <- Pids, is_open(Pid, Writer)] of
        [] ->
            ok;
        Open ->
            receive
            after ?AGAIN_MS -> wake(Writer, Open)
            end
    end.

%% Whether it cannot be told yet if the process waits for the writer. Few dictionaries are looked at: most processes
%% wait for something else.
is_open(Pid, Writer) ->
    case process_info(Pid, [status, current_function]) of
        [{status, waiting}, {current_function, Other}] when Other =/= {?MODULE, wait, 1} -> false;
        undefined -> false;
        _ -> is_open(process_info(Pid, [status, current_function, dictionary]), Pid, Writer)
    end.

is_open([{status, Status}, {current_function, Function}, {dictionary, Dictionary}], Pid, Writer) ->
    case {lists:keyfind(?KEY, 1, Dictionary), Status, Function} of
        {{?KEY, {Writer, Ref}}, waiting, {?MODULE, wait, 1}} ->
            Pid ! {Ref, {error, writer_down}},
            false;
        {{?KEY, {Writer, _Ref}}, _, _} ->
            true;
        _ ->
            false
    end;
is_open(undefined, _Pid, _Writer) ->
    false.
