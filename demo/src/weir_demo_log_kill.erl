%% @doc Section of the demo: a node that logs under load is killed with SIGKILL, through weir_log and through disk_log;
%% then it is looked what is in the file.
%%
%% The node ({@link weir_demo_log_victim}) tells of each entry that was acknowledged over a socket; what the kernel had
%% taken by the kill still arrives. Whatever has arrived was acknowledged before, so it should be in the file. Then the
%% log is opened once more, as after a restart, and the file is read.
%%
%% The node ends with the caller, which holds the other end of the socket.
-module(weir_demo_log_kill).

-behaviour(weir_demo_part).

-export([title/0, hurts/0, run/1, run/2, kill/5]).

-export_type([sizes/0, found/0]).

-define(SIZES, #{callers => 200, earliest => 20_000, latest => 40_000}).
-define(TIMEOUT, 60_000).

-type sizes() :: #{
    %% Processes of the node that is killed, when it has told of so many entries at the earliest, and at the latest.
    callers := pos_integer(),
    earliest := pos_integer(),
    latest := pos_integer()
}.

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

%% @doc The section's name.
-spec title() -> string().
title() -> "A node is killed while it logs".

%% @doc What hurts.
-spec hurts() -> string().
hurts() -> "An entry that was acknowledged and is gone after a crash is worse than one that was refused.".

%% @doc Kills two nodes.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(Context) -> run(Context, ?SIZES).

%% @doc The same in other sizes.
-spec run(weir_demo_part:context(), sizes()) -> weir_demo_part:outcome().
run(_Context, #{callers := Callers, earliest := Earliest, latest := Latest}) ->
    Moment = Earliest + rand:uniform(Latest - Earliest + 1) - 1,
    {Plain, Weir} = weir_demo_log:in_dir(fun(Dir) ->
        Run = fun(Log) ->
            Told = counters:new(1, []),
            Label = [atom_to_list(Log), " until the kill"],
            weir_demo_screen:watch(Label, Moment, fun() -> counters:get(Told, 1) end, fun() ->
                kill(Log, filename:join(Dir, Log), Callers, Moment, Told)
            end)
        end,
        {Run(disk_log), Run(weir_log)}
    end),
    #{acknowledged := Acknowledged, missing := Missing, torn := Torn, wrong := Wrong} = Weir,
    Of = fun(#{acknowledged := All, missing := Gone}) ->
        [weir_kit_text:integer(Gone), " of ", weir_kit_text:integer(All)]
    end,
    #{
        said => [
            ["Of the entries acknowledged before the kill, ", Of(Weir), " are missing with weir_log, "],
            [Of(Plain), " with disk_log."]
        ],
        promises => [
            {
                io_lib:format("weir_log: ~ts of ~ts acknowledged entries missing, ~b wrong, ~b bytes torn", [
                    weir_kit_text:integer(Missing), weir_kit_text:integer(Acknowledged), Wrong, Torn
                ]),
                Missing + Wrong + Torn =:= 0 andalso Acknowledged >= Moment
            }
        ],
        plots => [
            #{
                kind => bars,
                title => "Acknowledged entries that are missing",
                bars => [
                    #{name => Name, side => Side, value => maps:get(missing, Found), text => Of(Found)}
                 || {Name, Side, Found} <- [{"weir_log", weir, Weir}, {"disk_log", plain, Plain}]
                ]
            }
        ]
    }.

%% @doc Runs a node with so many processes, and kills it when it has told of `Moment' entries; `Told' counts them. Needs
%% weir_log to run.
-spec kill(weir_log | disk_log, file:filename(), Callers :: pos_integer(), Moment, counters:counters_ref()) ->
    found()
when
    Moment :: pos_integer().
kill(Log, File, Callers, Moment, Counter) ->
    Told = live(Log, File, Callers, Moment, Counter),
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
live(Log, File, Callers, Moment, Counter) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Number} = inet:port(Listen),
    Node = start([Log, File, Callers, Number]),
    {ok, Socket} = gen_tcp:accept(Listen, ?TIMEOUT),
    ok = gen_tcp:close(Listen),
    {Rest, Some} = until(Moment, Socket, <<>>, #{}, Counter),
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

until(Moment, Socket, Rest, Told, Counter) ->
    case counters:get(Counter, 1) >= Moment of
        true ->
            {Rest, Told};
        false ->
            case gen_tcp:recv(Socket, 0, ?TIMEOUT) of
                {ok, Bytes} ->
                    {Left, Now, More} = records(<<Rest/binary, Bytes/binary>>, Told, 0),
                    counters:add(Counter, 1, More),
                    until(Moment, Socket, Left, Now, Counter);
                {error, Reason} ->
                    error({victim, Reason})
            end
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
