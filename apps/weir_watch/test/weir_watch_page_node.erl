%% The node of `make page-test': does as it reads, line by line, and answers each line with one.
%%   page PORT [TOKEN]   starts the page                its address
%%   stop                ends the page                  ok
%%   agent, kill         starts and kills the agent     ok
%%   tell AGO            tells a snapshot of so many seconds ago    the snapshot, as JSON
%%   make AGO            such a snapshot                            the same
-module(weir_watch_page_node).

-export([main/0]).

main() ->
    ok = io:setopts([binary]),
    ok = weir_watch_page_agent:install(),
    loop().

loop() ->
    case io:get_line("") of
        Line when is_binary(Line) ->
            io:put_chars([does(string:lexemes(binary_to_list(string:trim(Line)), " ")), $\n]),
            loop();
        eof ->
            halt(0)
    end.

does(["page", Port | Token]) ->
    Options = maps:from_list([{port, list_to_integer(Port)} | [{token, list_to_binary(T)} || T <- Token]]),
    {ok, Page} = weir_watch_page:start_link(Options),
    weir_watch_page:address(Page);
does(["stop"]) ->
    ok = weir_watch_page:stop(weir_watch_page),
    "ok";
does(["agent"]) ->
    {ok, _} = weir_watch_page_agent:start(),
    "ok";
does(["kill"]) ->
    ok = weir_watch_page_agent:kill(),
    "ok";
does(["tell", Ago]) ->
    Snapshot = snapshot(list_to_integer(Ago)),
    ok = weir_watch_page_agent:tell(Snapshot),
    weir_watch_json:encode(Snapshot);
does(["make", Ago]) ->
    weir_watch_json:encode(snapshot(list_to_integer(Ago))).

%% A shop: its bank got too much to do some three minutes ago, and who has a cart waits for it.
snapshot(Ago) ->
    At = erlang:system_time(millisecond) - Ago * 1000,
    T = 240 - Ago,
    Load = min(1.0, max(0.0, (T - 50) / 60)),
    Wave = fun(Every, Around) -> Around * (1 + 0.12 * math:sin(T / Every) + 0.05 * math:sin(T * 1.7 / Every)) end,
    Sample = weir_watch_sample:snapshot(#{at => At}),
    #{suspects := [One | _], diagnoses := [Diagnosis]} = Sample,
    Mailbox = fun(S) -> round(max(0, S - 50) * 41.3 + 12 * abs(math:sin(S / 3))) end,
    Pid = fun(N) -> list_to_pid("<0." ++ integer_to_list(N) ++ ".0>") end,
    Suspect = fun(Changes) -> maps:merge(One#{since => At - max(0, T - 50) * 1000}, Changes) end,
    Before = lists:seq(max(0, T - 60), T - 1),
    Carts = min(2400, Mailbox(T) div 3),
    Suspects = [
        Suspect(#{
            pid => Pid(412), name => bank, label => undefined, queue => Mailbox(T),
            queues => [Mailbox(S) || S <- Before], growth => 41, core => 0.03 + 0.95 * Load,
            reductions => round(Wave(9, 1_200_000 + 21_000_000 * Load)), waiters => Mailbox(T), waits_for => undefined,
            chain => [], waiting => [Pid(7001), Pid(7002), Pid(7003)]
        }),
        Suspect(#{
            pid => Pid(418), name => undefined, label => <<"cart <b>42</b>">>, module => cart, queue => Carts,
            queues => [min(2400, Mailbox(S) div 3) || S <- Before], growth => 14, core => 0.04,
            reductions => round(Wave(4, 300_000)), waiters => 12, waits_for => Pid(412), chain => [Pid(412)],
            waiting => [], states => #{waiting => 1.0}, doing => [{{gen, do_call, 4}, 1.0}], heap => 400_000
        }),
        Suspect(#{
            pid => Pid(97), name => logger_std_h_default, label => undefined, module => logger_h_common,
            application => kernel, supervisor => logger_sup, queue => round(Wave(2, 90)),
            queues => [round(abs(math:sin(S / 2)) * 160) || S <- Before], growth => -3, core => 0.11,
            reductions => round(Wave(3, 2_400_000)), waiters => 0, waits_for => undefined, chain => [], waiting => [],
            doing => [{{prim_file, write_nif, 2}, 0.6}, {{logger_std_h, write_to_dev, 3}, 0.4}],
            messages => [{<<"{'$gen_cast', _}">>, 1.0}]
        }),
        Suspect(#{
            pid => Pid(502), name => search, label => undefined, module => search, behaviour => weir_server,
            queue => 3, drained => 480, queues => [2, 5, 3, 4, 3], growth => 0, core => 0.38,
            reductions => round(Wave(6, 8_000_000)), waiters => 40, waits_for => undefined, chain => [],
            answers => false
        })
    ],
    Sample#{
        node := 'shop@db1.example', otp := <<"29">>, uptime := 11 * 86_400_000 + 3_600_000,
        processes := 182_345 + T * 3, run_queue := round(max(0, 4 * Load + 3 * math:sin(T / 5))),
        schedulers := [min(1.0, Wave(7, 0.25 + 0.6 * Load)), Wave(5, 0.3), Wave(11, 0.22), Wave(8, 0.35)],
        memory := #{
            total => round(812.0e6 + T * 2.2e6 * Load), processes => round(412.0e6 + T * 2.0e6 * Load),
            binary => round(Wave(20, 140.0e6)), ets => 96_000_000, code => 31_000_000, atom => 1_000_000
        },
        input := round(Wave(6, 4.1e6)), output := round(Wave(8, 9.3e6)), suspects := Suspects,
        diagnoses := [
            Diagnosis#{
                pid := Pid(412), node := 'shop@db1.example', since := At - max(0, T - 50) * 1000, chain := [],
                summary := iolist_to_binary([
                    "bank is busy with its own work: 98 % of a core in bank:interest/2, and ",
                    integer_to_list(Mailbox(T)), " messages wait."
                ]),
                remedy := <<"Spread the work over several processes, or do it in the caller.">>,
                sketch := <<
                    "%% A worker for each scheduler, picked by account:\n"
                    "ok = weir_pool:start(bank, #{size => 4, worker => {bank, start_link, []}}).\n"
                    "{ok, Pid} = weir_pool:pick(bank, Account),\n"
                    "gen_server:call(Pid, {interest, Account})."
                >>,
                evidence := #{core => 0.98, queue => Mailbox(T), growth => 41, waiters => Mailbox(T)}
            }
            | [
                Diagnosis#{
                    pid := undefined, name := logger, node := 'shop@db1.example', cause := logger,
                    since := At - 21_000, chain := [],
                    summary := <<"logger's default handler writes 4,100 entries a second, each for its caller.">>,
                    remedy := <<"Let weir_log_h write them, in batches.">>, page := <<"docs/guide/log.md">>,
                    sketch := <<"{handler, default, weir_log_h, #{config => #{file => \"log/erlang.log\"}}}">>,
                    evidence := #{entries => 4100, queue => 90}
                }
             || T > 200
            ]
        ],
        parts := #{
            pools => [
                #{name => squares, size => 8, busy => 8, waiting => 12, claimed => 120_431},
                #{name => mail, size => 2, busy => 0, waiting => 0, claimed => 77}
            ],
            clusters => [#{
                name => squares, nodes => 3, let_in => 2, requests => T * 900, served => T * 120, spilled => T * 850,
                others => [
                    #{node => 'shop@app1.example', weight => 8, load => 1.25, share => 1.0, requests => T * 600,
                        received => T * 300, refused => 3, failed => 0, timeouts => 0, full => 0, busy => 0},
                    #{node => 'shop@app2.example', weight => 8, load => 0.5, share => 0.4, requests => T * 300,
                        received => 0, refused => 0, failed => 0, timeouts => 7, full => 0, busy => 0},
                    #{node => 'shop@app3.example', weight => 8, load => unknown, share => 0.0, requests => 4000,
                        received => 0, refused => 0, failed => 4, timeouts => 3, full => 0, busy => 12},
                    #{node => 'web@app4.example', received => T * 60}
                ]
            }],
            servers => [#{name => search, pid => Pid(502), drained => 480, batches => 40_221}],
            logs => [#{name => audit, bytes => 1_400_000, max_bytes => 10_000_000, written => 512_000, dropped => 0}],
            clients => [#{
                name => sessions, servers => 3, connections => 12, up => 11, pending => 7, requests => T * 2100,
                hits => T * 1800, misses => T * 90, timeouts => 2,
                by_server => [#{name => <<"cache1:11211">>, requests => T * 700, hits => T * 600, misses => T * 30,
                    timeouts => 0}]
            }],
            caches => [#{name => local_cache, items => 40_112, bytes => 61_000_000, memory => 64_000_000,
                connections => 3, get_hits => T * 400, get_misses => T * 20, evictions => 0}],
            sockets => #{open => 412, pollers => 4, received_bytes => 812_000_000}
        }
    }.
