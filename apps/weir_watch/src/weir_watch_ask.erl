%% @doc A short-lived process that asks processes what only they can answer: each question is a signal, and its answer
%% comes when the one who is asked has a turn. So the one who asks may wait, and is killed by the agent when it takes
%% too long.
%%
%% It asks those that wait in which function they are, and those that are in a call whom they monitor: their server.
%% One that waits in a function of its own may wait for anything, and counts for nothing. Those that run it asks only
%% in which function they are.
%% @private
-module(weir_watch_ask).

-export([start/2, estimate/4, called/1, callee/1, monitored/1, is_call/1, is_loop/1]).

-export_type([answers/0]).

-define(QUESTION_US, 5).

-type answers() :: #{
    waiters := [{Server :: pid(), Waiter :: pid()}],
    running := [{pid(), weir_watch:call()}],
    us := non_neg_integer()
}.

%% @doc Asks. The caller gets `{asked, Asker, Answers}', or the 'DOWN' of the monitor.
-spec start([pid()], [pid()]) -> {pid(), reference()}.
start(Waiting, Running) ->
    Agent = self(),
    Ask = fun() -> Agent ! {asked, self(), ask(Waiting, Running)} end,
    spawn_opt(Ask, [link, monitor, {priority, high}, weir_watch_look:bounded()]).

ask(Waiting, Running) ->
    Begin = erlang:monotonic_time(microsecond),
    Waiters = [{Server, Pid} || Pid <- Waiting, calls(Pid), {ok, Server} <- [called(Pid)]],
    Functions = [{Pid, Call} || Pid <- Running, {_, Call} <- [process_info(Pid, current_function)], is_tuple(Call)],
    %% One who runs answers at the end of his turn; waiting for that costs nothing.
    Us = min(erlang:monotonic_time(microsecond) - Begin, ?QUESTION_US * (length(Waiting) + length(Running))),
    #{waiters => Waiters, running => Functions, us => Us}.

%% Whom a process monitors is told as a list, which may be very long: it is asked only of one that waits in a call.
calls(Pid) ->
    process_info(Pid, status) =:= {status, waiting} andalso
        case process_info(Pid, current_function) of
            {_, Function} -> is_call(Function);
            undefined -> false
        end.

%% @doc Whom a process calls; `error': nobody can tell, `none': it is not in a call at that moment.
-spec called(pid()) -> {ok, pid()} | error | none.
called(Pid) ->
    case process_info(Pid, [current_function, monitors]) of
        [{_, Function}, {_, Monitors}] ->
            case is_call(Function) of
                true -> callee(Monitors);
                false -> none
            end;
        undefined ->
            none
    end.

%% @doc Whom a process calls that is in a call and monitors this: the only one that it monitors. Of several nobody can
%% tell which one it is.
-spec callee([{process | port, term()}]) -> {ok, pid()} | error.
callee([_] = Monitors) ->
    case monitored(Monitors) of
        [Server] -> {ok, Server};
        [] -> error
    end;
callee(_) ->
    error.

%% @doc How many wait for a server at a time, when so many of the drawn were found to wait for it, so many of them
%% different ones. In a small node the same one may be drawn again and again: of those who are there, a draw of `Drawn'
%% out of `Processes' finds all but e to the power of -Drawn/Processes. Where nothing was drawn, it is as many.
-spec estimate(Hits :: pos_integer(), Different :: pos_integer(), Drawn :: non_neg_integer(),
    Processes :: non_neg_integer()) -> pos_integer().
estimate(_Hits, Different, 0, _Processes) ->
    Different;
estimate(Hits, Different, Drawn, Processes) ->
    max(1, round(min(Hits * Processes / Drawn, Different / (1 - math:exp(-Drawn / Processes))))).

%% @doc The processes in what `process_info(Pid, monitors)' tells, those of this node also where they are known by name.
-spec monitored([{process | port, term()}]) -> [pid()].
monitored(Monitors) ->
    [Pid || {process, Pid} <- Monitors, is_pid(Pid)] ++
        [Pid || {process, {Name, Node}} <- Monitors, Node =:= node(), Pid <- [whereis(Name)], is_pid(Pid)].

%% @doc Whether a process that waits in this function waits for the answer of another.
-spec is_call(weir_watch:call() | undefined | term()) -> boolean().
is_call({gen, do_call, _}) -> true;
is_call({gen, do_for_proc, _}) -> true;
is_call({disk_log, monitor_request, _}) -> true;
is_call({erpc, call, _}) -> true;
is_call({rpc, _, _}) -> true;
is_call({weir_pool_claim, await, _}) -> true;
is_call({weir_log_client, _, _}) -> true;
is_call({weir_flow_ack, ask, _}) -> true;
is_call({weir_flow_queue, await, _}) -> true;
is_call({weir_cluster_call, wait, _}) -> true;
is_call({'Elixir.DBConnection.Holder', checkout_call, _}) -> true;
is_call({'Elixir.Task', await, _}) -> true;
is_call({'Elixir.Task', await_receive, _}) -> true;
is_call({gen_event, rpc, _}) -> true;
is_call({io, wait_io_mon_reply, _}) -> true;
is_call({io, execute_request, _}) -> true;
is_call(_) -> false.

%% @doc Whether a process that waits in this function has nothing to do: it is where its behaviour takes the next
%% message.
-spec is_loop(weir_watch:call() | undefined | term()) -> boolean().
is_loop({gen_server, loop, _}) -> true;
%% From OTP 28 on it hibernates there.
is_loop({gen_server, loop_hibernate, _}) -> true;
is_loop({gen_statem, loop_receive, _}) -> true;
%% As that is called in OTP 29.
is_loop({gen_statem, loop, _}) -> true;
is_loop({gen_statem, loop_hibernate, _}) -> true;
is_loop({gen_event, fetch_msg, _}) -> true;
is_loop({gen_batch_server, loop_wait, _}) -> true;
is_loop({gen_server2, loop, _}) -> true;
is_loop({gen_server2, process_next_msg, _}) -> true;
is_loop({weir_server_loop, _, _}) -> true;
is_loop({weir_server_mailbox, _, _}) -> true;
is_loop({erlang, hibernate, 3}) -> true;
is_loop({proc_lib, wake_up, _}) -> true;
is_loop({disk_log, loop, _}) -> true;
is_loop({code_server, loop, _}) -> true;
is_loop({application_master, _, _}) -> true;
is_loop({prim_socket, _, _}) -> true;
is_loop({logger_std_h, file_ctrl_loop, _}) -> true;
is_loop({user_drv, _, _}) -> true;
is_loop({group, _, _}) -> true;
is_loop(_) -> false.
