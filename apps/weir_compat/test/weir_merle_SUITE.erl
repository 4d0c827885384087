%% merle's interface against a real memcached; its failures against a scripted server.
-module(weir_merle_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    [{server, weir_kit_memcached:start()} | weir_memcached_test:set_up(weir_compat, Config)].

end_per_suite(Config) ->
    weir_kit_memcached:stop(?config(server, Config)),
    weir_memcached_test:tear_down(Config).

%% Each case begins without a connection, and ends its own.
init_per_testcase(_, Config) ->
    weir_kit:until(fun() -> whereis(weir_merle) =:= undefined end),
    Config.

end_per_testcase(_, _) ->
    whereis(weir_merle) =:= undefined orelse weir_merle:disconnect().

connect(Conf) ->
    #{host := Host, port := Port} = ?config(server, Conf),
    {ok, Pid} = weir_merle:connect(Host, Port),
    ok = weir_merle:flushall(),
    Pid.

%% Every function of merle's that this is about, and no other.
interface(_) ->
    Exports = lists:sort(weir_merle:module_info(exports) -- [{module_info, 0}, {module_info, 1}]),
    ?assertEqual(
        lists:sort([
            {connect, 0}, {connect, 2}, {disconnect, 0}, {set, 2}, {set, 4}, {add, 2}, {add, 4}, {replace, 2},
            {replace, 4}, {cas, 3}, {cas, 5}, {getkey, 1}, {getskey, 1}, {delete, 1}, {delete, 2}, {stats, 0},
            {stats, 1}, {version, 0}, {flushall, 0}, {flushall, 1}, {verbosity, 1}
        ]),
        Exports
    ).

%% Any term, stored and read back; undefined where there is none.
set_and_getkey(Config) ->
    connect(Config),
    ?assertEqual(undefined, weir_merle:getkey("k")),
    [
        begin
            ?assertEqual(ok, weir_merle:set("k", Term)),
            ?assertEqual(Term, weir_merle:getkey("k"))
        end
     || Term <- [an_atom, "string", <<"binary">>, {tuple, [1, 2.0]}, #{}, "", undefined, binary:copy(<<"x">>, 500000)]
    ],
    ?assertEqual(ok, weir_merle:set("k", 7, 1000, value)),
    ?assertEqual(value, weir_merle:getkey("k")).

%% add where there is nothing, replace where there is something.
add_and_replace(Config) ->
    connect(Config),
    ?assertEqual(not_stored, weir_merle:replace("k", 0)),
    ?assertEqual(not_stored, weir_merle:replace("k", 1, 0, 0)),
    ?assertEqual(ok, weir_merle:add("k", 1)),
    ?assertEqual(not_stored, weir_merle:add("k", 2)),
    ?assertEqual(not_stored, weir_merle:add("k", 1, 0, 2)),
    ?assertEqual(1, weir_merle:getkey("k")),
    ?assertEqual(ok, weir_merle:replace("k", 3)),
    ?assertEqual(ok, weir_merle:replace("k", 1, 0, 4)),
    ?assertEqual(4, weir_merle:getkey("k")),
    ok = weir_merle:delete("k"),
    ?assertEqual(ok, weir_merle:add("k", 1, 0, 5)).

%% cas says what the server said: EXISTS, NOT_FOUND.
cas(Config) ->
    connect(Config),
    ?assertEqual("NOT_FOUND", weir_merle:cas("k", 1, x)),
    ok = weir_merle:set("k", one),
    [Cas, one] = weir_merle:getskey("k"),
    ?assertEqual(ok, weir_merle:cas("k", Cas, two)),
    ?assertEqual("EXISTS", weir_merle:cas("k", Cas, three)),
    ?assertEqual("EXISTS", weir_merle:cas("k", 0, 0, integer_to_list(Cas), three)),
    [Cas2, two] = weir_merle:getskey("k"),
    ?assertEqual(ok, weir_merle:cas("k", "1", "1000", integer_to_list(Cas2), four)),
    ?assertEqual(four, weir_merle:getkey("k")).

%% A list of the version and the value, or undefined.
getskey(Config) ->
    connect(Config),
    ?assertEqual(undefined, weir_merle:getskey("k")),
    ok = weir_merle:set("k", [a, list]),
    ?assertMatch([Cas, [a, list]] when is_integer(Cas), weir_merle:getskey("k")).

%% ok once; a time other than 0 is refused, in the words of the server itself.
delete(Config) ->
    connect(Config),
    ?assertEqual(not_found, weir_merle:delete("k")),
    [
        begin
            ok = weir_merle:set("k", v),
            ?assertEqual(ok, Delete()),
            ?assertEqual(not_found, Delete())
        end
     || Delete <- [
            fun() -> weir_merle:delete("k") end,
            fun() -> weir_merle:delete("k", 0) end,
            fun() -> weir_merle:delete("k", "0") end
        ]
    ],
    ok = weir_merle:set("k", v),
    %% as memcached up to 1.6.38 says; later ones take any time and heed none
    Refusal = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
    ?assertEqual(Refusal, weir_merle:delete("k", 10)),
    ?assertEqual(Refusal, weir_merle:delete("k", "10")),
    ?assertEqual(v, weir_merle:getkey("k")).

%% An atom, a string and a binary are one key.
key_types(Config) ->
    connect(Config),
    Keys = [key, "key", <<"key">>],
    [
        begin
            ok = weir_merle:set(Key, Key),
            ?assertEqual([Key, Key, Key], [weir_merle:getkey(Other) || Other <- Keys]),
            [Cas, Key] = weir_merle:getskey(Key),
            ?assertEqual(ok, weir_merle:cas(Key, Cas, changed)),
            ?assertEqual(ok, weir_merle:replace(Key, again)),
            ?assertEqual(not_stored, weir_merle:add(Key, never)),
            ?assertEqual(ok, weir_merle:delete(Key))
        end
     || Key <- Keys
    ],
    %% characters beyond ASCII are the bytes that merle sent
    ok = weir_merle:set('schl\374ssel', v),
    ?assertEqual(v, weir_merle:getkey(<<"schl", 252, "ssel">>)).

%% Flags, expiry, version, delay and level may be decimal strings.
numbers_as_strings(Config) ->
    connect(Config),
    ?assertEqual(ok, weir_merle:set("k", "65535", "1000", v)),
    ?assertEqual(ok, weir_merle:replace("k", "4294967295", 0, v)),
    ?assertEqual(not_stored, weir_merle:add("k", 0, "0", v)),
    ?assertMatch(<<"VALUE k 4294967295 ", _/binary>>, raw(Config, "get k\r\n")),
    ?assertEqual(ok, weir_merle:flushall("0")),
    ?assertEqual(ok, weir_merle:verbosity("0")),
    ?assertError(badarg, weir_merle:set("k", "x", "0", v)),
    ?assertError(badarg, weir_merle:set("k", "0", "", v)),
    ?assertEqual(undefined, weir_merle:getkey("k")).

raw(Config, Command) ->
    weir_kit_memcached:raw(?config(server, Config), Command).

%% An item goes when its time has come.
expiry(Config) ->
    connect(Config),
    ok = weir_merle:set("short", 0, 1, v),
    ok = weir_merle:set("long", 0, 1000, v),
    ok = weir_merle:set("over", 0, -1, v),
    ?assertEqual(undefined, weir_merle:getkey("over")),
    weir_kit:until(fun() -> weir_merle:getkey("short") =:= undefined end),
    ?assertEqual(v, weir_merle:getkey("long")).

%% The bytes that merle wrote, with a random number for flags, read back.
what_merle_stored(Config) ->
    connect(Config),
    Term = {stored, [by, <<"merle">>], 1.5},
    Bytes = term_to_binary(Term),
    Size = integer_to_list(byte_size(Bytes)),
    ?assertEqual(<<"STORED\r\n">>, raw(Config, ["set k 51966 0 ", Size, "\r\n", Bytes, "\r\n"])),
    ?assertEqual(Term, weir_merle:getkey(k)),
    ?assertMatch([_, Term], weir_merle:getskey(k)).

%% And what is written here are bytes that merle reads: term_to_binary, and nothing else.
what_merle_reads(Config) ->
    connect(Config),
    Term = {read, [by, <<"merle">>], 1.5},
    ok = weir_merle:set(k, Term),
    Size = integer_to_binary(byte_size(term_to_binary(Term))),
    ?assertEqual(<<"VALUE k 0 ", Size/binary, "\r\n">>, raw(Config, "get k\r\n")).

%% What is too large is refused in the server's words.
too_large(Config) ->
    connect(Config),
    ?assertEqual("SERVER_ERROR object too large for cache", weir_merle:set("k", binary:copy(<<"x">>, 2000000))),
    ?assertEqual(ok, weir_merle:set("k", v)).

%% A key that memcached cannot take is the caller's error, and no command.
bad_keys(Config) ->
    connect(Config),
    ok = weir_merle:set("k", v),
    Bad = ["", '', <<>>, "a b", 'a b', "a\r\nflush_all", lists:duplicate(251, $k), [1000], 1],
    [
        ?assertError(badarg, Operation(Key))
     || Key <- Bad,
        Operation <- [
            fun weir_merle:getkey/1,
            fun weir_merle:getskey/1,
            fun weir_merle:delete/1,
            fun(K) -> weir_merle:set(K, v) end,
            fun(K) -> weir_merle:add(K, v) end,
            fun(K) -> weir_merle:replace(K, v) end,
            fun(K) -> weir_merle:cas(K, 1, v) end
        ]
    ],
    ?assertEqual(ok, weir_merle:set(lists:duplicate(250, $k), v)),
    ?assertEqual(v, weir_merle:getkey("k")).

%% Lines as strings, "END" the last.
stats(Config) ->
    connect(Config),
    ok = weir_merle:set("k", v),
    Lines = weir_merle:stats(),
    ?assertEqual("END", lists:last(Lines)),
    ?assert(length(Lines) > 10),
    [?assertMatch("STAT " ++ _, Line) || Line <- lists:droplast(Lines)],
    ?assert(lists:member("STAT version " ++ version_of(Config), Lines)),
    ?assertMatch(["STAT " ++ _ | _], weir_merle:stats(items)),
    ?assertMatch(["STAT " ++ _ | _], weir_merle:stats("settings")),
    ?assertEqual(["RESET"], weir_merle:stats(reset)),
    ?assertEqual(["RESET"], weir_merle:stats("reset")),
    ?assertEqual(["ERROR"], weir_merle:stats(nonsense)),
    ?assertError(badarg, weir_merle:stats("two words")).

version_of(Conf) ->
    <<"VERSION ", Version/binary>> = raw(Conf, "version\r\n"),
    string:trim(binary_to_list(Version)).

%% One line.
version(Config) ->
    connect(Config),
    ?assertEqual(["VERSION " ++ version_of(Config)], weir_merle:version()).

%% All items go, now or later.
flushall(Config) ->
    connect(Config),
    ok = weir_merle:set("k", v),
    ?assertEqual(ok, weir_merle:flushall(1000)),
    ?assertEqual(v, weir_merle:getkey("k")),
    ?assertEqual(ok, weir_merle:flushall()),
    ?assertEqual(undefined, weir_merle:getkey("k")),
    ok = weir_merle:set("k", v),
    ?assertEqual(ok, weir_merle:flushall("1")),
    weir_kit:until(fun() -> weir_merle:getkey("k") =:= undefined end).

%% Integer or string.
verbosity(Config) ->
    connect(Config),
    [?assertEqual(ok, weir_merle:verbosity(Level)) || Level <- [1, "1", 0, "0"]].

%% Hundreds of callers on the one connection; each reads what it wrote.
many_callers(Config) ->
    connect(Config),
    Caller = fun(N) ->
        fun() ->
            [
                begin
                    ok = weir_merle:set(integer_to_list(N), {N, Round}),
                    weir_merle:getkey(integer_to_list(N)) =:= {N, Round}
                end
             || Round <- lists:seq(1, 10)
            ]
        end
    end,
    Results = weir_kit:in_parallel([Caller(N) || N <- lists:seq(1, 300)]),
    ?assertEqual([true], lists:usort(lists:append(Results))).

%% The connection

%% There is one connection on a node, and it is linked to who made it.
connect_twice(Config) ->
    Pid = connect(Config),
    #{host := Host, port := Port} = ?config(server, Config),
    {links, Links} = process_info(self(), links),
    ?assert(lists:member(Pid, Links)),
    ?assertEqual({error, {already_started, Pid}}, weir_merle:connect(Host, Port)),
    ?assertEqual(ok, weir_merle:set("k", v)).

%% A refused connection is an error with its reason, the caller lives, and nothing is left behind.
connect_refused(_) ->
    Port = weir_kit_memcached:free_port(),
    ?assertEqual({error, econnrefused}, weir_merle:connect({127, 0, 0, 1}, Port)),
    ?assertEqual({error, econnrefused}, weir_merle:connect("127.0.0.1", Port)),
    ?assertEqual(undefined, whereis(weir_merle)),
    ?assertEqual({messages, []}, process_info(self(), messages)).

%% So is a host that is not there, or is none.
connect_unknown_host(_) ->
    ?assertMatch({error, Reason} when is_atom(Reason), weir_merle:connect("no-such-host.invalid", 11211)),
    ?assertMatch({error, {bad_option, host, _}}, weir_merle:connect("", 11211)),
    ?assertMatch({error, {bad_option, port, _}}, weir_merle:connect("localhost", 70000)),
    ?assertEqual(undefined, whereis(weir_merle)).

%% Without arguments it is localhost, 11211.
connect_default(_) ->
    case gen_tcp:listen(11211, [{ip, {127, 0, 0, 1}}, {reuseaddr, true}, {active, false}]) of
        {ok, Listener} ->
            {ok, Pid} = weir_merle:connect(),
            {ok, Accepted} = gen_tcp:accept(Listener, 60_000),
            ?assert(is_process_alive(Pid)),
            [ok = gen_tcp:close(Socket) || Socket <- [Accepted, Listener]],
            ok;
        {error, eaddrinuse} ->
            {skip, "somebody else has port 11211"}
    end.

%% After disconnect there is nothing, and one may connect again.
disconnect(Config) ->
    Pid = connect(Config),
    ?assertEqual(ok, weir_merle:disconnect()),
    ?assertNot(is_process_alive(Pid)),
    ?assertExit({noproc, _}, weir_merle:disconnect()),
    connect(Config),
    ?assertEqual(ok, weir_merle:set("k", v)).

%% Every function exits with noproc then, as with a server that is not there.
not_connected(_) ->
    [
        ?assertExit({noproc, _}, Operation())
     || Operation <- [
            fun() -> weir_merle:set("k", v) end,
            fun() -> weir_merle:getkey("k") end,
            fun() -> weir_merle:getskey("k") end,
            fun() -> weir_merle:delete("k") end,
            fun() -> weir_merle:stats() end,
            fun() -> weir_merle:version() end,
            fun() -> weir_merle:flushall() end,
            fun() -> weir_merle:verbosity(0) end
        ]
    ].

%% The connection ends with the process that made it.
ends_with_its_caller(Config) ->
    #{host := Host, port := Port} = ?config(server, Config),
    {ok, Pid} = weir_kit:result(
        weir_kit:start(fun() -> weir_merle:connect(Host, Port) end)
    ),
    weir_kit:until(fun() -> not is_process_alive(Pid) andalso whereis(weir_merle) =:= undefined end).

%% A server that does not answer: the caller exits after merle's five seconds, and the late reply is nobody's.
timeout(_) ->
    with_script(
        [accept, {expect, "get slow\r\n"}, {wait, late}, {send, value("slow", late)}, {expect, "get k\r\n"}] ++
            [{send, value("k", v)}],
        fun(Script) ->
            Slow = weir_kit:start(fun() -> attempt(fun() -> weir_merle:getkey(slow) end) end),
            ?assertEqual(timeout, weir_kit:result(Slow)),
            weir_memcached_test_script:release(Script, late),
            ?assertEqual(v, weir_merle:getkey("k"))
        end
    ).

%% A server that goes away: who waits exits at once.
disconnected(_) ->
    with_script(
        lists:append([[accept, {expect, Request}, close] || Request <- ["get k\r\n", "version\r\n"]]),
        fun(_) ->
            ?assertExit({disconnected, {weir_merle, getkey, [k]}}, weir_merle:getkey(k)),
            weir_memcached_test:up(weir_merle),
            ?assertExit({disconnected, {weir_merle, version, []}}, weir_merle:version())
        end
    ).

%% What the server says and merle had no word for comes as a string, or as a list of lines; a get has only values to
%% return, and exits.
server_says(_) ->
    Oom = "SERVER_ERROR out of memory",
    with_script(
        [accept] ++
            lists:append([
                [{expect, Request}, {send, [Oom, "\r\n"]}]
             || Request <- ["delete k\r\n", "flush_all\r\n", "verbosity 1\r\n", "version\r\n", "stats\r\n", "get k\r\n"]
            ]) ++
            [
                {expect, [
                    "set k 0 0 ", integer_to_list(byte_size(term_to_binary(v))), "\r\n", term_to_binary(v), "\r\n"
                ]}
            ] ++
            [{send, "CLIENT_ERROR bad data chunk\r\n"}, expect_closed],
        fun(_) ->
            ?assertEqual(Oom, weir_merle:delete(k)),
            ?assertEqual(Oom, weir_merle:flushall()),
            ?assertEqual(Oom, weir_merle:verbosity(1)),
            ?assertEqual([Oom], weir_merle:version()),
            ?assertEqual([Oom], weir_merle:stats()),
            ?assertExit({{server_error, <<"out of memory">>}, {weir_merle, getkey, [k]}}, weir_merle:getkey(k)),
            ?assertEqual("CLIENT_ERROR bad data chunk", weir_merle:set(k, v))
        end
    ).

%% Bytes that are no term of this node's.
undecodable(Config) ->
    connect(Config),
    <<"STORED\r\n">> = raw(Config, "set k 0 0 5\r\nplain\r\n"),
    ?assertExit({{undecodable, <<"plain">>}, {weir_merle, getkey, ["k"]}}, weir_merle:getkey("k")),
    ?assertExit({{undecodable, <<"plain">>}, {weir_merle, getskey, ["k"]}}, weir_merle:getskey("k")),
    ?assertEqual(ok, weir_merle:set("k", v)).

%% A list of 160 MB in some hundred kilobytes, which is not made.
bomb(Config) ->
    connect(Config),
    Bomb = term_to_binary(lists:duplicate(10_000_000, []), [{compressed, 9}]),
    Size = integer_to_binary(byte_size(Bomb)),
    <<"STORED\r\n">> = raw(Config, ["set k 0 0 ", Size, "\r\n", Bomb, "\r\n"]),
    ?assertExit({{undecodable, Bomb}, {weir_merle, getkey, ["k"]}}, weir_merle:getkey("k")).

%% The server is killed and started again: the connection comes back by itself.
reconnects(_) ->
    #{host := Host, port := Port} = Server = weir_kit_memcached:start(),
    {ok, Pid} = weir_merle:connect(Host, Port),
    ok = weir_merle:set("k", v),
    ok = weir_kit_memcached:kill(Server),
    weir_kit:until(fun() -> attempt(fun() -> weir_merle:getkey("k") end) =:= disconnected end),
    ?assertExit({disconnected, _}, weir_merle:getkey("k")),
    ok = weir_kit_memcached:restart(Server),
    weir_kit:until(fun() -> attempt(fun() -> weir_merle:set("k", w) end) =:= ok end),
    ?assertEqual(w, weir_merle:getkey("k")),
    ?assert(is_process_alive(Pid)),
    weir_kit_memcached:stop(Server).

with_script(Steps, Case) ->
    Script = weir_memcached_test_script:start(Steps),
    #{host := Host, port := Port} = weir_memcached_test_script:options(Script),
    {ok, _} = weir_merle:connect(Host, Port),
    Case(Script),
    ok = weir_memcached_test_script:drained(Script),
    weir_memcached_test_script:stop(Script).

value(Key, Term) ->
    Bytes = term_to_binary(Term),
    ["VALUE ", Key, " 0 ", integer_to_list(byte_size(Bytes)), "\r\n", Bytes, "\r\nEND\r\n"].

%% A result, or the reason of the exit.
attempt(Request) ->
    try
        Request()
    catch
        exit:{Reason, _} -> Reason
    end.
