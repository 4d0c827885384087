%% @doc Weir's main job: every part on real input, beside plain OTP where there is such a side, in one run.
%%
%% `make demo' calls {@link main/0}. It starts a memcached of its own, or uses the one that `MEMCACHED=host:port' names;
%% runs the parts in order, each showing its progress; and ends with one table. Nothing stays behind.
%%
%% Exit status: 0 if every reply was right, 1 if one was not, or if the demo could not run, which it explains.
-module(weir_demo).

-export([main/0, parts/0]).

%% @doc The parts, in the order in which they run.
-spec parts() -> [module()].
parts() ->
    [weir_demo_oneshot, weir_demo_load, weir_demo_recovery, weir_demo_mailbox, weir_demo_log, weir_demo_socket].

%% @doc Runs everything, prints the table and halts.
-spec main() -> no_return().
main() ->
    ok = weir_demo_progress:begin_run(),
    %% In a process of its own: what it starts is linked to it, and if one of those dies, this one says so.
    {Runner, Monitor} = spawn_monitor(fun run_all/0),
    receive
        {'DOWN', Monitor, process, Runner, Reason} -> erlang:halt(conclude(Reason))
    end.

conclude({done, []}) ->
    io:format("~nEvery reply was right.~n"),
    0;
conclude({done, Problems}) ->
    io:format("~nNot everything was right:~n"),
    lists:foreach(fun(Problem) -> io:format("- ~ts~n", [Problem]) end, Problems),
    1;
conclude({cannot_run, Why}) ->
    io:format("The demo cannot run. ~ts~n", [Why]),
    1;
conclude(Reason) ->
    io:format("~nThe demo crashed: ~0tp~n", [Reason]),
    1.

-spec run_all() -> no_return().
run_all() ->
    exit({done, run()}).

run() ->
    {ok, _} = application:ensure_all_started(weir_memcached),
    Server =
        case weir_demo_memcached:start() of
            {ok, Started} -> Started;
            {error, Reason} -> exit({cannot_run, weir_demo_memcached:explain(Reason)})
        end,
    introduce(Server),
    %% Lost connections are part of the demo, and in its table; their reports would only hide its progress.
    ok = logger:set_primary_config(level, critical),
    Context = #{server => Server, prefix => prefix()},
    Outcomes = [run_part(Part, Context) || Part <- parts()],
    ok = weir_demo_memcached:stop(Server),
    io:format("~n~ts", [weir_demo_table:render(lists:append([Rows || #{rows := Rows} <- Outcomes]))]),
    io:format("~.1f s in total~n", [weir_demo_progress:elapsed_ms() / 1000]),
    lists:append([Problems || #{problems := Problems} <- Outcomes]).

run_part(Part, Context) ->
    weir_demo_progress:heading(Part:title()),
    Part:run(Context).

introduce(Server) ->
    {Host, Port} = weir_demo_memcached:address(Server),
    Whose =
        case weir_demo_memcached:is_ours(Server) of
            true -> "started for this run";
            false -> "as MEMCACHED says"
        end,
    io:format("Weir's main job: OTP ~s, ~b schedulers, memcached ~s at ~s:~b (~s)~n", [
        erlang:system_info(otp_release),
        erlang:system_info(schedulers_online),
        weir_demo_memcached:version(Server),
        host_text(Host),
        Port,
        Whose
    ]).

host_text(Host) when is_tuple(Host) -> inet:ntoa(Host);
host_text(Host) -> Host.

%% Another one for each run, so that a key of one run is never another's.
prefix() ->
    <<"weir-demo:", (integer_to_binary(erlang:system_time(millisecond), 36))/binary, ":">>.
