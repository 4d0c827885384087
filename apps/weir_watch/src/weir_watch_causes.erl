%% @doc The rules: why a process is in trouble. Pure functions over what the agent has observed, in the order in which
%% they are tried; the first that holds is the cause. A cause that no rule gives is `unsure'.
%%
%% A process is in trouble when its mailbox was longer than 1,000 for two seconds, or at least five processes waited
%% for it in calls for as long and it was not idle for most of the time; a process that idles while they wait is
%% judged by the rules for pools and clients alone, and a log that idles for a fifth of the time is in no trouble.
%%
%% Each sample of a process is of one class: what it did when it was looked at. The rules speak of the classes'
%% shares:
%% <dl>
%% <dt>idle</dt><dd>waits where its behaviour takes the next message</dd>
%% <dt>call</dt><dd>waits for the answer of another process</dd>
%% <dt>socket, port, file, ets</dt>
%% <dd>receives from a socket; is held back by a port; reads or writes a file; is in a function of ets</dd>
%% <dt>held</dt><dd>is suspended by the runtime: what it has sent to cannot take more</dd>
%% <dt>wait</dt><dd>waits in a function of its own</dd>
%% <dt>gc</dt><dd>collects garbage</dd>
%% <dt>search</dt><dd>runs in a function in which it otherwise waits: it goes through its mailbox</dd>
%% <dt>run</dt><dd>runs, or would if it had a scheduler</dd>
%% </dl>
%% @private
-module(weir_watch_causes).

-export([find/1, root/1, is_too_little/1, node_cause/1, diagnosis/3, causes/0, waits/1, shares/3]).

-export_type([facts/0, shares/0, evidence/0]).

-define(LONG, 1000).
-define(WAITERS, 5).
-define(TURNS, 2).
-define(SERVES, 500).
-define(PROMPT, 50_000).
%% So many samples without it tell that one who is in ets for a tenth of the time is not: one of 60 is wrong.
-define(SURE, 40).
%% For how long one is silent who is in native code; where the machine gives little, a scheduler may stand still so
%% long.
-define(SILENT_MS, 1000).
-define(SILENT_STARVED_MS, 3000).
%% Nobody is told for that alone that others wait for him, who is given less than the second; below the first it takes
%% more to be told.
-define(STARVED, 0.7).
-define(STARVING, 0.5).

-type class() :: idle | call | socket | port | file | ets | wait | held | gc | search | run.
-type shares() :: #{class() => float()}.
-type evidence() :: #{atom() => term()}.
-type facts() :: #{
    suspect := weir_watch:suspect(),
    shares := shares(),
    %% The least of the last two seconds.
    queue := non_neg_integer(),
    waiters := non_neg_integer(),
    %% It waits for one who waits for it.
    cycle := boolean(),
    %% One who is in trouble waits for it most of the time.
    inherited := boolean(),
    %% Whether it was suspended while the distribution had something queued.
    distribution := boolean(),
    ports := [port()],
    monitors := [pid()],
    %% The share of its time that it collected garbage, in collections of ten milliseconds and more.
    collecting := float(),
    %% The share of samples before which it ran for twenty milliseconds without a break.
    kept := float(),
    %% How many other processes were found running in ets; and in which share of its last samples, and of how many, it
    %% was itself.
    in_ets := non_neg_integer() | unknown,
    lately_in_ets := {float(), Samples :: non_neg_integer()},
    %% For how many milliseconds it has run without answering the runtime.
    silent := non_neg_integer(),
    %% How many processes wait for each scheduler.
    turns := non_neg_integer(),
    %% Of the processors' time that it wants, what the machine gives the node.
    given := float()
}.

%% @doc The functions of its own in which a process waits.
-spec waits([weir_watch_look:sample()]) -> [weir_watch:call()].
waits(Samples) ->
    lists:usort([Function || {waiting, [Function | _]} <- Samples, not weir_watch_ask:is_loop(Function)]).

%% @doc The classes' shares of samples of a process that was ever seen to wait in these functions, and has a mailbox of
%% such a length.
-spec shares([weir_watch_look:sample()], [weir_watch:call()], non_neg_integer()) -> shares().
shares([], _Waits, _Queue) ->
    #{};
shares(Samples, Waits, Queue) ->
    Classes = [class(Sample, Queue, Waits) || Sample <- Samples],
    One = 1 / length(Samples),
    lists:foldl(fun(Class, Shares) -> maps:update_with(Class, fun(Share) -> Share + One end, One, Shares) end, #{},
        Classes).

class({garbage_collecting, _}, _Queue, _Waits) -> gc;
class({suspended, Stack}, _Queue, _Waits) -> case kind(Stack) of port -> port; _ -> held end;
class({State, []}, _Queue, _Waits) -> if State =:= waiting -> wait; true -> run end;
class({waiting, [Function | _] = Stack}, _Queue, _Waits) ->
    case weir_watch_ask:is_loop(Function) of
        true -> idle;
        false ->
            case kind(Stack) of
                none -> case weir_watch_ask:is_call(Function) of true -> call; false -> wait end;
                Kind -> Kind
            end
    end;
class({_Runs, [Function | _] = Stack}, Queue, Waits) ->
    Searches = Queue >= ?LONG andalso (receives(Function) orelse lists:member(Function, Waits)),
    case kind(Stack) of
        Kind when Kind =:= ets; Kind =:= file; Kind =:= port, not Searches -> Kind;
        _ when Searches -> search;
        _ -> run
    end.

%% By the function that it is in, or one of those that have called that.
kind([{ets, _, _} | _]) -> ets;
kind(Stack) -> first([area(Function) || Function <- lists:sublist(Stack, 4)]).

first([none | More]) -> first(More);
first([Area | _]) -> Area;
first([]) -> none.

area({prim_inet, Send, _}) when Send =:= send; Send =:= send_recv_reply -> port;
area({erlang, port_command, _}) -> port;
area({erts_internal, port_command, _}) -> port;
area({prim_inet, Receive, _}) when Receive =:= recv; Receive =:= recv0; Receive =:= async_recv -> socket;
area({gen_tcp, recv, _}) -> socket;
area({gen_tcp_socket, recv, _}) -> socket;
area({socket, recv, _}) -> socket;
area({ssl, recv, _}) -> socket;
area({weir_socket, recv, _}) -> socket;
area({prim_file, _, _}) -> file;
area({file, _, _}) -> file;
area(_) -> none.

%% Functions of OTP that receive one message that they have asked for.
receives({gen, do_call, _}) -> true;
receives({gen, receive_response, _}) -> true;
receives({gen, do_receive_response, _}) -> true;
receives({gen_server, receive_response, _}) -> true;
receives({prim_inet, recv0, _}) -> true;
receives({prim_inet, Send, _}) when Send =:= send; Send =:= send_recv_reply -> true;
receives({prim_inet, accept0, _}) -> true;
receives({inet, tcp_controlling_process, _}) -> true;
receives({inet, tcp_sync_input, _}) -> true;
receives({inet, tcp_close, _}) -> true;
receives({disk_log, monitor_request, _}) -> true;
receives({code_server, call, _}) -> true;
receives({proc_lib, sync_start, _}) -> true;
receives({proc_lib, sync_start_link, _}) -> true;
receives({proc_lib, sync_start_monitor, _}) -> true;
receives({erpc, call, _}) -> true;
receives(_) -> false.

%% ---------------------------------------------------------------- rules

%% @doc The cause, and the figures that it was judged by; `none' for one who is not in trouble.
-spec find(facts()) -> {weir_watch:cause(), evidence()} | none.
find(#{suspect := Suspect, shares := Shares, queue := Queue} = Facts) ->
    Trouble = trouble(Facts),
    Evidence = maps:merge(maps:with([queue, growth, handled, arriving, waiters, core, reductions],
        Suspect), #{
        collecting => round(maps:get(collecting, Facts) * 100) / 100,
        least_queue => Queue, shares => maps:map(fun(_, Share) -> round(Share * 100) / 100 end, Shares)
    }),
    case [Cause || {Cause, Holds} <- rules(), Holds(Trouble, Facts)] of
        [Cause | _] -> {Cause, Evidence};
        [] when Trouble =:= hot, map_size(Shares) > 0 ->
            case is_starved(Facts) of
                true -> none;
                false -> {unsure, Evidence}
            end;
        [] ->
            none
    end.

