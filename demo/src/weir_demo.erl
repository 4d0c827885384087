%% @doc Weir's main job: every section on real input, beside what OTP has for it, in one run of less than a minute.
%%
%% `make demo' calls {@link main/0}. It starts a memcached of its own, which is weir_memcached_server in a node of its
%% own where none is installed, or uses the one that `MEMCACHED=host:port' names. It ends with a verdict and a report
%% with the plots of this run, `_build/demo/report.html'. Nothing else stays behind. With `WATCH=1' it goes on, with a
%% page to look at ({@link weir_demo_watch}).
%%
%% Exit status: 0 if every promise was kept, 1 if one was not, or if the demo could not run, which it explains.
-module(weir_demo).

-export([main/0, parts/0, verdict/2]).

-define(REPORT, "_build/demo/report.html").

%% @doc The sections, in the order in which they run.
-spec parts() -> [module()].
parts() ->
    [
        weir_demo_oneshot,
        weir_demo_mailbox,
        weir_demo_recovery,
        weir_demo_log,
        weir_demo_log_kill,
        weir_demo_socket
    ].

%% @doc Runs everything, prints the verdict and halts.
-spec main() -> no_return().
main() ->
    %% Ticks and crosses where the locale has them; text is ASCII else.
    _ = io:setopts([{encoding, unicode}]),
    %% In a process of its own: what it starts is linked to it, and if one of those dies, this one says so.
    {Runner, Monitor} = spawn_monitor(fun run_all/0),
    receive
        {'DOWN', Monitor, process, Runner, Reason} -> erlang:halt(conclude(Reason))
    end.

conclude({done, IsKept}) ->
    case IsKept of
        true -> 0;
        false -> 1
    end;
conclude({cannot_run, Why}) ->
    weir_demo_screen:say(["The demo cannot run: ", Why, "."]),
    1;
conclude(Reason) ->
    weir_demo_screen:say(io_lib:format("The demo crashed: ~0tp", [Reason])),
    1.

-spec run_all() -> no_return().
run_all() -> exit({done, run()}).

run() ->
    Start = erlang:monotonic_time(microsecond),
    {ok, _} = application:ensure_all_started(weir_memcached),
    {Server, About} = server(),
    weir_demo_screen:say([
        "Weir on OTP ",
        erlang:system_info(otp_release),
        io_lib:format(", ~b schedulers, ", [erlang:system_info(schedulers_online)]),
        About,
        ". \"Plain\" is what OTP itself has for the job. A tick is a promise kept: nothing wrong, nothing lost,"
        " nothing without a bound. No tick is about speed."
    ]),
    %% Lost connections are part of the demo; their reports would only hide its progress.
    ok = logger:set_primary_config(level, critical),
    Context = #{server => Server, prefix => prefix()},
    Parts = lists:zip(lists:seq(1, length(parts())), parts()),
    Sections = [section(I, Part, Context) || {I, Part} <- Parts],
    ok = weir_kit_memcached:stop(Server),
    Us = erlang:monotonic_time(microsecond) - Start,
    {IsKept, Verdict} = verdict([Outcome || #{outcome := Outcome} <- Sections], Us),
    ok = filelib:ensure_dir(?REPORT),
    ok = file:write_file(
        ?REPORT,
        weir_demo_report:render(#{verdict => Verdict, is_kept => IsKept, about => about(), sections => Sections})
    ),
    io:format("~n"),
    weir_demo_screen:say(Verdict),
    weir_demo_screen:say("Its plots: " ?REPORT),
    case os:getenv("WATCH", "") of
        "" -> ok;
        _ -> weir_demo_watch:look()
    end,
    IsKept.

server() ->
    case weir_kit_memcached:open(os:getenv("MEMCACHED", "")) of
        {ok, Server} ->
            Whose =
                case weir_kit_memcached:is_ours(Server) of
                    true -> "a memcached of its own";
                    false -> "the memcached that MEMCACHED names"
                end,
            {Server, [Whose, " (", weir_kit_memcached:version(Server), ")"]};
        {error, Reason} ->
            exit({cannot_run, weir_kit_memcached:explain(Reason)})
    end.

about() ->
    {{Year, Month, Day}, {Hour, Minute, _}} = calendar:local_time(),
    io_lib:format("~b-~2..0b-~2..0b ~2..0b:~2..0b, Erlang/OTP ~s, ~b schedulers, ~ts. One run: figures vary.", [
        Year,
        Month,
        Day,
        Hour,
        Minute,
        erlang:system_info(otp_release),
        erlang:system_info(schedulers_online),
        erlang:system_info(system_architecture)
    ]).

section(I, Part, Context) ->
    weir_demo_screen:title(I, Part:title()),
    weir_demo_screen:say("   ", Part:hurts()),
    #{said := Said, promises := Promises} = Outcome = Part:run(Context),
    weir_demo_screen:say("   ", Said),
    lists:foreach(fun weir_demo_screen:promise/1, Promises),
    #{title => Part:title(), hurts => Part:hurts(), outcome => Outcome}.

%% @doc Whether all promises were kept, and one line of less than 80 columns that says so. Pure.
-spec verdict([weir_demo_part:outcome()], Microseconds :: non_neg_integer()) -> {boolean(), string()}.
verdict(Outcomes, Us) ->
    Promises = [IsKept || #{promises := Some} <- Outcomes, {_, IsKept} <- Some],
    Broken = length([broken || false <- Promises]),
    Kept =
        case Broken of
            0 -> io_lib:format("Weir kept all ~b promises", [length(Promises)]);
            _ -> io_lib:format("Weir BROKE ~b of ~b promises", [Broken, length(Promises)])
        end,
    Text = [Kept, " in ", weir_kit_text:seconds(Us), "."],
    {Broken =:= 0, unicode:characters_to_list(Text)}.

%% Another one for each run, so that a key of one run is never another's.
prefix() ->
    <<"weir-demo:", (integer_to_binary(erlang:system_time(millisecond), 36))/binary, ":">>.
