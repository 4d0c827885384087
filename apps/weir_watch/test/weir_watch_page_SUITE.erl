%% The page as a client of HTTP sees it. What a browser shows of it is for `make page-test'.
-module(weir_watch_page_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, until_value/1, wait_ms/0]).

-define(TOKEN, <<"0123456789abcdef-._~">>).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    ok = weir_watch_page_agent:install(),
    Config.

end_per_suite(_Config) ->
    weir_watch_page_agent:uninstall().

init_per_testcase(_Case, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_Case, _Config) ->
    [gen_server:stop(Name) || Name <- [weir_watch_page, weir_watch_agent], whereis(Name) =/= undefined],
    ok.

options(_Config) ->
    Start = fun weir_watch_page:start_link/1,
    ?assertEqual({error, {bad_option, colour, blue}}, Start(#{colour => blue})),
    ?assertEqual({error, {bad_option, colour, blue}}, Start([{colour, blue}])),
    ?assertEqual({error, {bad_option, port, 65536}}, Start(#{port => 65536})),
    ?assertEqual({error, {bad_option, port, -1}}, Start(#{port => -1})),
    ?assertEqual({error, {bad_option, port, "80"}}, Start([{port, "80"}])),
    ?assertEqual({error, {bad_option, ip, "::1"}}, Start(#{ip => "::1"})),
    ?assertEqual({error, {bad_option, ip, {1, 2, 3}}}, Start(#{ip => {1, 2, 3}})),
    ?assertEqual({error, {bad_option, ip, {256, 0, 0, 1}}}, Start(#{ip => {256, 0, 0, 1}})),
    ?assertEqual({error, {bad_option, options, [port]}}, Start([port])),
    ?assertEqual({error, {bad_option, options, 8080}}, Start(8080)),
    %% What is told of a wrong token does not have it.
    [
        begin
            {error, {bad_option, token, Told}} = Start(#{port => 0, token => Token}),
            ?assertMatch(<<"at least 16", _/binary>>, Told)
        end
     || Token <- [
            <<"0123456789abcde">>, <<"0123456789abcdef&">>, <<"0123456789abcdef\n">>, "0123456789abcdef", undefined
        ]
    ],
    ?assertMatch({error, {bad_option, token, <<"missing", _/binary>>}}, Start(#{port => 0, ip => {0, 0, 0, 0}})),
    ?assertMatch({error, {bad_option, token, <<"missing", _/binary>>}}, Start([{ip, {0, 0, 0, 0, 0, 0, 0, 0}}])),
    {ok, Page} = Start([{port, 0}, {port, wrong}, {token, <<"0123456789abcdef">>}]),
    ?assertEqual(Page, whereis(weir_watch_page)),
    ?assertEqual({error, {already_started, Page}}, Start(#{port => 0})),
    ok = weir_watch_page:stop(Page).

without_inets(_Config) ->
    Ebin = filename:dirname(code:which(weir_watch_page)),
    {ok, Peer, _} = peer:start(#{connection => standard_io, wait_boot => wait_ms(), args => ["-pa", Ebin]}),
    true = weir_kit_nodes:call(Peer, code, del_path, [inets]),
    {error, {no_inets, Remedy}} = weir_kit_nodes:call(Peer, weir_watch_page, start_link, [#{port => 0}]),
    ?assertMatch({match, _}, re:run(Remedy, "add it to the release")),
    ok = peer:stop(Peer).

address(_Config) ->
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    Address = weir_watch_page:address(weir_watch_page),
    ?assertMatch({match, _}, re:run(Address, "^http://127\\.0\\.0\\.1:[0-9]+/$")),
    ?assertMatch({200, _, _}, get(Page, "/")),
    ok = weir_watch_page:stop(Page),
    ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, port(Address), [])),
    %% The same port again, at once.
    {ok, Again} = weir_watch_page:start_link(#{port => port(Address)}),
    ?assertEqual(Address, weir_watch_page:address(Again)),
    ?assertMatch({200, _, _}, get(Again, "/")).

ipv6(_Config) ->
    Ip = {0, 0, 0, 0, 0, 0, 0, 1},
    case weir_watch_page:start_link(#{port => 0, ip => Ip}) of
        {ok, Page} ->
            Address = weir_watch_page:address(Page),
            ?assertMatch({match, _}, re:run(Address, "^http://\\[::1\\]:[0-9]+/$")),
            ?assertMatch({200, _, _}, request(Ip, port(Address), "GET", "/", [{"Host", "[::1]:80"}])),
            ?assertMatch({403, _, _}, request(Ip, port(Address), "GET", "/", [{"Host", "[::2]"}]));
        {error, {listen, Reason}} ->
            {skip, {no_ipv6, Reason}}
    end.

taken_port(_Config) ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    ?assertEqual({error, {listen, eaddrinuse}}, weir_watch_page:start_link(#{port => Port})),
    %% An address of documentation, which no machine has.
    Elsewhere = #{ip => {192, 0, 2, 1}, token => ?TOKEN},
    ?assertEqual({error, {listen, eaddrnotavail}}, weir_watch_page:start_link(Elsewhere)),
    ok = gen_tcp:close(Listener).

%% Of a free port that is another's when httpd wants it nobody hears: the next one is taken.
taken_in_between(_Config) -> ok = weir_watch_test_lib:in_plain_node([], ?MODULE, first_is_taken, []).

first_is_taken() ->
    inets = weir_kit_sample:load(
        "-module(inets).\n-export([start/3]).\n"
        "start(httpd, Config, stand_alone) ->\n"
        "    Port = proplists:get_value(port, Config),\n"
        "    persistent_term:get(inets, none) =:= none andalso\n"
        "        persistent_term:put(inets, {Port, gen_tcp:listen(Port, [{ip, {127, 0, 0, 1}}])}),\n"
        "    httpd:start_standalone(Config).\n"
    ),
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    {Taken, {ok, _}} = persistent_term:get(inets),
    ?assertNotEqual(Taken, port(weir_watch_page:address(Page))),
    ?assertMatch({200, _, _}, get(Page, "/")),
    weir_watch_page:stop(Page).

%% httpd ends with its page, and the supervisor starts both anew at the same port; so it does when httpd ends.
killed(_Config) ->
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    Port = port(weir_watch_page:address(Page)),
    ok = weir_watch_page:stop(Page),
    {ok, _} = supervisor:start_link({local, ?MODULE}, ?MODULE, []),
    {ok, First} = supervisor:start_child(?MODULE, weir_watch_page:child_spec(#{port => Port})),
    exit(First, kill),
    Second = until_value(fun() -> other(First) end),
    {links, Links} = process_info(Second, links),
    [Httpd] = [Link || Link <- Links, is_pid(Link), Link =/= whereis(?MODULE)],
    exit(Httpd, kill),
    Third = until_value(fun() -> other(Second) end),
    ?assertEqual(Port, port(weir_watch_page:address(Third))),
    gen_server:stop(?MODULE).

%% One that answers: the first to come may find the port in use for too long.
other(Before) ->
    case whereis(weir_watch_page) of
        Pid when is_pid(Pid), Pid =/= Before ->
            try
                {200, _, _} = get(Pid, "/"),
                Pid
            catch
                _:_ -> false
            end;
        _ ->
            false
    end.

init([]) -> {ok, {#{intensity => 10, period => 60}, []}}.

files(_Config) ->
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    [
        begin
            {200, Headers, Body} = get(Page, Path),
            ?assertMatch(#{"content-type" := Type}, Headers),
            ?assert(byte_size(Body) > 100)
        end
     || {Path, Type} <- [
            {"/", "text/html; charset=utf-8"}, {"/page.js", "text/javascript; charset=utf-8"},
            {"/page.css", "text/css; charset=utf-8"}, {"/icon.svg", "image/svg+xml"},
            {"/uPlot.iife.min.js", "text/javascript; charset=utf-8"}, {"/uPlot.min.css", "text/css; charset=utf-8"},
            {"/uPlot.LICENSE", "text/plain; charset=utf-8"}
        ]
    ],
    [
        ?assertMatch({Path, {404, _, _}}, {Path, get(Page, Path)})
     || Path <- [
            "/page.html", "/uPlot.sha256", "/../ebin/weir_watch.app", "/..%2fsrc", "/%2e%2e/%2e%2e/etc/passwd",
            "/x"
        ]
    ],
    %% Each file that the page names is there, and none is elsewhere.
    {200, _, Html} = get(Page, "/"),
    {match, Named} = re:run(Html, "(?:src|href)=\"([^\"#]+)\"", [global, {capture, all_but_first, list}]),
    Answers = ["snapshot.json", "history.json", "metrics"],
    ?assertEqual([], Answers -- lists:append(Named)),
    [?assertMatch({Name, {200, _, _}}, {Name, get(Page, "/" ++ Name)}) || Name <- lists:append(Named) -- Answers],
    ?assertEqual(nomatch, re:run(Html, "https?:|style=|<script>| on[a-z]+=")),
    {200, _, Script} = get(Page, "/page.js"),
    ?assertEqual(nomatch, re:run(Script, "innerHTML|outerHTML|insertAdjacentHTML|document\\.write|eval\\(|https:")),
    {200, _, Style} = get(Page, "/page.css"),
    ?assertEqual(nomatch, re:run(Style, "url\\(|@import")).

%% What is vendored is what its author published, and not something else that was changed here.
vendored(_Config) ->
    Priv = code:priv_dir(weir_watch),
    {ok, Sums} = file:read_file(filename:join(Priv, "uPlot.sha256")),
    Lines = [string:lexemes(Line, " ") || Line <- string:lexemes(binary_to_list(Sums), "\n")],
    ?assertEqual(["uPlot.LICENSE", "uPlot.iife.min.js", "uPlot.min.css"], lists:sort([File || [_, File] <- Lines])),
    [
        begin
            {ok, Content} = file:read_file(filename:join(Priv, File)),
            Actual = string:lowercase(binary_to_list(binary:encode_hex(crypto:hash(sha256, Content)))),
            ?assertEqual({File, Sum}, {File, Actual})
        end
     || [Sum, File] <- Lines
    ].

%% httpd's own refusals have them too.
headers(_Config) ->
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    [
        begin
            {Code, Headers, _} = raw(Page, Request),
            #{"content-security-policy" := Policy} = Headers,
            ?assertMatch({match, _}, re:run(Policy, "^default-src 'self';.*frame-ancestors 'none'")),
            ?assertEqual(nomatch, re:run(Policy, "unsafe|http|\\*")),
            ?assertMatch(
                #{
                    "x-content-type-options" := "nosniff", "x-frame-options" := "DENY",
                    "referrer-policy" := "no-referrer", "cache-control" := "no-store",
                    "cross-origin-resource-policy" := "same-origin"
                },
                Headers
            ),
            [?assertNot(is_map_key(Name, Headers)) || Name <- ["set-cookie", "access-control-allow-origin", "server"]]
        end
     || {Code, Request} <- [
            {200, "GET / HTTP/1.1\r\nHost: localhost\r\n"}, {404, "GET /x HTTP/1.1\r\nHost: localhost\r\n"},
            {503, "GET /snapshot.json HTTP/1.1\r\nHost: localhost\r\n"}, {400, "GET / HTTP/1.1\r\n"},
            {501, "BREW / HTTP/1.1\r\nHost: localhost\r\n"},
            {414, ["GET /", lists:duplicate(3000, $x), " HTTP/1.1\r\nHost: localhost\r\n"]}
        ]
    ].

methods(_Config) ->
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    [
        begin
            {405, Headers, _} = request(Page, Method, Path, [{"Content-Length", "0"}]),
            ?assertMatch(#{"allow" := "GET, HEAD"}, Headers)
        end
     || Method <- ["POST", "PUT", "DELETE", "PATCH"], Path <- ["/", "/snapshot.json", "/x"]
    ],
    Others = ["OPTIONS", "TRACE", "CONNECT"],
    [?assertMatch({Code, _, _} when Code >= 400, request(Page, Method, "/", [])) || Method <- Others],
    {200, #{"content-length" := Length}, Html} = get(Page, "/"),
    ?assertMatch({200, #{"content-length" := Length}, <<>>}, request(Page, "HEAD", "/", [])),
    ?assertEqual(Length, integer_to_list(byte_size(Html))),
    ?assertMatch({404, _, <<>>}, request(Page, "HEAD", "/x", [])),
    %% Two requests on one connection.
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, port(weir_watch_page:address(Page)), [binary, {active, false}]),
    Head = "HEAD / HTTP/1.1\r\nHost: localhost\r\n",
    ok = gen_tcp:send(Socket, [Head, "\r\n"]),
    {ok, <<"HTTP/1.1 200", _/binary>>} = gen_tcp:recv(Socket, 0, wait_ms()),
    ok = gen_tcp:send(Socket, [Head, "Connection: close\r\n\r\n"]),
    ?assertMatch({200, _, <<>>}, parse(all(Socket, []))).

%% On the loopback interface no name but those of the machine itself.
hosts(_Config) ->
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    Port = integer_to_list(port(weir_watch_page:address(Page))),
    [
        ?assertMatch({Host, {200, _, _}}, {Host, request(Page, "GET", "/page.css", [{"Host", Host}])})
     || Host <- [
            "localhost", "LocalHost:" ++ Port, "127.0.0.1", "127.0.0.1:" ++ Port, "127.1.2.3", "[::1]", "localhost:1"
        ]
    ],
    [
        ?assertMatch({Host, Path, {403, _, _}}, {Host, Path, request(Page, "GET", Path, [{"Host", Host}])})
     || Host <- [
            "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "127.1", "2130706433", ""
        ],
        Path <- ["/", "/page.css", "/snapshot.json", "/history.json", "/metrics"]
    ],
    %% By HTTP/1.0 without one.
    ?assertMatch({403, _, _}, raw(Page, "GET / HTTP/1.0\r\n")),
    Two = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n",
    ?assertMatch({Code, _, _} when Code >= 400, raw(Page, Two)).

token(_Config) ->
    {ok, Page} = weir_watch_page:start_link(#{port => 0, token => ?TOKEN}),
    Token = binary_to_list(?TOKEN),
    [
        begin
            {401, Headers, _} = request(Page, "GET", Path ++ Query, More),
            ?assertMatch(#{"www-authenticate" := "Bearer"}, Headers)
        end
     || Path <- ["/", "/snapshot.json", "/history.json", "/metrics"],
        {Query, More} <- [
            {"", []}, {"?", []}, {"?token", []}, {"?token=", []}, {"?token=" ++ tl(Token), []},
            {"?token=" ++ Token ++ "0", []}, {"?token=%ff", []}, {"?Token=" ++ Token, []},
            {"?token=0" ++ tl(Token) ++ "x", []},
            {"", [{"Authorization", "Basic " ++ Token}]}, {"", [{"Authorization", "Bearer"}]},
            {"", [{"Authorization", "Bearer " ++ Token ++ "x"}]}, {"", [{"Authorization", Token}]}
        ]
    ],
    [
        ?assertMatch({Path, {Code, _, _}}, {Path, request(Page, "GET", Path ++ Query, More)})
     || {Path, Code} <- [{"/", 200}, {"/snapshot.json", 503}, {"/history.json", 200}],
        {Query, More} <- [
            {"?token=" ++ Token, []}, {"?x=y&token=" ++ Token, []}, {"?token=%30" ++ tl(Token), []},
            {"", [{"Authorization", "Bearer " ++ Token}]}, {"?token=wrong", [{"authorization", "bearer  " ++ Token}]}
        ]
    ],
    %% What is the same for everybody needs none.
    ?assertMatch({200, _, _}, get(Page, "/page.js")),
    %% The token is in no state that a crash would print, and in no answer.
    ?assertEqual(nomatch, string:find(io_lib:format("~p", [sys:get_status(Page, wait_ms())]), Token)),
    ?assertEqual(nomatch, string:find(weir_watch_page:address(Page), Token)),
    {200, _, Html} = get(Page, "/?token=" ++ Token),
    ?assertEqual(nomatch, string:find(Html, Token)).

%% At every address: any name of the host will do, with the token.
elsewhere(_Config) ->
    {ok, Page} = weir_watch_page:start_link(#{port => 0, ip => {0, 0, 0, 0}, token => ?TOKEN}),
    {ok, Name} = inet:gethostname(),
    ?assertEqual(0, string:str(binary_to_list(weir_watch_page:address(Page)), "0.0.0.0")),
    ?assertEqual(1, string:str(binary_to_list(weir_watch_page:address(Page)), "http://" ++ Name)),
    Asked = "/?token=" ++ binary_to_list(?TOKEN),
    ?assertMatch({200, _, _}, request(Page, "GET", Asked, [{"Host", "node.example:8080"}])),
    ?assertMatch({401, _, _}, request(Page, "GET", "/", [{"Host", "localhost"}])).

snapshot(_Config) ->
    {ok, _} = weir_watch_page_agent:start(),
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    {503, #{"content-type" := "application/json"}, Error} = get(Page, "/snapshot.json"),
    ?assertEqual(<<"{\"error\":\"no agent\"}">>, Error),
    ?assertMatch({200, _, <<"[]">>}, get(Page, "/history.json")),
    [
        begin
            Snapshot = weir_watch_sample:snapshot(#{at => At}),
            ok = weir_watch_page_agent:tell(Snapshot),
            {200, #{"content-type" := "application/json"}, Json} = get(Page, "/snapshot.json"),
            ?assertEqual(iolist_to_binary(weir_watch_json:encode(Snapshot)), Json)
        end
     || At <- [1000, 2000, 3000]
    ].

%% What a snapshot's point has is what the plots need, and no more.
history(_Config) ->
    {ok, _} = weir_watch_page_agent:start(),
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    Snapshots = [weir_watch_sample:snapshot(#{at => At, run_queue => At div 1000}) || At <- [1000, 2000, 3000]],
    [ok = weir_watch_page_agent:tell(Snapshot) || Snapshot <- Snapshots],
    Points = [
        begin
            Point = maps:with([at, run_queue, schedulers, memory, input, output], Snapshot),
            Kept = [pid, name, label, module, queue, growth, reductions],
            Point#{suspects => [maps:with(Kept, Suspect) || Suspect <- maps:get(suspects, Snapshot)]}
        end
     || Snapshot <- Snapshots
    ],
    {200, _, Json} = get(Page, "/history.json"),
    ?assertEqual(iolist_to_binary(weir_watch_json:encode(Points)), Json),
    %% Of many suspects it has those that come first.
    [#{suspects := [One | _]} | _] = Snapshots,
    Many = [One#{queue := Queue} || Queue <- lists:seq(1, 40)],
    ok = weir_watch_page_agent:tell(weir_watch_sample:snapshot(#{at => 4000, suspects => Many})),
    {200, _, Longer} = get(Page, "/history.json"),
    {match, Queues} = re:run(Longer, "\"queue\":([0-9]+)", [global, {capture, all_but_first, list}]),
    ?assertEqual([integer_to_list(Queue) || Queue <- lists:seq(1, 10)], lists:append(lists:nthtail(6, Queues))).

%% 300 points, and of 5 minutes: a thousand snapshots take no more than three hundred.
bounded(_Config) ->
    {ok, _} = weir_watch_page_agent:start(),
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    Snapshot = fun(Second) -> weir_watch_sample:snapshot(#{at => Second * 1000}) end,
    Tell = fun(Seconds) -> [ok = weir_watch_page_agent:tell(Snapshot(Second)) || Second <- Seconds] end,
    [Table] = [T || T <- ets:all(), ets:info(T, owner) =:= Page],
    _ = Tell(lists:seq(1, 300)),
    ?assertEqual(lists:seq(1, 300), seconds(Page)),
    {Rows, Words} = {ets:info(Table, size), ets:info(Table, memory)},
    _ = Tell(lists:seq(301, 1001)),
    ?assertEqual(lists:seq(702, 1001), seconds(Page)),
    ?assertEqual(Rows, ets:info(Table, size)),
    ?assert(ets:info(Table, memory) < Words * 1.1),
    %% After a pause what is older than 5 minutes is not shown.
    _ = Tell([1200, 1201]),
    ?assertEqual(lists:seq(902, 1001) ++ [1200, 1201], seconds(Page)).

seconds(Page) ->
    {200, _, Json} = get(Page, "/history.json"),
    {match, Found} = re:run(Json, "\"at\":([0-9]+)", [global, {capture, all_but_first, list}]),
    [list_to_integer(At) div 1000 || [At] <- Found].

agent_comes_and_goes(_Config) ->
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    ?assertMatch({503, _, _}, get(Page, "/snapshot.json")),
    [
        begin
            {ok, _} = weir_watch_page_agent:start(),
            ok = weir_watch_page_agent:tell(weir_watch_sample:snapshot(#{at => At})),
            ?assertMatch({200, _, _}, get(Page, "/snapshot.json")),
            ok = weir_watch_page_agent:kill(),
            until(fun() -> element(1, get(Page, "/snapshot.json")) =:= 503 end)
        end
     || At <- [1000, 2000, 3000]
    ],
    ?assertEqual([1, 2, 3], seconds(Page)),
    ?assertEqual(Page, whereis(weir_watch_page)).

%% An agent that does not answer holds up no browser.
slow_agent(_Config) ->
    {ok, Agent} = weir_watch_page_agent:start(),
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    ok = weir_watch_page_agent:tell(weir_watch_sample:snapshot(#{at => 1000})),
    Port = port(weir_watch_page:address(Page)),
    ok = weir_watch_page_agent:kill(),
    {ok, Other} = weir_watch_page_agent:start(),
    ?assertNotEqual(Agent, Other),
    ok = sys:suspend(Other, wait_ms()),
    ?assertMatch({200, _, _}, request({127, 0, 0, 1}, Port, "GET", "/history.json", [{"Host", "localhost"}])),
    Page ! stray,
    ok = sys:resume(Other, wait_ms()),
    ok = weir_watch_page_agent:tell(weir_watch_sample:snapshot(#{at => 2000})),
    ?assertEqual([1, 2], seconds(Page)).

metrics(_Config) ->
    case code:ensure_loaded(weir_watch_metrics) of
        {module, _} ->
            {ok, Page} = weir_watch_page:start_link(#{port => 0}),
            {200, #{"content-type" := "text/plain; version=0.0.4" ++ _}, _} = get(Page, "/metrics"),
            Accept = {"Accept", "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"},
            {200, #{"content-type" := Type}, Text} = request(Page, "GET", "/metrics", [Accept]),
            ?assertMatch("application/openmetrics-text; version=1.0.0" ++ _, Type),
            ?assertMatch({match, _}, re:run(Text, "# EOF\n$"));
        {error, _} ->
            {skip, no_metrics}
    end.

%% The start of a supervisor fails with what is wrong.
supervised(_Config) ->
    {ok, Sup} = supervisor:start_link({local, ?MODULE}, ?MODULE, []),
    {error, {Reason, _Child}} = supervisor:start_child(Sup, weir_watch_page:child_spec(#{prot => 0})),
    ?assertEqual({bad_option, prot, 0}, Reason),
    {ok, Page} = supervisor:start_child(Sup, weir_watch_page:child_spec(#{port => 0})),
    Port = port(weir_watch_page:address(Page)),
    gen_server:stop(Sup),
    ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, Port, [])).

%% More connections than httpd takes are refused, and the page goes on when they have gone.
many_clients(_Config) ->
    {ok, _} = weir_watch_page_agent:start(),
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    Port = port(weir_watch_page:address(Page)),
    Sockets = [Socket || _ <- lists:seq(1, 100), {ok, Socket} <- [gen_tcp:connect({127, 0, 0, 1}, Port, [])]],
    ok = weir_watch_page_agent:tell(weir_watch_sample:snapshot(#{at => 1000})),
    [gen_tcp:close(Socket) || Socket <- Sockets],
    until(fun() -> element(1, get(Page, "/snapshot.json")) =:= 200 end).

%% It is answered, and the history stays.
unknown_call(_Config) ->
    {ok, _} = weir_watch_page_agent:start(),
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    ok = weir_watch_page_agent:tell(weir_watch_sample:snapshot(#{at => 1000})),
    ?assertEqual({error, {bad_call, what}}, gen_server:call(Page, what, wait_ms())),
    ok = gen_server:cast(Page, what),
    Page ! what,
    ?assertEqual([1], seconds(Page)).

%% Its end is waited for only so long.
stopped_while_httpd_hangs(_Config) ->
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    {links, Links} = process_info(Page, links),
    [Httpd] = [Pid || Pid <- Links, is_pid(Pid), Pid =/= self()],
    true = erlang:suspend_process(Httpd),
    ok = gen_server:stop(Page, shutdown, wait_ms()),
    until(fun() -> not is_process_alive(Httpd) end).

%% A client of HTTP

get(Page, Path) -> request(Page, "GET", Path, []).

request(Page, Method, Path, Headers) ->
    request({127, 0, 0, 1}, port(weir_watch_page:address(Page)), Method, Path, Headers).

request(Ip, Port, Method, Path, Headers) ->
    Host = [{"Host", "localhost"} || not lists:keymember("Host", 1, Headers)],
    Lines = [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Host ++ Headers],
    send(Ip, Port, [Method, " ", Path, " HTTP/1.1\r\n" | Lines]).

raw(Page, Head) -> send({127, 0, 0, 1}, port(weir_watch_page:address(Page)), Head).

send(Ip, Port, Head) ->
    {ok, Socket} = gen_tcp:connect(Ip, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, [Head, "Connection: close\r\n\r\n"]),
    parse(all(Socket, [])).

all(Socket, Acc) ->
    case gen_tcp:recv(Socket, 0, wait_ms()) of
        {ok, Data} -> all(Socket, [Acc, Data]);
        {error, _} -> iolist_to_binary(Acc)
    end.

parse(<<>>) ->
    {0, #{}, <<>>};
parse(Answer) ->
    [Head, Body] = binary:split(Answer, <<"\r\n\r\n">>),
    [<<"HTTP/1.", _, " ", Code:3/binary, _/binary>> | Lines] = binary:split(Head, <<"\r\n">>, [global]),
    Headers = [list_to_tuple(string:split(binary_to_list(Line), ":")) || Line <- Lines],
    {
        binary_to_integer(Code),
        maps:from_list([{string:lowercase(Name), string:trim(Value)} || {Name, Value} <- Headers]),
        Body
    }.

port(Address) ->
    #{port := Port} = uri_string:parse(binary_to_list(Address)),
    Port.