%% @doc The cause in one for whom somebody waits who is in trouble, if it is the reason: `none' if it is not. One that
%% runs most of the time is the reason, whether it is known why or not; one that waits itself is none.
-spec root(facts()) -> {weir_watch:cause(), evidence()} | none.
root(#{shares := Shares} = Facts) ->
    case find(Facts#{inherited := true}) of
        {unsure, _} = Verdict -> case share(run, Shares) >= 0.5 of true -> Verdict; false -> none end;
        {Cause, _} = Verdict when Cause =/= blocking, Cause =/= flooded, Cause =/= backlog -> Verdict;
        _ -> none
    end.

%% `hot': its mailbox is long or others wait for it, and it does something; `idle': they wait, and it does nothing.
trouble(#{queue := Queue}) when Queue >= ?LONG -> hot;
trouble(#{inherited := true}) -> hot;
trouble(#{waiters := Waiters, shares := Shares, given := Given} = Facts) when
    Waiters >= ?WAITERS, Given >= ?STARVING
->
    %% A log writes for all who wait at once, so some always wait: it is in trouble when it can do no more.
    case {share(idle, Shares), is_log(Facts)} of
        {Idle, true} -> if Idle > 0.2 -> none; true -> hot end;
        {Idle, false} -> if Idle > 0.4 -> idle; true -> hot end
    end;
trouble(_) -> none.

rules() ->
    [
        {deadlock, fun(_, #{cycle := Cycle, shares := S}) -> Cycle andalso share(call, S) > 0.9 end},
        {nif, fun(_, #{silent := Silent, given := Given}) ->
            Silent >= case is_too_little(Given) of true -> ?SILENT_STARVED_MS; false -> ?SILENT_MS end
        end},
        {logger, fun(Trouble, F) -> Trouble =/= none andalso is_log(F) end},
        {distribution, fun(Trouble, #{distribution := Busy, shares := S}) ->
            Trouble =:= hot andalso Busy andalso share(port, S) + share(held, S) >= 0.3
        end},
        {port, fun(Trouble, #{shares := S, ports := Ports}) ->
            Trouble =:= hot andalso share(port, S) + case Ports of [] -> 0; _ -> share(held, S) end >= 0.3
        end},
        {ets_lock, fun(Trouble, #{in_ets := Others} = F) ->
            Trouble =:= hot andalso is_slow_in_ets(F) andalso is_integer(Others) andalso Others >= 2
        end},
        {gc, fun(Trouble, #{shares := S, collecting := Collecting} = F) ->
            Trouble =:= hot andalso max(share(gc, S), Collecting) >= 0.3 andalso not is_flooded(F)
        end},
        {nif, fun(_, #{kept := Kept, collecting := Collecting, shares := S, turns := Turns, given := Given}) ->
            not is_too_little(Given) andalso Kept >= 0.3 andalso Collecting < 0.1 andalso share(ets, S) < 0.05 andalso
                Turns < ?TURNS
        end},
        {nif, fun(Trouble, F) -> Trouble =:= hot andalso in_nif(F) end},
        {small_pool, fun(Trouble, F) ->
            Trouble =:= idle andalso serves(F) andalso is_pool(F) andalso not is_starved(F)
        end},
        {shared_client, fun(Trouble, #{shares := S, ports := Ports} = F) ->
            Trouble =:= hot andalso (share(socket, S) >= 0.4 orelse (Ports =/= [] andalso share(wait, S) >= 0.5)) orelse
                Trouble =:= idle andalso serves(F) andalso not is_prompt(F) andalso Ports =/= [] andalso
                    share(idle, S) >= 0.6 andalso not is_starved(F)
        end},
        {searching, fun(Trouble, #{shares := S}) -> Trouble =:= hot andalso share(search, S) >= 0.3 end},
        {backlog, fun(Trouble, #{queue := Queue, suspect := Suspect, shares := S}) ->
            #{reductions := Reductions, growth := Growth, waiters := Waiters} = Suspect,
            Trouble =:= hot andalso Queue >= ?LONG andalso Reductions < 20_000 andalso Growth < 100 andalso
                Waiters < ?WAITERS andalso share(wait, S) + share(idle, S) >= 0.9
        end},
        {blocking, fun(Trouble, #{shares := S} = F) ->
            %% A file is read and written by threads, which a starved node has no processor for either.
            File = case is_starved(F) of true -> 0.0; false -> share(file, S) end,
            Trouble =:= hot andalso share(call, S) + share(wait, S) + File + share(socket, S) >= 0.5
        end},
        {flooded, fun(Trouble, F) -> Trouble =:= hot andalso is_flooded(F) end},
        {busy, fun(Trouble, #{shares := S, suspect := #{reductions := Reductions}} = F) ->
            %% One for whom five wait works 83 % of its time, if they come at random: a queue of the kind M/M/1.
            Least = case is_starved(F) of true -> 0.8; false -> 0.6 end,
            Trouble =:= hot andalso Reductions >= 1_000_000 andalso not is_perhaps_in_ets(F) andalso
                share(run, S) + share(ets, S) + share(gc, S) + share(search, S) >= Least
        end}
    ].

%% @doc Whether a node that is given so much of the processors' time that it wants keeps others waiting for that alone.
-spec is_too_little(Given :: float()) -> boolean().
is_too_little(Given) -> Given < ?STARVED.

%% Others wait for it, and its node does not get the processors' time that it wants: that may be all.
is_starved(#{given := Given, queue := Queue, inherited := Inherited}) ->
    is_too_little(Given) andalso Queue < ?LONG andalso not Inherited.

%% A lock lets it do few reductions: with a table to itself it does some ten million a second and more.
is_slow_in_ets(#{suspect := #{reductions := Reductions}, shares := S}) ->
    share(ets, S) >= 0.05 andalso share(ets, S) + share(run, S) >= 0.5 andalso Reductions < 15_000_000.

%% It was seen in ets too seldom to say that a lock is what holds it up, and too often to say that it is not; or it was
%% never, but has not been looked at often, or got little to run with, while others are in ets; or it does more than one
%% who is held up should, but others are in ets as well, or nobody knows yet: who runs beside it is known soon.
is_perhaps_in_ets(#{suspect := #{reductions := Reductions}, shares := S, in_ets := Others} = F) ->
    #{lately_in_ets := {Lately, Samples}} = F,
    Contended = case Others of unknown -> Samples < ?SURE; _ -> Others >= 1 end,
    if
        Reductions >= 30_000_000 -> false;
        Lately > 0.0 -> Contended orelse Reductions < 15_000_000 andalso share(ets, S) >= 0.05;
        Others =:= unknown -> false;
        true -> Contended andalso (Samples < ?SURE orelse is_starved(F))
    end.

%% It runs all the time and does hardly a reduction: what it does is in C. Who waits for his turn behind others does
%% hardly one, either, nor does one whose scheduler the machine keeps waiting.
in_nif(#{suspect := #{reductions := Reductions}, shares := S, turns := Turns, given := Given}) ->
    not is_too_little(Given) andalso Reductions < 200_000 andalso share(run, S) >= 0.6 andalso Turns < ?TURNS.

%% It does something for those who wait. Who keeps them waiting until there is something to tell does nothing; a
%% question of its looker costs it a reduction or two.
serves(#{suspect := #{reductions := Reductions}}) -> Reductions >= ?SERVES.

%% It does so much for each who waits that he does not wait long: a request takes a client some hundred reductions, so
%% that is some five hundred a second, and two milliseconds.
is_prompt(#{suspect := #{reductions := Reductions}, waiters := Waiters}) -> Reductions > ?PROMPT * Waiters.

%% By its module, or where that is not known, since its heap is large, by its name or application.
is_log(#{suspect := #{module := Module, name := Name, application := Application}}) ->
    lists:member(Module, [
        logger_olp, logger_server, logger_std_h, logger_disk_log_h, logger_proxy, logger_backend, disk_log, lager_event,
        lager_sup, error_logger, weir_log_writer
    ]) orelse lists:member(Name, [logger, lager_event, error_logger, logger_proxy, user]) orelse
        lists:member(Application, [weir_log, lager]) orelse is_handler(atom_to_list(Name)).

%% As OTP's handlers are named.
is_handler("logger_std_h_" ++ _) -> true;
is_handler("logger_disk_log_h_" ++ _) -> true;
is_handler(_) -> false.

%% It knows those who wait, or says so by its name.
is_pool(#{suspect := #{module := Module, waiting := Waiting}, monitors := Monitors}) ->
    lists:any(fun(Pid) -> lists:member(Pid, Monitors) end, Waiting) orelse
        string:find(string:lowercase(atom_to_list(Module)), "pool") =/= nomatch orelse Module =:= wpool_queue_manager.

%% Messages come faster than they are taken, and few who send them wait for an answer.
is_flooded(#{suspect := #{growth := Growth, waiters := Waiters}, queue := Queue}) ->
    Growth >= 1000 andalso Waiters * 10 < max(Queue, 1).

share(Class, Shares) -> maps:get(Class, Shares, 0.0).

%% @doc A cause that is the node's: a poll thread is busy all the time with many sockets.
-spec node_cause(map()) -> {sockets, evidence()} | none.
node_cause(#{polling := Polling, ports := Ports, sockets := Sockets}) when Polling >= 0.8, Ports + Sockets >= 100 ->
    {sockets, #{polling => round(Polling * 100) / 100, ports => Ports + Sockets}};
node_cause(_) ->
    none.

%% ---------------------------------------------------------------- in words

%% @doc The diagnosis of a suspect, or of the node (`undefined'), for its cause.
-spec diagnosis(weir_watch:suspect() | undefined, {weir_watch:cause(), evidence()}, integer()) ->
    weir_watch:diagnosis().
diagnosis(Suspect, {Cause, Evidence}, Since) ->
    {_, _, Usual, Page} = lists:keyfind(Cause, 1, causes()),
    {Pid, Name, Module, Chain} =
        case Suspect of
            #{pid := P, name := N, module := M, chain := C} -> {P, N, M, C};
            undefined -> {undefined, undefined, undefined, []}
        end,
    #{
        pid => Pid, name => Name, node => node(), cause => Cause,
        summary => text("~ts ~ts", [called(Suspect), summary(Cause, Suspect, Evidence)]),
        remedy => remedy(Cause, Module, Usual), page => Page, sketch => sketch(Cause, Module), evidence => Evidence,
        chain => Chain, since => Since
    }.

%% Where Weir's own part is what the others are advised to use, something else is to be done.
remedy(logger, weir_log_writer, _) ->
    <<"Its callers wait for the disk: open the log with ack => written where an entry need not survive the machine, or "
        "with more shards; weir_log:info/1 tells how many entries each write and each sync is for.">>;
remedy(shared_client, weir_memcached_conn, _) ->
    <<"It pipelines already: the server or the way to it is slow (weir_memcached:info/1 tells), or there are too few "
        "connections.">>;
remedy(small_pool, weir_pool_queue, _) ->
    <<"Make the pool larger, or bound its queue; weir_pool:info/1 tells how many wait.">>;
remedy(_Cause, _Module, Usual) ->
    Usual.

called(undefined) -> "This node";
called(#{name := Name, module := Module, pid := Pid}) ->
    case {Name, Module} of
        {undefined, undefined} -> io_lib:format("~w", [Pid]);
        {undefined, _} -> io_lib:format("~w, a process of ~tp,", [Pid, Module]);
        {_, Module} when Module =:= undefined; Module =:= Name -> io_lib:format("~tp", [Name]);
        {_, _} -> io_lib:format("~tp (~tp)", [Name, Module])
    end.

summary(sockets, _, #{polling := Polling, ports := Ports}) ->
    io_lib:format("has a poll thread that is busy for ~b % of the time, and ~b ports and sockets.",
        [round(Polling * 100), Ports]);
summary(Cause, Suspect, #{shares := Shares, collecting := Collecting}) ->
    #{queue := Queue, drained := Drained, waiters := Waiters, core := Core} = Suspect,
    Percent = fun(Class) -> round(100 * share(Class, Shares)) end,
    What =
        case Cause of
            busy -> io_lib:format("is busy with its own work, ~b % of its time", [round(100 * Core)]);
            blocking -> io_lib:format("waits inside its callbacks, ~b % of its time",
                [Percent(call) + Percent(wait) + Percent(file) + Percent(socket)]);
            searching -> io_lib:format("goes through its mailbox in a receive, ~b % of its time", [Percent(search)]);
            flooded -> more_than_it_handles(Suspect);
            logger -> "writes the log of all processes";
            shared_client -> "is the one client of a connection for all who wait";
            small_pool -> "has no free worker for those who wait";
            gc -> io_lib:format("collects garbage, ~b % of its time", [max(Percent(gc), round(100 * Collecting))]);
            ets_lock -> io_lib:format("is in functions of ets, ~b % of its time, as are others~ts",
                [Percent(ets), mostly("in table ", fun(Table) -> io_lib:format("~tp", [Table]) end, tables, Suspect)]);
            port -> io_lib:format("is held back by a port that is busy, ~b % of its time",
                [Percent(port) + Percent(held)]);
            distribution -> io_lib:format("is held back by a connection to another node, ~b % of its "
                "time", [Percent(port) + Percent(held)]);
            nif -> "runs in native code and does not come back";
            deadlock -> "waits for a process that waits for it";
            backlog -> "does nothing, and its mailbox is long";
            unsure -> "is in trouble, and no rule says why"
        end,
    io_lib:format("~ts: ~ts wait in its mailbox~ts~ts.", [
        What,
        plural(Queue + Drained, "message"),
        case Waiters of
            0 -> "";
            _ -> [", ", plural(Waiters, "process"), " for its answers"]
        end,
        case Suspect of
            #{handled := Handled} when is_integer(Handled), Cause =/= flooded ->
                [", and it handles ", integer_to_list(Handled), " a second"];
            #{} -> ""
        end
    ]).

more_than_it_handles(#{growth := Growth} = Suspect) ->
    Rates =
        case Suspect of
            #{handled := Handled, arriving := Arriving} when is_integer(Handled) ->
                io_lib:format("gets ~b messages a second and handles ~b", [Arriving, Handled]);
            #{} ->
                io_lib:format("gets ~b messages a second more than it handles", [Growth])
        end,
    [Rates, mostly("sent by ", fun({M, F, A}) -> io_lib:format("~tp:~tp/~b", [M, F, A]) end, sent_by, Suspect)].

%% The first of what it has shares of, if it has any.
mostly(Words, Print, Key, Suspect) ->
    case Suspect of
        #{Key := [{Thing, Share} | _]} -> [", ", Words, Print(Thing), io_lib:format(" (~b %)", [round(100 * Share)])];
        #{} -> ""
    end.

plural(1, Word) -> ["1 ", Word];
plural(N, Word) -> [integer_to_list(N), " ", Word, case Word of "process" -> "es"; _ -> "s" end].

text(Format, Arguments) -> unicode:characters_to_binary(io_lib:format(Format, Arguments)).

%% @doc Each cause: its rule in words, the remedy, and the page about it.
-spec causes() -> [{weir_watch:cause(), Rule :: binary(), Remedy :: binary(), Page :: binary()}].
causes() ->
    [
        {deadlock, <<"It waits in a call for a process that, directly or through others, waits in a call for it.">>,
            <<"Let one of them cast, or answer later: a call may not go back up the way it came.">>,
            <<"docs/guide/watch.md">>},
        {nif, <<"It has not answered the runtime for a second, having run, or for three on a node that gets too little "
            "processor time; or, on one that gets enough, with fewer than two processes that wait for each scheduler, "
            "it ran for 20 milliseconds without a break before 30 % of the samples, or, if it is in trouble, runs 60 % "
            "of its time with less than 200,000 reductions a second.">>,
            <<"Let the native function run on a dirty scheduler, or in smaller steps.">>, <<"docs/guide/watch.md">>},
        {logger, <<"It is a process of logger, disk_log, lager, weir_log or a handler; if its mailbox is short, it "
            "idles for a fifth of its time at most.">>,
            <<"Log through weir_log_h: its callers format, one writer writes in batches, and what is dropped is "
                "counted.">>,
            <<"docs/guide/log.md">>},
        {distribution, <<"It is suspended 30 % of its time while a connection to another node has data queued.">>,
            <<"Send less or smaller messages to that node, or raise the limit (+zdbbl); send from another process.">>,
            <<"docs/guide/watch.md">>},
        {port, <<"It is suspended by a port, or waits for one to take what it sends, 30 % of its time.">>,
            <<"The reader is slow: give the sends a time-out, and each slow reader a process of its own.">>,
            <<"docs/guide/socket.md">>},
        {ets_lock, <<"It runs half of its time, and is in functions of ets in 5 % of the samples, as are two others "
            "that run; it does less than 15,000,000 reductions a second.">>,
            <<"Give the table write_concurrency or split it; read it with read_concurrency; keep counters in the "
                "counters module.">>,
            <<"docs/guide/watch.md">>},
        {gc, <<"It collects garbage 30 % of its time, and is not flooded, which makes garbage too.">>,
            <<"Make its heap smaller: keep what it holds in ets or in several processes, or give it a larger "
                "min_heap_size.">>,
            <<"docs/guide/watch.md">>},
        {small_pool, <<"Five processes or more wait for it in calls; it idles but for 500 reductions a second or more, "
            "and monitors those who wait or is known as a pool.">>,
            <<"Make the pool larger, bound its queue, or claim in the caller with "
                "weir_pool.">>, <<"docs/guide/pool.md">>},
        {shared_client, <<"It receives from a socket 40 % of its time, or has a port, as a socket is one, and waits "
            "inside its callbacks, or, with a port, idles but for 500 reductions a second or more while five processes "
            "or more wait for it, with at most 50,000 a second for each.">>,
            <<"Pipeline the requests, as weir_memcached does, or make a pool of "
                "connections.">>, <<"docs/guide/memcached.md">>},
        {searching, <<"It runs 30 % of its time in a function in which it waits at other times, with more than "
            "1,000 messages.">>,
            <<"Drain the mailbox: make it a weir_server, whose receives have little to "
                "search.">>, <<"docs/guide/mailbox.md">>},
        {backlog, <<"Its mailbox has more than 1,000 messages and does not grow; it waits 90 % of its time and does "
            "hardly a reduction.">>,
            <<"It waits for something else than what is in its mailbox: find out for what, or add a clause that "
                "takes the messages.">>,
            <<"docs/guide/mailbox.md">>},
        {blocking, <<"It waits half of its time inside its callbacks: for another process, a file, or something of "
            "its own.">>,
            <<"Take messages in batches, so that one wait serves many (weir_server), or give the waiting to a pool.">>,
            <<"docs/guide/batches.md">>},
        {flooded, <<"Its mailbox grows by 1,000 messages a second or more, and few of those who send wait for "
            "answers.">>,
            <<"Bound its senders: weir_flow's windows, or max_queue of a weir_server.">>, <<"docs/guide/flow.md">>},
        {busy, <<"It runs, or wants to, 60 % of its time, and does 1,000,000 reductions a second or more; it does not "
            "look as if a lock of ets held it up.">>,
            <<"Spread its work over a weir_pool, or do it in the callers.">>, <<"docs/guide/pool.md">>},
        {sockets, <<"A poll thread is busy for 80 % of the time, with 100 ports and sockets or more.">>,
            <<"Poll with one set for each scheduler: weir_socket; or start the node with +IOp and "
                "+IOt.">>, <<"docs/guide/socket.md">>},
        {unsure, <<"It is in trouble, and none of these rules holds.">>,
            <<"Look at it: where it is, and what its messages are.">>, <<"docs/guide/watch.md">>}
    ].

%% Code with the module of the suspect's own process, or a word in its place where that is not known.
sketch(Cause, undefined) -> sketch(Cause, your_module);
sketch(busy, M) ->
    text("ok = weir_pool:start(~tp, #{size => erlang:system_info(schedulers), worker => {~tp, start_link, []}}),~n"
        "{ok, Pid} = weir_pool:pick(~tp),~ngen_server:call(Pid, Request)", [M, M, M]);
sketch(blocking, M) ->
    text("-module(~tp).~n-behaviour(weir_server).~n"
        "handle_batch(Batch, State) ->~n"
        "    Answers = ask_once_for([Request || {call, _, Request} <- Batch]),~n"
        "    {reply, lists:zip([From || {call, From, _} <- Batch], Answers), State}.", [M]);
sketch(searching, M) ->
    text("-module(~tp).~n-behaviour(weir_server).~nstart_link() -> weir_server:start_link({local, ~tp}, ~tp, [], "
        "[{drain, 500}]).", [M, M, M]);
sketch(flooded, M) ->
    text("%% in place of gen_server:cast(~tp, Message): waits while 8 messages of this sender are in the mailbox~n"
        "ok = weir_flow:cast(~tp, Message, 8)", [M, M]);
sketch(logger, weir_log_writer) ->
    <<"{ok, Log} = weir_log:open(Log, #{file => File, ack => written, shards => 4})">>;
sketch(logger, M) ->
    text("%% in sys.config, in place of the handler that ~tp is of~n"
        "{kernel, [{logger, [{handler, default, weir_log_h, #{config => #{file => \"log/erlang.log\"}}}]}]}", [M]);
sketch(small_pool, M) ->
    text("weir_pool:claim(~tp, fun(Worker) -> work(Worker) end, #{timeout => 1000})", [M]);
sketch(shared_client, weir_memcached_conn) ->
    <<"{ok, _} = weir_memcached:start_link(cache, #{host => Host, connections => 4})">>;
sketch(shared_client, M) ->
    text("ok = weir_pool:start(~tp, #{size => 4, worker => {~tp, start_link, []}}),  %% a connection each~n"
        "{ok, Client} = weir_pool:pick(~tp),~ngen_server:call(Client, Request)", [M, M, M]);
sketch(gc, M) ->
    text("gen_server:start_link(~tp, [], [{spawn_opt, [{min_heap_size, 1_000_000}]}])", [M]);
sketch(ets_lock, M) ->
    text("%% the table in which ~tp waits for a lock~n"
        "ets:new(Name, [public, {write_concurrency, auto}, {decentralized_counters, true}])", [M]);
sketch(port, M) ->
    text("%% the socket to which ~tp sends~n"
        "inet:setopts(Socket, [{send_timeout, 5000}, {send_timeout_close, true}])", [M]);
sketch(distribution, M) ->
    text("%% where ~tp sends to the other node: it goes on, and does without that node for a while~n"
        "case erlang:send(To, Message, [nosuspend]) of ok -> ok; nosuspend -> {error, busy} end", [M]);
sketch(nif, M) ->
    text("/* in the C of what ~tp calls */~n"
        "static ErlNifFunc functions[] = {{\"name\", 1, name, ERL_NIF_DIRTY_JOB_CPU_BOUND}};", [M]);
sketch(deadlock, M) ->
    text("-module(~tp).~n"
        "handle_call(Request, From, State) ->~n"
        "    gen_server:cast(Other, {answer, From, Request}),  %% Other does gen_server:reply(From, Answer)~n"
        "    {noreply, State}.", [M]);
sketch(backlog, M) ->
    text("-module(~tp).~n"
        "answer_to(Ref) -> receive {Ref, Answer} -> {ok, Answer} after 5000 -> {error, timeout} end.~n"
        "handle_info(_Unexpected, State) -> {noreply, State}.", [M]);
sketch(sockets, _) ->
    <<"{ok, Listener} = weir_socket:listen(Port, Options)  %% in place of gen_tcp:listen; or: erl +IOp 4 +IOt 4">>;
sketch(unsure, _) ->
    <<>>.
