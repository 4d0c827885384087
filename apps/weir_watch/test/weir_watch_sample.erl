%% A snapshot as an agent gives it, for what shows snapshots.
-module(weir_watch_sample).

-export([snapshot/0, snapshot/1]).

snapshot() -> snapshot(#{}).

-spec snapshot(map()) -> weir_watch:snapshot().
snapshot(Changes) ->
    Now = erlang:system_time(millisecond),
    Pid = list_to_pid("<0.4711.0>"),
    Other = list_to_pid("<0.4712.0>"),
    maps:merge(
        #{
            node => node(), otp => <<"29">>, at => Now, watched => 60_000, uptime => 3600_000, processes => 12_345,
                process_limit => 1_048_576,
            ports => 12, run_queue => 3, schedulers => [0.91, 0.42],
            memory => #{total => 812_000_000, processes => 512_000_000, binary => 40_000_000, ets => 20_000_000,
                code => 30_000_000, atom => 1_000_000},
            input => 1_000_000, output => 2_000_000,
            suspects => [suspect(Pid, Other, Now), (suspect(Other, undefined, Now))#{name => undefined, queue => 0}],
            diagnoses => [#{
                pid => Pid, name => bank, node => node(), cause => busy,
                summary => <<"bank is busy with its own work: 98 % of a core, 5,123 messages wait.">>,
                remedy => <<"Spread the work over several processes.">>, page => <<"docs/guide/pool.md">>,
                sketch => <<"weir_pool:start(bank, #{size => 8, worker => {bank, start_link, []}})">>,
                evidence => #{core => 0.98, queue => 5123}, chain => [Other], since => Now - 30_000
            }],
            parts => #{
                pools => [#{name => squares, size => 8, claimed => 8, waiting => 12}], logs => [#{name => audit,
                    waiting_bytes => 1000, max_bytes => 2000}],
                servers => [], clients => [], sockets => #{}, left_out => #{}
            },
            delays => #{sum_us => 1_250_000, counts => [900, 90, 8, 0, 1, 0, 0, 0, 0, 0, 0, 1]},
            cost => #{share => 0.008, memory => 12_000_000, mailbox => 0},
            limits => [<<"The node's system monitor is somebody else's, so floods are found a little later.">>]
        },
        Changes
    ).

suspect(Pid, WaitsFor, Now) ->
    #{
        pid => Pid, name => bank, label => <<"{account, 1}">>, module => bank, behaviour => gen_server,
            application => shop,
        ancestors => [shop_sup, list_to_pid("<0.4700.0>")], supervisor => shop_sup, since => Now - 30_000,
        queue => 5123, queues => [0, 10, 200, 1500, 5123], drained => 0,
        growth => 812, until_million => 1225, handled => 4000, arriving => 4812, reductions => 23_000_000,
        core => 0.98, heap => 12_000_000, doing => [{{bank, interest, 2}, 0.75}, {{lists, map, 2}, 0.25}],
        states => #{running => 0.9, runnable => 0.1}, messages => [{<<"call {get, _}">>, 0.9}, {<<"cast stop">>, 0.1}],
        sent_by => [{{shop, buy, 2}, 0.75}, {{shop, pay, 1}, 0.25}], senders => [list_to_pid("<0.4701.0>")],
        tables => [{accounts, 1.0}],
        waiters => 5100, waiting => [WaitsFor || WaitsFor =/= undefined], waits_for => WaitsFor,
        chain => [WaitsFor || WaitsFor =/= undefined], answers => true
    }.
