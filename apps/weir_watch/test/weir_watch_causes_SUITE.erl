%% The rules by themselves: which cause they find for a suspect, and the words, remedies and sketches of each cause.
%% weir_watch_faults_SUITE has what an agent tells of real faults.
-module(weir_watch_causes_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

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
