%% The option netns with a network name space of its own, made for the suite. That takes the right to make one.
-module(weir_socket_netns_SUITE).

-compile([export_all, nowarn_export_all]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_kit, [start/1, result/1]).

-define(LIB, weir_socket_test_lib).
-define(LOCALHOST, {127, 0, 0, 1}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_socket),
    Space = ?LIB:tmp("netns"),
    ok = file:write_file(Space, <<>>),
    case os:cmd("unshare --net=" ++ Space ++ " true && echo made") of
        "made\n" -> [{space, Space} | Config];
        Reason -> {skip, "no name space: " ++ Reason}
    end.

end_per_suite(Config) ->
    _ = os:cmd("umount " ++ proplists:get_value(space, Config)),
    ?LIB:remove_tmp().

%% ---------------------------------------------------------------- cases

%% What is no name space is not waited for, even if it is a pipe that nobody writes to.
no_space(_) ->
    Fifo = ?LIB:tmp("fifo"),
    "" = os:cmd("mkfifo " ++ Fifo),
    [
        ?assertEqual({Path, {error, Reason}}, {Path, weir_socket:listen(0, [{netns, Path}])})
     || {Path, Reason} <- [{Fifo, einval}, {"/dev/null", einval}, {Fifo ++ "x", enoent}]
    ].

same_port_twice(Config) ->
    {ok, Here} = listen([]),
    {ok, Port} = weir_socket:port(Here),
    ?assertEqual({error, eaddrinuse}, weir_socket:listen(Port, [{ip, any}])),
    {ok, There} = weir_socket:listen(Port, [{ip, any}, netns(Config)]),
    [ok = weir_socket:close(Socket) || Socket <- [Here, There]].

%% Nothing in a new name space is up, not even the loop.
another_network(Config) ->
    {ok, Here} = listen([]),
    {ok, Port} = weir_socket:port(Here),
    ?assertEqual({error, enetunreach}, weir_socket:connect(?LOCALHOST, Port, [netns(Config)])),
    {ok, Socket} = weir_socket:connect(?LOCALHOST, Port, []),
    [ok = weir_socket:close(Each) || Each <- [Here, Socket]].

%% Abstract names belong to the name space.
talks_inside(Config) ->
    Name = {local, <<0, "weir_netns_", (list_to_binary(os:getpid()))/binary>>},
    Options = [binary, {active, false}],
    {ok, Listener} = weir_socket:listen(0, [{ip, Name}, netns(Config) | Options]),
    ?assertEqual({error, econnrefused}, weir_socket:connect(Name, 0, Options)),
    {ok, One} = weir_socket:connect(Name, 0, [netns(Config) | Options]),
    {ok, Other} = ?LIB:accept(Listener),
    _ = ?LIB:talk(One, Other),
    [ok = weir_socket:close(Socket) || Socket <- [One, Other, Listener]].

%% Whatever threads have been in the other name space are back: what they open next is here.
scheduler_comes_back(Config) ->
    {ok, Here} = listen([]),
    {ok, Port} = weir_socket:port(Here),
    Tasks = [start(fun() -> there_and_here(Config, Port, 50) end) || _ <- lists:seq(1, 8)],
    [ok = result(Task) || Task <- Tasks],
    ok = weir_socket:close(Here).

there_and_here(_Config, _Port, 0) ->
    ok;
there_and_here(Config, Port, Times) ->
    {error, enetunreach} = weir_socket:connect(?LOCALHOST, Port, [netns(Config)]),
    {ok, Socket} = weir_socket:connect(?LOCALHOST, Port, []),
    ok = weir_socket:close(Socket),
    there_and_here(Config, Port, Times - 1).

refused(_Config) ->
    {error, einval} = weir_socket:listen(0, [{netns, "/dev/null"}]),
    {error, enoent} = weir_socket:listen(0, [{netns, ?LIB:tmp("none")}]).

%% ---------------------------------------------------------------- helpers

netns(Conf) -> {netns, proplists:get_value(space, Conf)}.

listen(Options) -> weir_socket:listen(0, [{ip, any}, {backlog, 1024} | Options]).
