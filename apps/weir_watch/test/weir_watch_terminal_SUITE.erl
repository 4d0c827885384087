%% The screen of `weir top' in a terminal, and of weir_watch:top/0 in a shell. Both show a node that has nothing of
%% Weir, and leave nothing on that node, however they end. weir_watch_screen_SUITE has the contents of the screen.
-module(weir_watch_terminal_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_watch_test_remote, [start_node/1, stop_node/1, holds_logins/1, traces/1, cookie/1, set_up/1]).
-import(weir_kit, [until/1, wait_ms/0]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_watch_test_remote:init(Config).

end_per_suite(Config) -> weir_watch_test_remote:finish(Config).

init_per_testcase(Case, Config) when
    Case =:= screen; Case =:= gone_and_back; Case =:= command_killed; Case =:= terminal_killed
->
    case os:cmd("python3 -c 'import pty; pty.openpty()' 2>&1") of
        "" -> set_up(Config);
        _ -> {skip, "this system gives out no pseudo-terminals"}
    end;
init_per_testcase(_Case, Config) ->
    set_up(Config).

end_per_testcase(_Case, Config) -> stop_node(?config(peer, Config)).

screen(Config) ->
    _ = holds_logins(Config),
    Before = traces(Config),
    T = terminal(Config),
    shows(T, "memory"),
    mode(T, "raw"),
    keys(T, "?"),
    shows(T, "ctrl-C     quit"),
    keys(T, "?"),
    keys(T, "s"),
    shows(T, "sort: core"),
    keys(T, "\eOB\e[Ajkp"),
    keys(T, " "),
    shows(T, "PAUSED"),
    keys(T, " "),
    shows(T, " 300 "),
    keys(T, "m"),
    keys(T, "i"),
    shows(T, "300 messages"),
    ?assertEqual(nomatch, string:find(output(T), "{login,1}")),
    keys(T, "m"),
    shows(T, "{login,1}"),
    keys(T, "i"),
    %% A line as wide as the terminal says that the new width is known.
    true = port_command(T, "size 30 100\n"),
    shows(T, lists:duplicate(100, $-)),
    keys(T, [3]),
    ?assertEqual(0, ended(T)),
    mode(T, "sane"),
    until(fun() -> traces(Config) =:= Before end).

gone_and_back(Config) ->
    Node = ?config(node, Config),
    T = terminal(Config),
    shows(T, "memory"),
    stop_node(?config(peer, Config)),
    shows(T, "Trying again."),
    [Name, _] = string:split(atom_to_list(Node), "@"),
    %% Its name is not free yet, where epmd has to hear of its end.
    until(fun() ->
        {ok, Names} = erl_epmd:names("localhost"),
        not lists:keymember(Name, 1, Names)
    end),
    {Peer, Node} = start_node(Name),
    %% The message is gone from the screen: each begins in the corner, so what counts is the last one.
    until(fun() ->
        Last = lists:last(string:split(output(T), "\e[H", all)),
        string:find(Last, "memory") =/= nomatch andalso string:find(Last, "Trying again.") =:= nomatch
    end),
    keys(T, "q"),
    ?assertEqual(0, ended(T)),
    until(fun() -> maps:get(loaded, traces([{peer, Peer}])) =:= [] end),
    stop_node(Peer).

%% kill -9 of what runs the command: the node is as before, and so is the terminal.
command_killed(Config) ->
    Before = traces(Config),
    T = terminal(Config),
    shows(T, "memory"),
    ?assertNotEqual(Before, traces(Config)),
    _ = os:cmd("kill -9 " ++ get({T, pid})),
    _ = ended(T),
    until(fun() -> traces(Config) =:= Before end),
    until(fun() -> mode(T) =:= "sane" end).

%% The terminal is closed.
terminal_killed(Config) ->
    Before = traces(Config),
    T = terminal(Config),
    shows(T, "memory"),
    {os_pid, Python} = erlang:port_info(T, os_pid),
    _ = os:cmd("kill -9 " ++ integer_to_list(Python)),
    until(fun() -> traces(Config) =:= Before end).

terminal(Conf) ->
    Weir = [?config(weir, Conf), "top", atom_to_list(?config(node, Conf))],
    Python = filename:join(weir_kit:path("apps/weir_watch/test"), "weir_watch_terminal.py"),
    Port = open_port({spawn_executable, os:find_executable("python3")}, [
        {line, 1_000_000},
        {args, [Python | Weir] ++ cookie(tl(Weir))},
        {env, [{"TERM", "xterm"}, {"NO_COLOR", "1"}, {"LC_ALL", "C"}, {"ERL_FLAGS", false}]}
    ]),
    receive {Port, {data, {eol, "pid " ++ Pid}}} -> put({Port, pid}, Pid) end,
    Port.

keys(Port, Keys) -> true = port_command(Port, ["keys ", binary:encode_hex(iolist_to_binary(Keys)), $\n]).

%% Everything that was printed until now.
output(Port) ->
    receive
        {Port, {data, {eol, "out " ++ Hex}}} ->
            _ = put({Port, output}, [get_output(Port), binary:decode_hex(list_to_binary(Hex))]),
            output(Port)
    after 0 -> binary_to_list(iolist_to_binary(get_output(Port)))
    end.

get_output(Port) ->
    case get({Port, output}) of
        undefined -> [];
        Output -> Output
    end.

%% Since the last look.
shows(Port, Text) ->
    until(fun() -> string:find(output(Port), Text) =/= nomatch end),
    erase({Port, output}).

mode(Port) ->
    true = port_command(Port, "mode\n"),
    receive {Port, {data, {eol, "mode " ++ Mode}}} -> Mode after wait_ms() -> ct:fail(no_mode) end.

mode(Port, Mode) -> ?assertEqual(Mode, mode(Port)).

ended(Port) ->
    receive
        {Port, {data, {eol, "exit " ++ Status}}} -> list_to_integer(Status)
    after wait_ms() -> ct:fail({no_end, output(Port)})
    end.

%% Its input and output is a process, as in a shell.
in_a_shell(Config) ->
    Before = traces(Config),
    in_a_shell(fun() -> weir_watch_top:run(#{node => ?config(node, Config)}) end, atom_to_list(?config(node, Config))),
    until(fun() -> traces(Config) =:= Before end).

%% Where its agent does not run, one is there for as long as it is looked at.
of_its_own_node(_Config) ->
    _ = application:stop(weir_watch),
    undefined = whereis(weir_watch_agent),
    Agents = fun() ->
        [Pid || Pid <- processes(), proc_lib:translate_initial_call(Pid) =:= {weir_watch_agent, init, 1}]
    end,
    until(fun() -> Agents() =:= [] end),
    in_a_shell(fun weir_watch:top/0, atom_to_list(node())),
    until(fun() -> {whereis(weir_watch_guard), Agents()} =:= {undefined, []} end).

in_a_shell(Top, Node) ->
    Self = self(),
    Device = spawn_link(fun() -> device(Self, []) end),
    {Pid, Monitor} = spawn_monitor(fun() ->
        true = group_leader(Device, self()),
        Result = Top(),
        %% Nothing is left in the mailbox of the shell.
        exit({Result, process_info(self(), messages)})
    end),
    printed(Device, Node),
    printed(Device, "memory"),
    Device ! {line, "s\n"},
    printed(Device, "sort: core"),
    Device ! {line, "\n"},
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual({ok, {messages, []}}, Reason)
    after wait_ms() -> ct:fail(no_end)
    end.

%% An io device with 30 rows and 90 columns that sends its owner what is printed.
device(Owner, Waiting) ->
    receive
        %% Before it is asked for, it stays in the mailbox.
        {line, Line} when Waiting =/= [] ->
            [{From, As}] = Waiting,
            From ! {io_reply, As, Line},
            device(Owner, []);
        {io_request, From, As, {get_line, _, _}} ->
            device(Owner, [{From, As}]);
        {io_request, From, As, Request} ->
            From ! {io_reply, As, asked(Request, Owner)},
            device(Owner, Waiting)
    end.

asked({put_chars, unicode, Chars}, Owner) ->
    Owner ! {printed, self(), unicode:characters_to_list(Chars)},
    ok;
asked({put_chars, unicode, M, F, A}, Owner) -> asked({put_chars, unicode, apply(M, F, A)}, Owner);
asked({get_geometry, rows}, _) -> 30;
asked({get_geometry, columns}, _) -> 90;
asked(getopts, _) -> [{encoding, unicode}];
asked(_, _) -> {error, request}.

printed(Device, Text) ->
    receive
        {printed, Device, Chars} ->
            case string:find(Chars, Text) of
                nomatch -> printed(Device, Text);
                _ -> ok
            end
    after wait_ms() -> ct:fail({not_printed, Text})
    end.

keys(_Config) ->
    ?assertEqual([down, up, quit], weir_watch_top:keys(<<"jkq">>)),
    ?assertEqual([up, down, up, down], weir_watch_top:keys(<<"\e[A\e[B\eOA\eOB">>)),
    ?assertEqual([pause], weir_watch_top:keys(<<"\e[1;5C ">>)),
    ?assertEqual([back], weir_watch_top:keys(<<"\e">>)),
    ?assertEqual([], weir_watch_top:keys(<<255, 0, "xyz", "\e[">>)),
    ?assertEqual([inspect, inspect, messages, quit], weir_watch_top:keys(<<"\rim", 3>>)).
