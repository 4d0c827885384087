%% What the suites of the logger handler share: a handler whose file is of the test case, the events that are let into
%% it, the handler's processes, and callers that wait.
%%
%% The configuration of a case has the handler's `id' and its `file', and the node's `primary_level', which a case may
%% change.
-module(weir_log_h_test_lib).

-include_lib("common_test/include/ct.hrl").

-export([setup/3, teardown/2, add/3, formatter/1, only_of_test/0, test/0, is_of_test/1]).
-export([read/1, read_lines/1, lines/1, contains/2, numbers/2, is_written/2, state/1, lost/1]).
-export([handler_sup/1, linked/1, writer/1, kill_log/1, start_peer/1, of_the_kernel/0]).
-export([callers/2, all_wait/1, await_normal/1, in_parallel/2, in_process/1]).

setup(Id, Case, Config) ->
    #{level := Level} = logger:get_primary_config(),
    File = filename:join(weir_log_file_lib:dir(Case, Config), "weir.log"),
    [{id, Id}, {file, File}, {primary_level, Level} | Config].

%% Removes the handler, and others that a case may have added. Waits until the log has closed its file: on a busy
%% machine the log may need more than the seconds that the handler waits for it.
teardown(Others, Config) ->
    Id = ?config(id, Config),
    _ = [logger:remove_handler(Each) || Each <- [Id | Others]],
    ok = weir_kit:until(fun() -> not lists:member({weir_log_h, Id}, weir_log:names()) end),
    ok = logger:set_primary_config(level, ?config(primary_level, Config)).

%% Adds the handler. Options are those of weir_log_h, and Handler is what logger itself has of it. Unless a case gives a
%% time-out, no caller gives up before the case does.
add(Config, Options, Handler) ->
    All = maps:merge(#{timeout => weir_kit:wait_ms(), file => ?config(file, Config)}, Options),
    logger:add_handler(?config(id, Config), weir_log_h, Handler#{config => All}).

formatter(Template) ->
    (only_of_test())#{formatter => {logger_formatter, #{template => Template}}}.

%% What else goes on in the node is not for these files, except what handlers report of themselves.
only_of_test() ->
    #{filter_default => stop, filters => [{test, {fun of_test/2, x}}]}.

of_test(#{msg := {report, #{label := {weir_log, _}}}} = Event, _) ->
    Event;
of_test(Event, _) ->
    case is_of_test(Event) of
        true -> Event;
        false -> stop
    end.

%% The metadata of a test's events.
test() -> #{?MODULE => true}.

is_of_test(#{meta := #{?MODULE := true}}) -> true;
is_of_test(_) -> false.

%% ---------------------------------------------------------------- what is in the file

read(Config) ->
    {ok, Text} = file:read_file(?config(file, Config)),
    Text.

read_lines(Config) -> binary:split(read(Config), <<"\n">>, [global, trim]).

%% With all that was logged before.
lines(Config) ->
    ok = weir_log_h:sync(?config(id, Config)),
    read_lines(Config).

contains(Text, Part) -> binary:match(Text, unicode:characters_to_binary(Part)) =/= nomatch.

%% Returns the sum of the numbers in the lines that match.
numbers(Pattern, Config) ->
    lists:sum([
        binary_to_integer(N)
     || Line <- read_lines(Config), {match, [N]} <- [re:run(Line, Pattern, [{capture, [1], binary}])]
    ]).

%% Logs a text, and returns whether it is in the file.
is_written(Config, Text) ->
    ok = logger:error(Text, test()),
    _ = weir_log_h:sync(?config(id, Config)),
    contains(read(Config), Text).

%% ---------------------------------------------------------------- processes of a handler

state(Id) ->
    case weir_log_h:info(Id) of
        {ok, #{state := State}} -> State;
        {error, no_handler} -> none
    end.

lost(Id) ->
    {ok, #{lost := Lost}} = weir_log_h:info(Id),
    Lost.

handler_sup(Id) ->
    {_, Sup, _, _} = lists:keyfind({weir_log_h, Id}, 1, supervisor:which_children(logger_sup)),
    Sup.

manager(Id) -> whereis(list_to_atom(lists:concat(["weir_log_h_", Id]))).

%% Those that the manager is linked to beside its supervisor: the log's supervisor.
linked(Id) ->
    {links, Links} = process_info(manager(Id), links),
    Sup = handler_sup(Id),
    lists:sort([Pid || Pid <- Links, is_pid(Pid), Pid =/= Sup]).

log_sup(Id) -> linked_as({supervisor, weir_log_log_sup, 1}, Id).

%% Makes the calling process one that the node cannot do without.
of_the_kernel() ->
    {group_leader, Kernel} = process_info(whereis(logger_sup), group_leader),
    true = group_leader(Kernel, self()),
    ok.

linked_as(InitialCall, Id) ->
    [Pid] = [Each || Each <- linked(Id), initial_call(Each) =:= InitialCall],
    Pid.

initial_call(Pid) ->
    {dictionary, Dictionary} = process_info(Pid, dictionary),
    proplists:get_value('$initial_call', Dictionary, none).

writer(Id) ->
    {_, Writer, _, _} = lists:keyfind({writer, 1}, 1, supervisor:which_children(log_sup(Id))),
    Writer.

%% Also called on other nodes.
kill_log(Id) -> exit(log_sup(Id), kill).

%% A node that finds Weir's modules and those of the tests.
start_peer(Args) ->
    Paths = weir_log_test_lib:code_paths([weir_log_h, weir_server, weir_kit, ?MODULE]),
    {ok, Peer, _} = peer:start(#{
        connection => standard_io, wait_boot => weir_kit:wait_ms(), args => Args ++ ["-pa" | Paths]
    }),
    Peer.

%% ---------------------------------------------------------------- callers

%% Starts N tasks that call Fun(I).
callers(N, Fun) -> [weir_kit:start(fun() -> Fun(I) end) || I <- lists:seq(1, N)].

%% Returns whether each of the tasks waits in a receive now.
all_wait(Callers) -> lists:all(fun({Pid, _}) -> process_info(Pid, status) =:= {status, waiting} end, Callers).

await_normal(Callers) -> lists:foreach(fun weir_kit:result/1, Callers).

in_parallel(N, Fun) ->
    _ = weir_kit:in_parallel([fun() -> Fun(I) end || I <- lists:seq(1, N)]),
    ok.

in_process(Fun) -> in_parallel(1, fun(_) -> Fun() end).
