%% Faults are injected into a node of their own, in three forms or more of each cause (weir_watch_forms), and the agent
%% there is to name the right process and cause. On a machine that tests for others (CI=true) one form of each cause
%% runs, elsewhere all, or those of WEIR_WATCH_FORMS=name,name. `make watch-forms' keeps what all are told in a table.
-module(weir_watch_causes_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(DEADLINE_MS, 60_000).
%% One form of each cause.
-define(QUIET, [sleeping_server, client_in_turn, own_pool, slow_reader, far_casts, two_calls, deaf]).
-define(ONE_EACH, [busy_callee, search_for_reply, casts, std_h, large_list, ets_inserts, nif_in_server, tcp_active]).

all() -> weir_kit:cases(?MODULE).

%% ---------------------------------------------------------------- the rules by themselves

suspect(Changes) ->
    #{suspects := [Suspect | _]} = weir_watch_sample:snapshot(),
    maps:merge(Suspect#{queue => 0, growth => 0, waiters => 0, waiting => [], core => 0.0,
        reductions => 1_000_000}, Changes).

facts(Suspect, Shares) -> facts(Suspect, Shares, #{}).

facts(Changes, Shares, More) ->
    #{queue := Queue, waiters := Waiters} = Suspect = suspect(Changes),
    maps:merge(
        #{
            suspect => Suspect, shares => Shares, queue => Queue, waiters => Waiters, cycle => false,
            inherited => false, distribution => false, ports => [], monitors => [], in_ets => 0, collecting => 0.0,
            kept => 0.0, silent => 0, turns => 0, given => 0.7, lately_in_ets => {maps:get(ets, Shares, 0.0), 48}
        },
        More
    ).

cause(Facts) ->
    case weir_watch_causes:find(Facts) of
        {Cause, Evidence} when is_map(Evidence) -> Cause;
        none -> none
    end.

%% Each rule by an observation of its own, and by one that an earlier rule takes.
rules_in_order(_Config) ->
    Hot = #{queue => 5000},
    Waited = #{waiters => 20},
    ?assertEqual(busy, cause(facts(Waited, #{run => 1.0}))),
    ?assertEqual(unsure, cause(facts(Waited#{reductions => 999_999}, #{run => 1.0}))),
    ?assertEqual(blocking, cause(facts(Waited, #{wait => 1.0}))),
    ?assertEqual(shared_client, cause(facts(Waited, #{wait => 1.0}, #{ports => [p]}))),
    ?assertEqual(shared_client, cause(facts(Waited, #{idle => 1.0}, #{ports => [p]}))),
    %% A client that pipelines has several who wait at any time; what it does for each tells whether they wait long.
    ?assertEqual(none, cause(facts(Waited#{reductions => 1_000_001}, #{idle => 1.0}, #{ports => [p]}))),
    ?assertEqual(searching, cause(facts(Hot, #{search => 0.4, wait => 0.6}))),
    ?assertEqual(flooded, cause(facts(Hot#{growth => 1000}, #{run => 1.0}))),
    ?assertEqual(busy, cause(facts(Hot#{growth => 999}, #{run => 1.0}))),
    ?assertEqual(gc, cause(facts(Hot, #{run => 1.0}, #{collecting => 0.3}))),
    %% A mailbox that grows is a heap that is collected.
    ?assertEqual(flooded, cause(facts(Hot#{growth => 1000}, #{run => 1.0}, #{collecting => 0.9}))),
    ?assertEqual(logger, cause(facts(Hot#{module => logger_olp}, #{port => 1.0}))),
    %% Of a large heap the module is not always known.
    Unknown = Hot#{module => undefined},
    ?assertEqual(blocking, cause(facts(Unknown, #{port => 0.2, file => 0.8}))),
    [?assertEqual(logger, cause(facts(maps:merge(Unknown, Log), #{port => 0.2, file => 0.8}))) || Log <- [
        #{name => logger_std_h_default}, #{name => logger_disk_log_h_audit}, #{name => logger},
        #{application => weir_log}, #{application => lager}
    ]],
    %% Callers wait for any log that answers when it has written; one that idles as well keeps up.
    Log = Waited#{module => weir_log_writer},
    ?assertEqual(logger, cause(facts(Log, #{file => 0.8, idle => 0.2}))),
    ?assertEqual(none, cause(facts(Log, #{file => 0.79, idle => 0.21}))),
    ?assertEqual(blocking, cause(facts(Waited, #{file => 0.79, idle => 0.21}))),
    ?assertEqual(logger, cause(facts(Log#{queue => 1000}, #{file => 0.2, idle => 0.8}))),
    ?assertEqual(port, cause(facts(Hot, #{port => 0.3, run => 0.7}))),
    ?assertEqual(distribution, cause(facts(Hot, #{held => 0.3, run => 0.7}, #{distribution => true}))),
    Slow = Hot#{reductions => 14_999_999},
    Ets = #{ets => 0.05, run => 0.95},
    ?assertEqual(ets_lock, cause(facts(Slow, Ets, #{in_ets => 2}))),
    ?assertEqual(unsure, cause(facts(Slow, Ets, #{in_ets => 1}))),
    ?assertEqual(unsure, cause(facts(Slow, Ets, #{in_ets => unknown}))),
    ?assertEqual(unsure, cause(facts(Slow, #{ets => 0.04, run => 0.96}, #{in_ets => 2}))),
    ?assertEqual(unsure, cause(facts(Slow, #{ets => 0.04, run => 0.96}, #{in_ets => 1}))),
    ?assertEqual(busy, cause(facts(Slow, #{ets => 0.04, run => 0.96}, #{in_ets => 0}))),
    ?assertEqual(busy, cause(facts(Slow, #{run => 1.0}, #{in_ets => 6, lately_in_ets => {0.0, 40}}))),
    %% Others are in ets, and it may be by chance that it was not seen there.
    ?assertEqual(unsure, cause(facts(Slow, #{run => 1.0}, #{in_ets => 1, lately_in_ets => {0.0, 39}}))),
    ?assertEqual(unsure, cause(facts(Slow, #{run => 1.0}, #{in_ets => 2, lately_in_ets => {0.02, 48}}))),
    ?assertEqual(busy, cause(facts(Slow, #{run => 1.0}, #{in_ets => 0, lately_in_ets => {0.0, 39}}))),
    ?assertEqual(busy, cause(facts(Slow, #{run => 1.0}, #{in_ets => unknown, lately_in_ets => {0.0, 39}}))),
    ?assertEqual(none, cause(facts(Waited, #{run => 1.0}, #{in_ets => 1, given => 0.69}))),
    Faster = Hot#{reductions => 15_000_000},
    ?assertEqual(busy, cause(facts(Faster, Ets, #{in_ets => 0}))),
    ?assertEqual(unsure, cause(facts(Faster, #{ets => 0.02, run => 0.98}, #{in_ets => 1}))),
    %% Whoever runs beside it would be known by now.
    ?assertEqual(unsure, cause(facts(Faster, Ets, #{in_ets => unknown, lately_in_ets => {0.05, 39}}))),
    ?assertEqual(busy, cause(facts(Faster, Ets, #{in_ets => unknown, lately_in_ets => {0.05, 40}}))),
    ?assertEqual(unsure, cause(facts(Hot#{reductions => 29_999_999}, Ets, #{in_ets => 2}))),
    ?assertEqual(busy, cause(facts(Hot#{reductions => 30_000_000}, Ets, #{in_ets => 2}))),
    ?assertEqual(nif, cause(facts(Hot#{reductions => 100}, #{run => 1.0}))),
    ?assertEqual(nif, cause(facts(#{}, #{run => 1.0}, #{kept => 0.3}))),
    ?assertEqual(none, cause(facts(#{}, #{run => 1.0}, #{kept => 0.29}))),
    ?assertEqual(gc, cause(facts(Hot, #{run => 1.0}, #{kept => 0.9, collecting => 0.3}))),
    ?assertEqual(nif, cause(facts(#{}, #{}, #{silent => 1000}))),
    ?assertEqual(none, cause(facts(#{}, #{}, #{silent => 999}))),
    ?assertEqual(small_pool, cause(facts(Waited#{module => poolboy}, #{idle => 1.0}))),
    ?assertEqual(small_pool, cause(facts(Waited#{waiting => [self()]}, #{idle => 1.0}, #{monitors => [self()]}))),
    %% Who waits for his turn behind others does hardly a reduction, and answers late.
    ?assertEqual(unsure, cause(facts(Hot#{reductions => 100}, #{run => 1.0}, #{turns => 2}))),
    ?assertEqual(none, cause(facts(#{}, #{run => 1.0}, #{kept => 0.9, turns => 2}))),
    ?assertEqual(nif, cause(facts(#{}, #{run => 1.0}, #{kept => 0.9, turns => 1}))),
    %% One that waits nearly all of its time is not held up by a lock.
    ?assertEqual(blocking, cause(facts(Slow, #{ets => 0.08, run => 0.41, call => 0.51}, #{in_ets => 2}))),
    ?assertEqual(ets_lock, cause(facts(Slow, #{ets => 0.08, run => 0.42, call => 0.5}, #{in_ets => 2}))),
    %% Nobody is served who waits until there is something to tell.
    Idle = Waited#{module => my_pool, reductions => 499},
    ?assertEqual(none, cause(facts(Idle, #{idle => 1.0}))),
    ?assertEqual(none, cause(facts(Idle, #{idle => 1.0}, #{ports => [p]}))),
    ?assertEqual(small_pool, cause(facts(Idle#{reductions => 500}, #{idle => 1.0}))),
    %% A node that is given less than it wants keeps callers waiting, whose servers are not to blame.
    Starved = #{given => 0.69},
    ?assertEqual(none, cause(facts(#{}, #{}, Starved#{silent => 2999}))),
    ?assertEqual(nif, cause(facts(#{}, #{}, Starved#{silent => 3000}))),
    ?assertEqual(none, cause(facts(#{}, #{run => 1.0}, Starved#{kept => 0.9}))),
    ?assertEqual(unsure, cause(facts(Hot#{reductions => 100}, #{run => 1.0}, Starved))),
    ?assertEqual(none, cause(facts(Waited#{module => poolboy}, #{idle => 1.0}, Starved))),
    ?assertEqual(none, cause(facts(Waited, #{idle => 1.0}, Starved#{ports => [p]}))),
    ?assertEqual(none, cause(facts(Waited, #{run => 0.79, idle => 0.21}, Starved))),
    ?assertEqual(busy, cause(facts(Waited, #{run => 0.8, idle => 0.2}, Starved))),
    ?assertEqual(busy, cause(facts(Waited, #{run => 0.6, idle => 0.4}, #{}))),
    ?assertEqual(busy, cause(facts(Hot, #{run => 0.6, idle => 0.4}, Starved))),
    ?assertEqual(unsure, cause(facts(Hot, #{idle => 0.5, run => 0.5}, Starved))),
    ?assertEqual(blocking, cause(facts(Waited, #{call => 0.6, idle => 0.4}, Starved))),
    ?assertEqual(none, cause(facts(Waited, #{file => 0.6, idle => 0.4}, Starved))),
    ?assertEqual(blocking, cause(facts(Waited, #{file => 0.6, idle => 0.4}))),
    %% One that is given less than half of it tells nothing of who has a short mailbox, whatever they do.
    Half = #{given => 0.5},
    Less = #{given => 0.49},
    ?assertEqual(busy, cause(facts(Waited, #{run => 1.0}, Half))),
    ?assertEqual(none, cause(facts(Waited, #{run => 1.0}, Less))),
    ?assertEqual(none, cause(facts(Waited, #{call => 1.0}, Less))),
    ?assertEqual(none, cause(facts(Log, #{file => 1.0}, Less))),
    ?assertEqual(busy, cause(facts(Hot, #{run => 1.0}, Less))),
    ?assertEqual(deadlock, cause(facts(Waited, #{call => 1.0}, Less#{cycle => true}))),
    ?assertEqual(deadlock, cause(facts(#{}, #{call => 1.0}, #{cycle => true}))),
    ?assertEqual(backlog, cause(facts(Hot#{reductions => 10}, #{wait => 1.0}))),
    ?assertEqual(unsure, cause(facts(Hot, #{idle => 0.5, run => 0.5}))),
    ok.

every_cause_is_told(_Config) ->
    {ok, Source} = file:read_file(proplists:get_value(source, weir_watch:module_info(compile))),
    [_, Rest] = binary:split(Source, <<"-type cause() ::">>),
    [Type, _] = binary:split(Rest, <<".\n">>),
    Declared = [binary_to_atom(Name) || Name <- re:split(Type, "[\s\n|]+"), Name =/= <<>>],
    Told = [Cause || {Cause, <<_/binary>>, <<_/binary>>, <<_/binary>>} <- weir_watch:causes()],
    ?assertEqual(lists:sort(Declared), lists:sort(Told)),
    [
        begin
            Evidence = #{shares => #{}, collecting => 0.0, polling => 0.9, ports => 200},
            Diagnosis = weir_watch_causes:diagnosis(suspect(#{}), {Cause, Evidence}, 0),
            #{summary := Summary, remedy := Remedy, page := Page, sketch := Sketch} = Diagnosis,
            [?assertEqual(Text, unicode:characters_to_binary(unicode:characters_to_list(Text))) || Text <- [Summary,
                Remedy, Page, Sketch]]
        end
     || Cause <- Told
    ].

%% What it handles is told where it is known.
rates_in_words(_Config) ->
    Says = fun(Cause, Changes) ->
        {_, Evidence} = weir_watch_causes:find(facts(#{queue => 5000}, #{run => 1.0})),
        Suspect = suspect(Changes#{queue => 5000, growth => 812}),
        #{summary := Summary} = weir_watch_causes:diagnosis(Suspect, {Cause, Evidence}, 0),
        Summary
    end,
    Known = #{handled => 4000, arriving => 4812},
    Unknown = #{handled => undefined, arriving => undefined},
    ?assertMatch({match, _}, re:run(Says(flooded, Known), "gets 4812 messages a second and handles 4000")),
    ?assertMatch({match, _}, re:run(Says(flooded, Unknown), "gets 812 messages a second more than it handles")),
    ?assertMatch({match, _}, re:run(Says(busy, Known), "its mailbox, and it handles 4000 a second\\.$")),
    ?assertMatch({match, _}, re:run(Says(busy, Unknown), "wait in its mailbox\\.$")),
    {flooded, #{handled := 4000, arriving := 4812}} =
        weir_watch_causes:find(facts(Known#{queue => 5000, growth => 1000}, #{run => 1.0})),
    ?assertMatch({match, _}, re:run(Says(flooded, Known), "handles 4000, sent by shop:buy/2 \\(75 %\\): 5000")),
    ?assertMatch({match, _}, re:run(Says(flooded, Known#{sent_by => []}), "handles 4000: 5000")),
    ?assertMatch({match, _}, re:run(Says(ets_lock, Known), "as are others, in table accounts \\(100 %\\): 5000")),
    ?assertMatch({match, _}, re:run(Says(ets_lock, Known#{tables => []}), "as are others: 5000")).

%% All but unsure; with the suspect's module, where a suspect has one. What is Erlang is read as such, and what it calls
%% of Weir is there.
every_sketch(_Config) ->
    Evidence = #{shares => #{}, collecting => 0.0, polling => 0.9, ports => 200},
    Of = fun(Cause, Module) ->
        #{sketch := Sketch} = weir_watch_causes:diagnosis(suspect(#{module => Module}), {Cause, Evidence}, 0),
        Sketch
    end,
    Causes = [Cause || {Cause, _, _, _} <- weir_watch:causes(), Cause =/= unsure],
    ?assertEqual(<<>>, Of(unsure, tariffs)),
    Sketches = [
        {Cause, Module, Of(Cause, Module)}
     || Cause <- Causes, Module <- [tariffs, 'Elixir.Shop.Tariffs', undefined]
    ] ++ [{Cause, none, Of(Cause, Module)} || {Cause, Module} <- [{logger, weir_log_writer},
        {shared_client, weir_memcached_conn}]],
    lists:foreach(
        fun({Cause, Module, Sketch}) ->
            Named = Module =:= none orelse Cause =:= sockets orelse
                string:find(Sketch, atom_to_list(case Module of undefined -> your_module; _ -> Module end)) =/= nomatch,
            ?assert(Named, {Cause, Module, Sketch}),
            ?assert(length(string:split(Sketch, "\n", all)) =< 6, Sketch),
            Cause =:= nif orelse lists:foreach(fun is_there/1, called(parsed(Sketch)))
        end,
        Sketches
    ),
    #{sketch := OfNode} = weir_watch_causes:diagnosis(undefined, {sockets, Evidence}, 0),
    ?assertEqual(Of(sockets, undefined), OfNode).

%% Forms of a module, or expressions.
parsed(Sketch) ->
    Text = unicode:characters_to_list(Sketch),
    {ok, Tokens, _} = erl_scan:string(case lists:suffix(".", Text) of true -> Text; false -> Text ++ "\n." end),
    case Tokens of
        [{'-', _} | _] -> parsed_forms(Tokens, [], []);
        _ ->
            {ok, Expressions} = erl_parse:parse_exprs(Tokens),
            Expressions
    end.

parsed_forms([{dot, _} = Dot | Tokens], Form, Forms) ->
    {ok, Parsed} = erl_parse:parse_form(lists:reverse([Dot | Form])),
    parsed_forms(Tokens, [], [Parsed | Forms]);
parsed_forms([Token | Tokens], Form, Forms) ->
    parsed_forms(Tokens, [Token | Form], Forms);
parsed_forms([], [], Forms) ->
    lists:reverse(Forms).

called({call, _, {remote, _, {atom, _, Module}, {atom, _, Function}}, Args}) ->
    [{Module, Function, length(Args)} | called(Args)];
called(Tree) when is_tuple(Tree) -> called(tuple_to_list(Tree));
called([Tree | Trees]) -> called(Tree) ++ called(Trees);
called(_) -> [].

is_there({Module, Function, Arity}) ->
    {module, Module} = code:ensure_loaded(Module),
    ?assert(erlang:function_exported(Module, Function, Arity), {Module, Function, Arity}).

%% Nobody is advised to use what he uses.
remedies_of_our_own(_Config) ->
    Evidence = #{shares => #{}, collecting => 0.0},
    [
        begin
            {_, _, Usual, _} = lists:keyfind(Cause, 1, weir_watch:causes()),
            Of = fun(Its) ->
                #{remedy := Remedy} = weir_watch_causes:diagnosis(suspect(#{module => Its}), {Cause, Evidence}, 0),
                Remedy
            end,
            ?assertEqual(Usual, Of(bank)),
            ?assertNotEqual(Usual, Of(Module))
        end
     || {Cause, Module} <- [{logger, weir_log_writer}, {shared_client, weir_memcached_conn},
            {small_pool, weir_pool_queue}]
    ].

not_in_trouble(_Config) ->
    [?assertEqual(none, cause(facts(#{queue => 999, waiters => 4}, #{Class => 1.0})))
     || Class <- [idle, call, socket, port, file, ets, wait, held, gc, search, run]],
    %% A server that keeps its callers waiting and does nothing may do so on purpose.
    ?assertEqual(none, cause(facts(#{waiters => 1000, module => events}, #{idle => 1.0}))).

limits_of_trouble(_Config) ->
    ?assertEqual(none, cause(facts(#{queue => 999}, #{run => 1.0}))),
    ?assertEqual(busy, cause(facts(#{queue => 1000}, #{run => 1.0}))),
    ?assertEqual(none, cause(facts(#{waiters => 4}, #{run => 1.0}))),
    ?assertEqual(busy, cause(facts(#{waiters => 5}, #{run => 1.0}))).

%% For one whose caller is in trouble.
roots(_Config) ->
    Root = fun(Changes, Shares) ->
        case weir_watch_causes:root(facts(Changes, Shares)) of {Cause, _} -> Cause; none -> none end
    end,
    ?assertEqual(none, cause(facts(#{}, #{run => 1.0}))),
    ?assertEqual(busy, Root(#{}, #{run => 1.0})),
    %% It runs most of the time, and does little: where the machine is busy that may be why.
    ?assertEqual(unsure, Root(#{reductions => 999_999}, #{run => 0.5, idle => 0.5})),
    ?assertEqual(none, Root(#{reductions => 999_999}, #{run => 0.49, idle => 0.51})),
    ?assertEqual(none, Root(#{}, #{idle => 1.0})),
    %% Those who wait themselves, or whose own senders are to blame.
    ?assertEqual(none, Root(#{}, #{call => 1.0})),
    ?assertEqual(none, Root(#{queue => 5000, growth => 1000}, #{run => 1.0})).

limits_of_sockets(_Config) ->
    ?assertMatch({sockets, _}, weir_watch_causes:node_cause(#{polling => 0.8, ports => 60, sockets => 40})),
    ?assertEqual(none, weir_watch_causes:node_cause(#{polling => 0.79, ports => 1000, sockets => 1000})),
    ?assertEqual(none, weir_watch_causes:node_cause(#{polling => 1.0, ports => 60, sockets => 39})).

%% ---------------------------------------------------------------- faults

%% Right are 95 % at least, of so many as run, and none is wrong. A node that the machine gives too little says so in
%% its limits: then it may tell nothing, and the form is left out.
forms(_Config) ->
    {Quiet, Others} = chosen(),
    Run = fun({Form, Cause}) -> fun() -> diagnosed(Form, Cause) end end,
    Results = weir_kit:in_parallel(lists:map(Run, Quiet)) ++ [diagnosed(Form, Cause) || {Form, Cause} <- Others],
    ct:pal("~ts", [[told(Result) || Result <- Results]]),
    ok = keep(Results),
    ?assertEqual([], [Result || #{told := {wrong, _}} = Result <- Results]),
    Counted = [Result || #{starved := Starved, told := Told} = Result <- Results, Told =:= right orelse not Starved],
    ?assertEqual([], [Result || #{told := nothing} = Result <- Counted]),
    Unsure = [Form || #{form := Form, told := unsure} <- Counted],
    ?assert(length(Unsure) * 20 =< max(20, length(Counted)), Unsure).

%% Those that leave the cores alone, which may run side by side, and the others.
chosen() ->
    All = weir_watch_forms:all(),
    Named = fun(Names) -> [Form || {Name, _} = Form <- All, lists:member(Name, Names)] end,
    case {os:getenv("WEIR_WATCH_FORMS"), os:getenv("CI")} of
        {false, false} -> {[], All};
        {false, _} -> {Named(?QUIET), Named(?ONE_EACH)};
        {Names, _} -> {[], Named([list_to_atom(Name) || Name <- string:lexemes(Names, ",")])}
    end.

%% For the table of `make watch-forms'.
keep(Results) ->
    case os:getenv("WEIR_WATCH_RESULTS") of
        false -> ok;
        File ->
            ok = filelib:ensure_dir(File),
            file:write_file(File, [told(Result) || Result <- Results], [append])
    end.

