%% @doc The command `weir', and what `weir_watch:top()' shows in a shell.
%%
%% Three processes: one looks at the node (it attaches, subscribes, and hands on each {@type weir_watch:snapshot()};
%% when the node goes away it says so and tries again each second), one reads keys where there is no terminal of our
%% own, and one draws: the command's own, or in a shell one for that. They are linked: when the caller ends, so do
%% they, and the node's guard ({@link weir_watch_remote}) removes what was sent to it.
%%
%% The terminal of the command is set by a shell script that stays: it changes the terminal's mode and screen, tells its
%% size when asked, and puts both back when it is told to or when this runtime ends, in whatever way. So it does on each
%% OTP.
%% @private
-module(weir_watch_top).

-export([main/1, run/1, keys/1]).

%% Sh reads requests from descriptor 3 and answers on 4; 0 and 1 are the terminal.
-define(TERMINAL,
    "[ -t 0 ] && [ -t 1 ] && saved=$(stty -g) || exit 1\n"
    "trap '' HUP INT QUIT TERM PIPE\n"
    "stty -icanon -echo -isig -ixon min 1 time 0\n"
    "printf '\\033[?1049h\\033[?25l'\n"
    "stty size >&4\n"
    "while read -r request <&3 && [ \"$request\" = size ]; do stty size >&4; done\n"
    "stty \"$saved\"\n"
    "printf '\\033[0m\\033[?25h\\033[?1049l'\n"
).
-define(SORTS, [queue, core, growth, waiters]).
%% How long the end waits until the node is as it was; its guard goes on without us.
-define(END_MS, 10_000).
%% How long a node may take until there is a snapshot, and between two.
-define(ATTACH_MS, 300_000).
-define(SILENCE_MS, 60_000).

%% ---------------------------------------------------------------- the command

%% @doc What the escript runs. Ends the runtime, with status 0, 1 when something is diagnosed, or 2 when it could not
%% look.
-spec main([string()]) -> no_return().
main(Args) ->
    ok = logger:set_primary_config(level, none),
    Status =
        try
            command(Args)
        catch
            throw:{failed, Text} -> failed(Text);
            Class:Reason:Stack -> failed(io_lib:format("~tp", [{Class, Reason, Stack}]))
        end,
    halt(Status).

failed(Text) ->
    io:put_chars(standard_error, ["weir: ", Text, $\n]),
    2.

command(["top" | Args]) ->
    Options = #{node := Node} = options(Args, #{}),
    distribute(Options),
    case Options of
        #{once := true} -> once(Options);
        #{} -> full_screen(Node)
    end;
command([]) ->
    print(usage());
command([Help | _]) when Help =:= "help"; Help =:= "--help"; Help =:= "-h" ->
    print(usage());
command([Other | _]) ->
    throw({failed, ["there is no command ", Other, ". Try: weir help"]}).

usage() ->
    "weir top NODE        shows which process of a node is in trouble, why, and what to do about it\n"
    "weir help            this\n"
    "\n"
    "NODE is a node's name, such as shop@db1 (shop alone: on this host). It needs nothing of Weir: what weir\n"
    "sends there it takes away again.\n"
    "\n"
    "  --once             looks for some seconds and prints what is wrong\n"
    "  --seconds N        so many instead of 10\n"
    "  --json             prints it as JSON: an object with diagnoses, limits, and more\n"
    "  --cookie C         the node's cookie, instead of that in ~/.erlang.cookie\n"
    "  --sname N, --name N\n"
    "                     a name of our own, instead of one that is made up\n"
    "\n"
    "Exit status: 0 nothing was found, 1 something was, 2 could not look.\n".

