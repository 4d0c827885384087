%% @doc Kills a node that logs under load with SIGKILL, and looks what is in the file.
%%
%% The node ({@link weir_demo_log_victim}) tells of each entry that was acknowledged over a socket; what the kernel had
%% taken by the kill still arrives. Whatever has arrived was acknowledged before, so it should be in the file. Then the
%% log is opened once more, as after a restart, and the file is read.
%%
%% The node ends with the caller, which holds the other end of the socket.
-module(weir_demo_log_kill).

-export([run/4]).

-export_type([found/0]).

-define(TIMEOUT, 60_000).

-type found() :: #{
    acknowledged := non_neg_integer(),
    %% Those of them that are not in the file.
    missing := non_neg_integer(),
    %% Whole entries in the file.
    found := non_neg_integer(),
    wrong := non_neg_integer(),
    %% Bytes that are no whole entry, after the log was opened again.
    torn := non_neg_integer()
}.

%% @doc Runs a node with so many processes, and kills it when it has told of `Moment' entries.
-spec run(weir_log | disk_log, file:filename(), Callers :: pos_integer(), Moment :: pos_integer()) -> found().
run(Log, File, Callers, Moment) ->
    Told = live(Log, File, Callers, Moment),
    ok = open_again(Log, File),
    {#{found := Found, wrong := Wrong, others := Others} = Account, Torn} = read(Log, File),
    #{
        acknowledged => lists:sum(maps:values(Told)),
        missing => weir_demo_log_lines:missing(Told, Account),
        found => Found,
        wrong => Wrong + Others,
        torn => Torn
    }.

%% How many entries of each process were told.
live(Log, File, Callers, Moment) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Number} = inet:port(Listen),
    Node = start([Log, File, Callers, Number]),
    {ok, Socket} = gen_tcp:accept(Listen, ?TIMEOUT),
    ok = gen_tcp:close(Listen),
    {Rest, Some} = until(Moment, Socket, <<>>, #{}, 0),
    {os_pid, Pid} = erlang:port_info(Node, os_pid),
    "" = os:cmd("kill -KILL " ++ integer_to_list(Pid)),
    Told = to_the_end(Socket, Rest, Some),
    ok = gen_tcp:close(Socket),
    ok = await_exit(Node),
    Told.

start(Arguments) ->
    Erl = filename:join([code:root_dir(), "bin", "erl"]),
    Paths = lists:usort([filename:dirname(code:which(Module)) || Module <- [weir_log, weir_server, ?MODULE]]),
    Main = ["-run", "weir_demo_log_victim", "main" | [lists:concat([Argument]) || Argument <- Arguments]],
    open_port({spawn_executable, Erl}, [
        {args, ["-noshell", "-noinput", "-pa"] ++ Paths ++ Main}, exit_status, stderr_to_stdout, hide, binary
    ]).

await_exit(Node) ->
    receive
        {Node, {data, _}} -> await_exit(Node);
        %% 128 and SIGKILL.
        {Node, {exit_status, 137}} -> ok;
        {Node, {exit_status, Status}} -> error({not_killed, Status})
    after ?TIMEOUT -> error(does_not_exit)
    end.

until(Moment, _Socket, Rest, Told, Count) when Count >= Moment ->
    {Rest, Told};
until(Moment, Socket, Rest, Told, Count) ->
    case gen_tcp:recv(Socket, 0, ?TIMEOUT) of
        {ok, Bytes} ->
            {Left, Now, More} = records(<<Rest/binary, Bytes/binary>>, Told, 0),
            until(Moment, Socket, Left, Now, Count + More);
        {error, Reason} ->
            error({victim, Reason})
    end.

%% The last record may be cut: it was not told.
to_the_end(Socket, Rest, Told) ->
    case gen_tcp:recv(Socket, 0, ?TIMEOUT) of
        {ok, Bytes} ->
            {Left, Now, _} = records(<<Rest/binary, Bytes/binary>>, Told, 0),
            to_the_end(Socket, Left, Now);
        %% A killed node may have left something unread.
        {error, Reason} when Reason =:= closed; Reason =:= econnreset ->
            Told
    end.

%% The entries of one process are acknowledged one after the other.
records(<<Caller:32, Number:32, Rest/binary>>, Told, Count) ->
    Number = maps:get(Caller, Told, 0) + 1,
    records(Rest, Told#{Caller => Number}, Count + 1);
records(Rest, Told, Count) ->
    {Rest, Told, Count}.

open_again(weir_log, File) ->
    {ok, Log} = weir_log:open(?MODULE, #{file => File, frame => true}),
    weir_log:close(Log);
open_again(disk_log, File) ->
    {ok, Log} = disk_log:open([
        {name, ?MODULE}, {file, File}, {type, halt}, {format, external}, {size, infinity}, {quiet, true}
    ]),
    disk_log:close(Log).

read(weir_log, File) ->
    Add = fun(_Microseconds, Entry, Account) -> weir_demo_log_lines:add(Entry, Account) end,
    {ok, Account, #{cut_bytes := Torn}} = weir_log:fold(Add, weir_demo_log_lines:new(), File),
    {Account, Torn};
read(disk_log, File) ->
    {ok, Bytes} = file:read_file(File),
    {Account, Rest} = weir_demo_log_lines:add_lines(Bytes, weir_demo_log_lines:new()),
    {Account, byte_size(Rest)}.
