%% Causes of real faults. weir_watch_traced_SUITE has what an agent tells beside the cause.
%%
%% Each form of a fault (weir_watch_forms) has a node of its own, and the agent there has to name the right
%% process and cause. `make watch-forms' runs the long form of the suite, which has all forms, and writes what
%% the agents told into a table. The short form has one form of each cause that leaves the processors alone. Three
%% of the causes that take them are there as well: other ones each day, and on each release.
-module(weir_watch_faults_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

%% One form of each cause: forms that leave the processors alone, which run side by side, and forms that take them.
-define(QUIET, [sleeping_server, client_in_turn, own_pool, slow_reader, far_casts, two_calls, deaf,
    nif_in_server]).
-define(HOT, [busy_callee, search_for_reply, casts, std_h, large_list, ets_inserts, tcp_active]).

all() -> weir_kit:cases(?MODULE).

%% The agents are right in 95 % of the forms, and never wrong. An agent that the machine gives too little time says so
%% in its limits. Such an agent may tell nothing, and its form does not count.
forms(_Config) ->
    {Quiet, Others} = weir_kit:long({named(?QUIET), named(three_of(?HOT))}, {[], weir_watch_forms:all()}),
    InTurn = fun(Forms) -> fun() -> [diagnosed(Form, Cause) || {Form, Cause} <- Forms] end end,
    Results = lists:append(weir_kit:in_parallel([InTurn(Others) | [InTurn([Form]) || Form <- Quiet]])),
    ct:log("~ts", [[told(Result) || Result <- Results]]),
    ok = keep(Results),
    Wrong = [Result || #{told := {wrong, _}} = Result <- Results],
    ok = weir_kit:none(wrong_cause, [Result || #{starved := false} = Result <- Wrong]),
    ?assertEqual([], Wrong),
    Counted = [Result || #{starved := Starved, told := Told} = Result <- Results, Told =:= right orelse not Starved],
    ?assertEqual([], [Result || #{told := nothing} = Result <- Counted]),
    Unsure = [Form || #{form := Form, told := unsure} <- Counted],
    ?assert(length(Unsure) * 20 =< max(20, length(Counted)), Unsure).

three_of(Names) ->
    Day = calendar:date_to_gregorian_days(date()),
    First = (3 * Day + list_to_integer(erlang:system_info(otp_release))) rem length(Names),
    lists:sublist(lists:nthtail(First, Names) ++ Names, 3).

named(Names) -> [Form || {Name, _} = Form <- weir_watch_forms:all(), lists:member(Name, Names)].

%% Writes the results for the table of `make watch-forms'.
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

%% Runs in the node. The agent is right if it tells the right process and cause three times before it tells a wrong
%% cause. The seconds are those until the first time.
find(Form, Cause) ->
    Who = weir_watch_forms:start(Form),
    ok = weir_watch_agent:subscribe(weir_watch_agent),
    Begin = erlang:monotonic_time(millisecond),
    Found = await(Who, Cause, Begin, #{right => [], starved => false}),
    _ = [os:cmd("kill -KILL " ++ Pid) || Pid <- [persistent_term:get(weir_watch_form_far, none)], Pid =/= none],
    #{right := Right, starved := Starved, told := Told} = Found,
    First = case Right of [] -> erlang:monotonic_time(millisecond); _ -> lists:last(Right) end,
    #{form => Form, cause => Cause, told => Told, seconds => (First - Begin) / 1000, starved => Starved}.

await(_Who, _Cause, _Begin, #{right := [_, _, _]} = Found) ->
    Found#{told => right};
await(Who, Cause, Begin, #{right := Rights, starved := Starved} = Found) ->
    receive
        {weir_watch, Agent, #{diagnoses := Diagnoses, suspects := Suspects} = Snapshot} ->
            ok = weir_watch_agent:next(Agent),
            Wrong = [C || #{cause := C} <- Diagnoses, C =/= Cause, C =/= unsure],
            Right = [Pid || #{pid := Pid, cause := C} <- Diagnoses, C =:= Cause, is_ours(Who, Pid, Suspects)],
            Now = erlang:monotonic_time(millisecond),
            IsStarved = Starved orelse weir_watch_test_lib:says(Snapshot, "processor time"),
            IsOver = Now > Begin + if IsStarved -> weir_watch_test_lib:starved_ms(); true -> weir_kit:wait_ms() end,
            New = Found#{
                starved := IsStarved,
                right := [Now || Right =/= []] ++ Rights
            },
            if
                Wrong =/= [] ->
                    io:format(standard_error, "~tp~n~tp~n", [Diagnoses, Suspects]),
                    New#{told => {wrong, Wrong}};
                Right =/= [] -> await(Who, Cause, Begin, New);
                IsOver, Diagnoses =/= [] -> New#{told => unsure};
                IsOver -> New#{told => nothing};
                true -> await(Who, Cause, Begin, New)
            end
    end.

is_ours(node, Pid, _) -> Pid =:= undefined;
is_ours({any, Pids}, Pid, _) -> lists:member(Pid, Pids);
is_ours({modules, Modules}, Pid, Suspects) ->
    lists:any(fun(#{pid := P, module := Module}) -> P =:= Pid andalso lists:member(Module, Modules) end, Suspects);
is_ours(Name, Pid, _) when is_atom(Name) -> whereis(Name) =:= Pid;
is_ours(Who, Pid, _) -> Who =:= Pid.