options(["--once" | Rest], Options) -> options(Rest, Options#{once => true});
options(["--json" | Rest], Options) -> options(Rest, Options#{once => true, json => true});
options(["--cookie", Cookie | Rest], Options) -> options(Rest, Options#{cookie => list_to_atom(Cookie)});
options(["--name", Name | Rest], Options) -> options(Rest, Options#{own => {list_to_atom(Name), longnames}});
options(["--sname", Name | Rest], Options) -> options(Rest, Options#{own => {list_to_atom(Name), shortnames}});
options(["--seconds", Text | Rest], Options) ->
    case string:to_integer(Text) of
        {N, []} when is_integer(N), N > 0, N =< 86400 -> options(Rest, Options#{once => true, seconds => N});
        _ -> throw({failed, ["--seconds takes a number from 1 to 86400, not ", Text]})
    end;
options(["-" ++ _ = Option | _], _Options) ->
    throw({failed, ["there is no option ", Option, ", or its value is missing. Try: weir help"]});
options([Node | Rest], Options) when not is_map_key(node, Options) ->
    case string:split(Node, "@", all) of
        [[_ | _], [_ | _]] -> options(Rest, Options#{node => list_to_atom(Node)});
        [[_ | _]] -> options(Rest, Options#{node => list_to_atom(Node ++ "@" ++ host())});
        _ -> throw({failed, [Node, " is no node's name. One is like shop@db1"]})
    end;
options([Other | _], _Options) ->
    throw({failed, ["one node at a time, so not ", Other]});
options([], #{node := _} = Options) ->
    Options;
options([], _Options) ->
    throw({failed, "of which node? Try: weir top NODE, or weir help"}).

host() ->
    {ok, Host} = inet:gethostname(),
    Host.

%% Hidden, and not listening: no other node learns of us, and epmd need not run here.
distribute(#{node := Node} = Options) ->
    [_, Host] = string:split(atom_to_list(Node), "@"),
    {Name, Domain} =
        case {Options, lists:member($., Host)} of
            {#{own := Own}, _} -> Own;
            {_, false} -> {made_up(host()), shortnames};
            {_, true} -> {made_up(host() ++ ".invalid"), longnames}
        end,
    case net_kernel:start(Name, #{name_domain => Domain, hidden => true, dist_listen => false}) of
        {ok, _} ->
            _ = [erlang:set_cookie(Cookie) || {cookie, Cookie} <- maps:to_list(Options)],
            ok;
        {error, Reason} ->
            throw({failed, io_lib:format("this node could not become ~ts: ~0tp", [Name, Reason], [{chars_limit, 500}])})
    end.

made_up(Host) -> list_to_atom("weir_" ++ os:getpid() ++ "@" ++ Host).

%% ---------------------------------------------------------------- once

once(#{node := Node} = Options) ->
    Looker = start_looker(Node),
    Seconds = maps:get(seconds, Options, 10),
    Snapshot = first(Looker, Node, Seconds),
    #{diagnoses := Diagnoses} = Snapshot,
    _ =
        case Options of
            #{json := true} ->
                Told = maps:with([node, otp, at, watched, diagnoses, limits, cost], Snapshot),
                print([weir_watch_json:encode(Told, Node), $\n]);
            #{} -> print(weir_watch_screen:report(Snapshot, #{unicode => unicode()}))
        end,
    ok = stop_looker(Looker),
    case Diagnoses of
        [] -> 0;
        _ -> 1
    end.

%% The time is that of looking: a node that has to compile what it is sent takes some for that, too. How long it may
%% take for each step, attach/1 knows.
first(Looker, Node, Seconds) ->
    receive
        {Looker, snapshot, _} ->
            Looker ! next,
            last(Looker, Node, erlang:monotonic_time(millisecond) + Seconds * 1000);
        {Looker, unreachable, Reason} ->
            throw({failed, weir_watch_remote:explain(Node, Reason)})
    after ?ATTACH_MS ->
        throw({failed, weir_watch_remote:explain(Node, timeout)})
    end.

%% The first snapshot after the deadline.
last(Looker, Node, Deadline) ->
    receive
        {Looker, snapshot, Snapshot} ->
            case erlang:monotonic_time(millisecond) >= Deadline of
                true ->
                    Snapshot;
                false ->
                    Looker ! next,
                    last(Looker, Node, Deadline)
            end;
        {Looker, unreachable, Reason} ->
            throw({failed, weir_watch_remote:explain(Node, Reason)})
    after ?SILENCE_MS ->
        throw({failed, weir_watch_remote:explain(Node, timeout)})
    end.

%% As bytes, whatever the encoding that the runtime thinks the terminal has.
print(Bytes) ->
    Port = open_port({fd, 1, 1}, [out, binary]),
    true = port_command(Port, unicode:characters_to_binary(Bytes)),
    0.

%% ---------------------------------------------------------------- looking at a node

start_looker(Node) ->
    Owner = self(),
    spawn_link(fun() -> look(Owner, Node) end).

stop_looker(Looker) ->
    Monitor = monitor(process, Looker),
    Looker ! stop,
    receive
        {'DOWN', Monitor, process, Looker, _} -> ok
    after ?END_MS -> ok
    end.

%% It tells its owner each snapshot and waits for `next' before the following one; and why there is none.
look(Owner, Node) ->
    case weir_watch_remote:attach(Node) of
        {ok, Agent, Handle} ->
            Monitor = monitor(process, Agent),
            ok = weir_watch_agent:subscribe(Agent),
            End = looking(Owner, Agent, Monitor),
            ok = weir_watch_remote:detach(Handle),
            again(Owner, Node, End);
        {error, Reason} ->
            again(Owner, Node, Reason)
    end.

looking(Owner, Agent, Monitor) ->
    receive
        stop ->
            stop;
        next ->
            ok = weir_watch_agent:next(Agent),
            looking(Owner, Agent, Monitor);
        {inspect, Pid} ->
            ok = weir_watch_agent:inspect(Agent, Pid),
            looking(Owner, Agent, Monitor);
        {messages, Pid} ->
            _ = weir_watch_messages:ask(Pid),
            looking(Owner, Agent, Monitor);
        {weir_watch, Agent, Snapshot} ->
            Owner ! {self(), snapshot, Snapshot},
            looking(Owner, Agent, Monitor);
        {'DOWN', Monitor, process, Agent, noconnection} ->
            disconnected;
        %% Another's end came in between, or the agent's limits have ended it.
        {'DOWN', Monitor, process, Agent, Reason} ->
            {no_agent, Reason};
        {{messages, Pid}, _, process, _, Reason} ->
            Owner ! {self(), messages, {Pid, weir_watch_messages:answer(Reason)}},
            looking(Owner, Agent, Monitor)
    end.

again(_Owner, _Node, stop) ->
    ok;
again(Owner, Node, Reason) ->
    _ = [Owner ! {self(), unreachable, Reason} || not (is_tuple(Reason) andalso element(2, Reason) =:= normal)],
    receive
        stop -> ok
    after 1000 -> look(Owner, Node)
    end.

%% ---------------------------------------------------------------- the full screen

full_screen(Node) ->
    Script = open_port({spawn_executable, "/bin/sh"}, [nouse_stdio, binary, exit_status, {args, ["-c", ?TERMINAL]}]),
    receive
        {Script, {exit_status, _}} ->
            throw({failed, "this is no terminal. With --once it prints what it finds."});
        {Script, {data, Size}} ->
            Terminal = open_port({fd, 0, 1}, [binary, eof]),
            Io = #{
                keys => Terminal,
                size => Script,
                write => fun(Bytes) -> port_command(Terminal, Bytes) end,
                measure => fun() -> port_command(Script, "size\n") end
            },
            try
                shown(Io, Node, resized(Size, #{color => color(), unicode => unicode()}))
            after
                true = port_command(Script, "end\n"),
                receive {Script, {exit_status, _}} -> ok after ?END_MS -> ok end
            end
    end.

%% @doc Draws each second, in a shell, until Enter alone (or q and Enter) is pressed; the other keys are followed by
%% Enter too. `node' is the one to look at, if it is not the shell's. It is drawn by a process of its own, so that
%% nothing is left in the caller's mailbox.
-spec run(#{node => node()}) -> ok.
run(Options) ->
    {Pid, Monitor} = spawn_opt(fun() -> run_here(Options) end, [link, monitor]),
    receive
        {'DOWN', Monitor, process, Pid, Reason} ->
            true = unlink(Pid),
            %% Of a caller that traps exits.
            receive {'EXIT', Pid, _} -> ok after 0 -> ok end,
            if Reason =:= normal -> ok; true -> exit(Reason) end
    end.

run_here(Options) ->
    Device = group_leader(),
    Self = self(),
    Reader = spawn_link(fun() -> read_lines(Device, Self) end),
    Write = fun(Bytes) -> io:put_chars(Device, unicode:characters_to_list(iolist_to_binary(Bytes))) end,
    Measure = fun() -> Self ! {size, extent(Device)} end,
    Unicode = proplists:get_value(encoding, case io:getopts(Device) of {error, _} -> []; Opts -> Opts end) =:= unicode,
    View = (extent(Device))#{color => color(), unicode => Unicode},
    Write("\e[2J"),
    0 = shown(#{keys => none, size => none, write => Write, measure => Measure}, maps:get(node, Options, node()), View),
    true = unlink(Reader),
    true = exit(Reader, kill),
    io:nl(Device).

extent(Device) ->
    case {io:rows(Device), io:columns(Device)} of
        {{ok, Rows}, {ok, Columns}} -> #{rows => max(1, Rows - 1), columns => Columns};
        _ -> #{rows => 23, columns => 80}
    end.

read_lines(Device, Owner) ->
    case io:get_line(Device, "") of
        "\n" -> Owner ! {keys, <<"q">>};
        Line when is_list(Line) ->
            Owner ! {keys, unicode:characters_to_binary(string:trim(Line, trailing, "\n"))},
            read_lines(Device, Owner);
        _ -> Owner ! {keys, <<"q">>}
    end.

color() -> os:getenv("NO_COLOR", "") =:= "" andalso not lists:member(os:getenv("TERM", "dumb"), ["", "dumb"]).

unicode() ->
    Set = [Value || Name <- ["LC_ALL", "LC_CTYPE", "LANG"], Value <- [os:getenv(Name, "")], Value =/= ""],
    lists:any(fun(Value) -> re:run(Value, "utf-?8", [caseless]) =/= nomatch end, lists:sublist(Set, 1)).

resized(Size, View) ->
    case [N || Word <- string:lexemes(Size, " \n"), {N, _} <- [string:to_integer(Word)], is_integer(N), N > 0] of
        [Rows, Columns | _] -> View#{rows => Rows, columns => Columns};
        _ -> maps:merge(#{rows => 24, columns => 80}, View)
    end.

%% ---------------------------------------------------------------- what is on it

shown(Io, Node, View) ->
    Looker = start_looker(Node),
    Message = ["Connecting to ", atom_to_list(Node), "."],
    ok = loop(#{io => Io, node => Node, looker => Looker, snapshot => undefined, view => View#{message => Message}}),
    stop_looker(Looker),
    0.

loop(#{io := Io, looker := Looker, node := Node, view := View, snapshot := Snapshot} = State) ->
    #{write := Write, measure := Measure, keys := Terminal, size := Script} = Io,
    Write(weir_watch_screen:draw(Snapshot, View)),
    receive
        {Looker, snapshot, New} ->
            Looker ! next,
            Measure(),
            Back = maps:remove(message, View),
            case View of
                #{paused := true} when Snapshot =/= undefined -> loop(State#{view := Back});
                #{} -> loop(State#{view := Back, snapshot := New})
            end;
        {Looker, unreachable, Reason} ->
            Measure(),
            loop(State#{view := View#{message => [weir_watch_remote:explain(Node, Reason), " Trying again."]}});
        {Looker, messages, Told} ->
            loop(State#{view := View#{messages => Told}});
        {size, Size} ->
            loop(State#{view := maps:merge(View, Size)});
        {keys, Bytes} ->
            pressed(keys(Bytes), State);
        {Script, {data, Size}} ->
            loop(State#{view := resized(Size, View)});
        {Terminal, {data, Bytes}} ->
            pressed(keys(Bytes), State);
        %% The terminal is gone.
        {Terminal, eof} ->
            ok;
        {Script, {exit_status, _}} = Exit ->
            self() ! Exit,
            ok
    end.

pressed([], State) ->
    loop(State);
pressed([messages | Keys], #{view := #{inspect := true, selected := Pid}, looker := Looker} = State) ->
    Looker ! {messages, Pid},
    pressed(Keys, State);
pressed([Key | Keys], #{view := View, snapshot := Snapshot, looker := Looker} = State) ->
    case key(Key, View, Snapshot) of
        quit ->
            ok;
        #{inspect := true, selected := Pid} = New ->
            Looker ! {inspect, Pid},
            pressed(Keys, State#{view := New});
        New ->
            pressed(Keys, State#{view := New})
    end.

key(quit, _View, _Snapshot) -> quit;
key(help, View, _Snapshot) -> toggle(help, View);
key(back, View, _Snapshot) -> View#{help => false, inspect => false};
key(pause, View, _Snapshot) -> toggle(paused, View);
key(sort, View, _Snapshot) ->
    Sort = maps:get(sort, View, hd(?SORTS)),
    [_, Next | _] = lists:dropwhile(fun(Each) -> Each =/= Sort end, ?SORTS ++ ?SORTS),
    View#{sort => Next};
key(_Key, View, undefined) ->
    View;
key(Key, View, Snapshot) ->
    Order = weir_watch_screen:order(Snapshot, View),
    case {Key, lists:splitwith(fun(Pid) -> Pid =/= maps:get(selected, View, none) end, Order)} of
        {_, {[], []}} -> View;
        {_, {[First | _], []}} when Key =/= up, Key =/= down -> key(Key, View#{selected => First}, Snapshot);
        {down, {_, [_, Next | _]}} -> View#{selected => Next};
        {down, {[_, Next | _], []}} -> View#{selected => Next};
        {up, {[_ | _] = Above, [_ | _]}} -> View#{selected => lists:last(Above)};
        {pin, {_, [Pid | _]}} ->
            Pinned = maps:get(pinned, View, []),
            View#{pinned => case lists:member(Pid, Pinned) of true -> Pinned -- [Pid]; false -> [Pid | Pinned] end};
        {inspect, _} -> toggle(inspect, View);
        _ -> View
    end.

toggle(Key, View) -> View#{Key => not maps:get(Key, View, false)}.

%% @doc What was pressed, from the bytes that the terminal sent.
-spec keys(binary()) -> [quit | help | back | pause | sort | up | down | pin | inspect | messages].
keys(<<"\e", Kind, Rest/binary>>) when Kind =:= $[; Kind =:= $O ->
    %% Parameters, and then one letter.
    {_, Final} = string:take(Rest, "0123456789;"),
    case Final of
        <<"A", More/binary>> -> [up | keys(More)];
        <<"B", More/binary>> -> [down | keys(More)];
        <<_, More/binary>> -> keys(More);
        <<>> -> []
    end;
keys(<<Byte, Rest/binary>>) ->
    Keys = #{
        $q => quit, 3 => quit, $? => help, $h => help, $\e => back, $\s => pause, $s => sort, $k => up, $j => down,
        $p => pin, $i => inspect, $\r => inspect, $\n => inspect, $m => messages
    },
    [Key || {ok, Key} <- [maps:find(Byte, Keys)]] ++ keys(Rest);
keys(<<>>) ->
    [].
