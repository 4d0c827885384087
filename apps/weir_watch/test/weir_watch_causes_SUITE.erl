%% Faults are injected into a node of their own, each in at least three forms (weir_watch_forms), and the agent there
%% is to name the right process and cause. On a machine that tests for others (CI=true) one form of each cause runs,
%% elsewhere all.
-module(weir_watch_causes_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0]).
-export([diagnosed/2, find/2, healthy_for/1]).
-export([forms/1, healthy/1, rules_in_order/1, every_cause_is_told/1, not_in_trouble/1, limits_of_trouble/1,
    limits_of_sockets/1]).

-define(DEADLINE_MS, 60_000).

suite() -> [{timetrap, {minutes, 30}}].

all() -> [rules_in_order, every_cause_is_told, not_in_trouble, limits_of_trouble, limits_of_sockets, forms, healthy].

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
            kept => 0.0, silent => 0, turns => 0, starved => false
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
    ?assertEqual(searching, cause(facts(Hot, #{search => 0.4, wait => 0.6}))),
    ?assertEqual(flooded, cause(facts(Hot#{growth => 1000}, #{run => 1.0}))),
    ?assertEqual(busy, cause(facts(Hot#{growth => 999}, #{run => 1.0}))),
    ?assertEqual(gc, cause(facts(Hot, #{run => 1.0}, #{collecting => 0.3}))),
    %% A mailbox that grows is a heap that is collected.
    ?assertEqual(flooded, cause(facts(Hot#{growth => 1000}, #{run => 1.0}, #{collecting => 0.9}))),
    ?assertEqual(logger, cause(facts(Hot#{module => logger_olp}, #{port => 1.0}))),
    ?assertEqual(port, cause(facts(Hot, #{port => 0.3, run => 0.7}))),
    ?assertEqual(distribution, cause(facts(Hot, #{held => 0.3, run => 0.7}, #{distribution => true}))),
    Slow = Hot#{reductions => 14_999_999},
    Ets = #{ets => 0.05, run => 0.95},
    ?assertEqual(ets_lock, cause(facts(Slow, Ets, #{in_ets => 2}))),
    ?assertEqual(unsure, cause(facts(Slow, Ets, #{in_ets => 1}))),
    ?assertEqual(unsure, cause(facts(Slow, Ets, #{in_ets => unknown}))),
    ?assertEqual(unsure, cause(facts(Slow, #{ets => 0.04, run => 0.96}, #{in_ets => 2}))),
    ?assertEqual(busy, cause(facts(Slow, #{ets => 0.04, run => 0.96}, #{in_ets => 1}))),
    ?assertEqual(busy, cause(facts(Slow, #{run => 1.0}, #{in_ets => 6}))),
    Faster = Hot#{reductions => 15_000_000},
    ?assertEqual(busy, cause(facts(Faster, Ets, #{in_ets => 1}))),
    ?assertEqual(busy, cause(facts(Faster, #{ets => 0.04, run => 0.96}, #{in_ets => 2}))),
    ?assertEqual(busy, cause(facts(Faster, Ets, #{in_ets => unknown}))),
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
    Starved = #{starved => true},
    ?assertEqual(none, cause(facts(Waited#{module => poolboy}, #{idle => 1.0}, Starved))),
    ?assertEqual(none, cause(facts(Waited, #{idle => 1.0}, Starved#{ports => [p]}))),
    ?assertEqual(none, cause(facts(Waited, #{run => 0.79, idle => 0.21}, Starved))),
    ?assertEqual(busy, cause(facts(Waited, #{run => 0.8, idle => 0.2}, Starved))),
    ?assertEqual(busy, cause(facts(Waited, #{run => 0.6, idle => 0.4}, #{}))),
    ?assertEqual(busy, cause(facts(Hot, #{run => 0.6, idle => 0.4}, Starved))),
    ?assertEqual(unsure, cause(facts(Hot, #{idle => 0.5, run => 0.5}, Starved))),
    ?assertEqual(blocking, cause(facts(Waited, #{call => 0.6, idle => 0.4}, Starved))),
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
            #{summary := Summary, remedy := Remedy, page := Page} = Diagnosis,
            [?assertEqual(Text, unicode:characters_to_binary(unicode:characters_to_list(Text))) || Text <- [Summary,
                Remedy, Page]]
        end
     || Cause <- Told
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

limits_of_sockets(_Config) ->
    ?assertMatch({sockets, _}, weir_watch_causes:node_cause(#{polling => 0.8, ports => 100})),
    ?assertEqual(none, weir_watch_causes:node_cause(#{polling => 0.79, ports => 1000})),
    ?assertEqual(none, weir_watch_causes:node_cause(#{polling => 1.0, ports => 99})).

%% ---------------------------------------------------------------- faults

forms(_Config) ->
    Results = [{Form, Cause, diagnosed(Form, Cause)} || {Form, Cause} <- chosen()],
    [ct:pal("~p, which is ~p: ~0tp", [Form, Cause, Result]) || {Form, Cause, Result} <- Results, Result =/= right],
    Unsure = [Form || {Form, _, unsure} <- Results],
    ?assertEqual([], [Result || {_, _, Found} = Result <- Results, Found =/= right, Found =/= unsure]),
    ?assert(length(Unsure) * 20 =< max(20, length(Results)), Unsure).

chosen() ->
    All = weir_watch_forms:all(),
    case os:getenv("CI") of
        false -> All;
        _ -> [Form || {Name, _} = Form <- All, lists:member(Name, [busy_callee, sleeping_server, casts, two_calls,
            deaf])]
    end.

diagnosed(Form, Cause) ->
    weir_watch_test_lib:in_node([], ?MODULE, find, [Form, Cause]).

%% In the node. Right is who is told three times with the right cause, while nobody is told with a wrong one.
find(Form, Cause) ->
    Who = weir_watch_forms:start(Form),
    ok = weir_watch_agent:subscribe(weir_watch_agent),
    Deadline = erlang:monotonic_time(millisecond) + ?DEADLINE_MS,
    Result = await(Who, Cause, Deadline, 3),
    _ = [os:cmd("kill -KILL " ++ Pid) || Pid <- [persistent_term:get(weir_watch_form_far, none)], Pid =/= none],
    Result.

await(_Who, _Cause, _Deadline, 0) ->
    right;
await(Who, Cause, Deadline, Times) ->
    receive
        {weir_watch, Agent, #{diagnoses := Diagnoses, suspects := Suspects}} ->
            ok = weir_watch_agent:next(Agent),
            Wrong = [Diagnosis || #{cause := C} = Diagnosis <- Diagnoses, C =/= Cause, C =/= unsure],
            Right = [Pid || #{pid := Pid, cause := C} <- Diagnoses, C =:= Cause, is_ours(Who, Pid, Suspects)],
            Late = erlang:monotonic_time(millisecond) > Deadline,
            if
                Wrong =/= [] -> {wrong, Wrong, Suspects};
                Right =/= [] -> await(Who, Cause, Deadline, Times - 1);
                Late, Diagnoses =/= [] -> unsure;
                Late -> {nothing, Suspects};
                true -> await(Who, Cause, Deadline, Times)
            end
    end.

is_ours({any, Pids}, Pid, _) -> lists:member(Pid, Pids);
is_ours({modules, Modules}, Pid, Suspects) ->
    lists:any(fun(#{pid := P, module := Module}) -> P =:= Pid andalso lists:member(Module, Modules) end, Suspects);
is_ours(Name, Pid, _) when is_atom(Name) -> whereis(Name) =:= Pid;
is_ours(Who, Pid, _) -> Who =:= Pid.

%% ---------------------------------------------------------------- a healthy node

%% Servers, a pool, timers, sockets and a log with as much to do as half of two cores, and processes that come and go.
healthy(_Config) ->
    Seconds = case os:getenv("CI") of false -> 120; _ -> 20 end,
    ?assertEqual([], weir_watch_test_lib:in_node([], ?MODULE, healthy_for, [Seconds])).

healthy_for(Seconds) ->
    ok = weir_watch_healthy:start(),
    ok = weir_watch_agent:subscribe(weir_watch_agent),
    told(Seconds, []).

told(0, Diagnoses) ->
    Diagnoses;
told(Seconds, Diagnoses) ->
    receive
        {weir_watch, Agent, #{diagnoses := New}} ->
            ok = weir_watch_agent:next(Agent),
            told(Seconds - 1, New ++ Diagnoses)
    end.