told(#{form := Form, cause := Cause, told := Told, seconds := Seconds, starved := Starved}) ->
    Row = {erlang:system_info(otp_release), Form, Cause, case Told of {wrong, Others} -> Others; _ -> Told end, Seconds,
        Starved},
    io_lib:format("~0tp.~n", [Row]).

diagnosed(Form, sockets) ->
    Library = weir_watch_form_poll:library(),
    try
        weir_watch_test_lib:in_node(["-env", "LD_PRELOAD", Library], ?MODULE, find, [Form, sockets])
    after
        ok = file:delete(Library)
    end;
diagnosed(Form, Cause) ->
    weir_watch_test_lib:in_node([], ?MODULE, find, [Form, Cause]).

%% From OTP 27 on, of a form whose senders and table are known. As with the forms, a node that the machine gives too
%% little may tell nothing, and is left out.
says_what_was_traced(_Config) ->
    case weir_watch_trace:is_possible() of
        true ->
            Says = [
                {Form, weir_watch_test_lib:in_node([], ?MODULE, says, [Form, Words])}
             || {Form, Words} <- [
                    {casts, "gets [0-9]+ messages a second and handles [0-9]+, sent by weir_watch_forms:"},
                    {ets_inserts, "in functions of ets, [0-9]+ % of its time, as are others, in table form \\(100 %\\)"}
                ]
            ],
            ?assertEqual([], [Other || {_, Told} = Other <- Says, Told =/= said, Told =/= starved]),
            {comment, lists:flatten(io_lib:format("~0tp", [Says]))};
        false ->
            {skip, "There are no trace sessions before OTP 27."}
    end.

says(Form, Words) ->
    _ = weir_watch_forms:start(Form),
    ok = weir_watch_agent:subscribe(weir_watch_agent),
    said(Words, erlang:monotonic_time(millisecond) + ?DEADLINE_MS, none).

%% `said', or why not, or what was told last.
said(Words, Deadline, Before) ->
    receive
        {weir_watch, Agent, #{diagnoses := Diagnoses} = Snapshot} ->
            ok = weir_watch_agent:next(Agent),
            IsStarved = Before =:= starved orelse weir_watch_test_lib:says(Snapshot, "processor time"),
            Told = if IsStarved -> starved; true -> Diagnoses end,
            IsSaid = lists:any(fun(#{summary := Summary}) -> re:run(Summary, Words) =/= nomatch end, Diagnoses),
            case erlang:monotonic_time(millisecond) > Deadline of
                _ when IsSaid -> said;
                true -> Told;
                false -> said(Words, Deadline, Told)
            end
    end.

%% In the node. Right is who is told three times with the right cause, while nobody is told with a wrong one; the
%% seconds are those until the first time.
find(Form, Cause) ->
    Who = weir_watch_forms:start(Form),
    ok = weir_watch_agent:subscribe(weir_watch_agent),
    Begin = erlang:monotonic_time(millisecond),
    Found = await(Who, Cause, Begin + ?DEADLINE_MS, #{right => [], starved => false}),
    _ = [os:cmd("kill -KILL " ++ Pid) || Pid <- [persistent_term:get(weir_watch_form_far, none)], Pid =/= none],
    #{right := Right, starved := Starved, told := Told} = Found,
    First = case Right of [] -> erlang:monotonic_time(millisecond); _ -> lists:last(Right) end,
    #{form => Form, cause => Cause, told => Told, seconds => (First - Begin) / 1000, starved => Starved}.

await(_Who, _Cause, _Deadline, #{right := [_, _, _]} = Found) ->
    Found#{told => right};
await(Who, Cause, Deadline, #{right := Rights, starved := Starved} = Found) ->
    receive
        {weir_watch, Agent, #{diagnoses := Diagnoses, suspects := Suspects} = Snapshot} ->
            ok = weir_watch_agent:next(Agent),
            Wrong = [C || #{cause := C} <- Diagnoses, C =/= Cause, C =/= unsure],
            Right = [Pid || #{pid := Pid, cause := C} <- Diagnoses, C =:= Cause, is_ours(Who, Pid, Suspects)],
            Now = erlang:monotonic_time(millisecond),
            New = Found#{
                starved := Starved orelse weir_watch_test_lib:says(Snapshot, "processor time"),
                right := [Now || Right =/= []] ++ Rights
            },
            if
                Wrong =/= [] ->
                    io:format(standard_error, "~tp~n~tp~n", [Diagnoses, Suspects]),
                    New#{told => {wrong, Wrong}};
                Right =/= [] -> await(Who, Cause, Deadline, New);
                Now > Deadline, Diagnoses =/= [] -> New#{told => unsure};
                Now > Deadline -> New#{told => nothing};
                true -> await(Who, Cause, Deadline, New)
            end
    end.

is_ours(node, Pid, _) -> Pid =:= undefined;
is_ours({any, Pids}, Pid, _) -> lists:member(Pid, Pids);
is_ours({modules, Modules}, Pid, Suspects) ->
    lists:any(fun(#{pid := P, module := Module}) -> P =:= Pid andalso lists:member(Module, Modules) end, Suspects);
is_ours(Name, Pid, _) when is_atom(Name) -> whereis(Name) =:= Pid;
is_ours(Who, Pid, _) -> Who =:= Pid.

%% ---------------------------------------------------------------- a healthy node

%% Servers, pools, timers, sockets, TLS, logs and a cache, also Weir's own, with as much to do as half of two cores, and
%% processes that come and go: for 20 seconds where CI=true, else for two minutes or the WEIR_WATCH_HEALTHY seconds.
healthy(_Config) ->
    Seconds =
        case {os:getenv("WEIR_WATCH_HEALTHY"), os:getenv("CI")} of
            {false, false} -> 120;
            {false, _} -> 20;
            {Given, _} -> list_to_integer(Given)
        end,
    ?assertEqual([], weir_watch_test_lib:in_node([], ?MODULE, healthy_for, [Seconds])).

healthy_for(Seconds) ->
    ok = weir_watch_healthy:start(),
    ok = weir_watch_agent:subscribe(weir_watch_agent),
    told_in(Seconds, []).

told_in(0, Diagnoses) ->
    Diagnoses;
told_in(Seconds, Diagnoses) ->
    receive
        {weir_watch, Agent, #{diagnoses := New, limits := Limits} = Snapshot} ->
            ok = weir_watch_agent:next(Agent),
            %% In an hour somebody may want to know before its end.
            _ = [io:format(standard_error, "~tp~n~tp~n", [New, Limits]) || New =/= []],
            %% A mailbox that is long since the machine gives the node too little is no false alarm.
            IsStarved = weir_watch_test_lib:says(Snapshot, "processor time"),
            IsFalse = fun(#{evidence := Evidence}) ->
                not IsStarved orelse maps:get(least_queue, Evidence, 0) < 1000
            end,
            told_in(Seconds - 1, lists:filter(IsFalse, New) ++ Diagnoses)
    end.
