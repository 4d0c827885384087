%% @doc Something to look at: what `WATCH=1 make demo' goes on with when its sections are over.
%%
%% A plain gen_server under a name gets half as many casts again as it can handle, by its own pace as measured at the
%% start, until a million wait; then its senders pause until it has caught up. Beside it run a pool, a bounded server
%% and a log of Weir, with little to do. weir_watch looks at all of it: its page shows it, and what it finds is
%% printed. All of it is linked to the process that started it.
-module(weir_demo_watch).

-export([start/1, stop/1, look/0]).

-export_type([watch/0]).

-define(PLAIN, plain_server).
-define(SENDERS, 100).
%% The plain server hashes so many bytes for each cast.
-define(WORK, 32_768).
-define(PROBES, 10).
-define(PROBE, 100).
-define(MOST, 1_000_000).
-define(PORT, 8080).
-define(SECONDS, 600).

-opaque watch() :: #{address := binary() | none, stops := [fun(() -> term())]}.

%% @doc Shows its address, and goes on for ten minutes or until Enter.
-spec look() -> ok.
look() ->
    Watch = start(?PORT),
    io:format("~n"),
    weir_demo_screen:say([
        "Now a plain gen_server, ", atom_to_list(?PLAIN), ", gets more casts than it can handle, beside a pool, a "
        "server and a log of Weir. ",
        case Watch of
            #{address := none} -> "There is no page to look at, since OTP's application inets is not there.";
            #{address := Address} -> ["Look at it: ", Address]
        end
    ]),
    weir_demo_screen:say("Enter or Ctrl-C ends it. What weir_watch says:"),
    Me = self(),
    _ = spawn_link(fun() -> io:get_line("") =:= eof orelse (Me ! enter) end),
    ok = weir_watch_agent:subscribe(weir_watch_agent),
    ok = say(#{}, erlang:monotonic_time(millisecond) + 1000 * ?SECONDS),
    stop(Watch).

%% Each diagnosis once.
say(Said, Until) ->
    receive
        {weir_watch, Agent, #{diagnoses := Diagnoses}} ->
            ok = weir_watch_agent:next(Agent),
            Now = maps:from_list([{{Pid, Cause}, Each} || #{pid := Pid, cause := Cause} = Each <- Diagnoses]),
            _ = [
                weir_demo_screen:say("   ", [Summary, " ", Remedy])
             || #{summary := Summary, remedy := Remedy} <- maps:values(maps:without(maps:keys(Said), Now))
            ],
            say(Now, Until);
        enter ->
            ok
    after max(0, Until - erlang:monotonic_time(millisecond)) -> ok
    end.

%% @doc Starts all of it, the page on this port or, if that is taken, on another. `address' is `none' where there is
%% no inets.
-spec start(inet:port_number()) -> watch().
start(Port) ->
    Applications = [weir_watch, weir_flow, weir_pool, weir_log],
    Started = lists:append([Apps || App <- Applications, {ok, Apps} <- [application:ensure_all_started(App)]]),
    {Address, Page} = page([Port, 0]),
    {ok, Plain} = gen_server:start_link({local, ?PLAIN}, weir_demo_meter, ?WORK, []),
    {ok, Bounded} = weir_server:start_link({local, bounded_server}, weir_demo_meter, 0, #{}),
    ok = weir_flow:limit(Bounded, 1000),
    ok = weir_pool:start(demo_pool, #{size => 10, worker => {gen_server, start_link, [weir_demo_meter, 0, []]}}),
    File = filename:join(filename:basedir(user_cache, "weir"), "demo_watch.log"),
    ok = filelib:ensure_dir(File),
    {ok, demo_log} = weir_log:open(demo_log, #{file => File}),
    PauseMs = pause_ms(Plain),
    Gate = atomics:new(1, []),
    Loops =
        [loop(PauseMs, sender(Plain, I, Gate)) || I <- lists:seq(1, ?SENDERS)] ++
            [loop(100, gate(Plain, Gate))] ++
            [loop(10, fun(N) -> weir_flow:cast(Bounded, {I, N}) end) || I <- lists:seq(1, 10)] ++
            [loop(20, fun(_) -> weir_pool:claim(demo_pool, fun(_) -> pause(5) end) end) || _ <- lists:seq(1, 20)] ++
            [loop(50, fun(N) -> weir_log:log(demo_log, [integer_to_list(N), "\n"]) end) || _ <- lists:seq(1, 10)],
    #{
        address => Address,
        stops =>
            [fun() -> ended(Pid, kill) end || Pid <- Loops ++ [Plain]] ++
                [fun() -> ended(Each, shutdown) end || Each <- Page] ++
                [
                    fun() -> weir_server:stop(Bounded) end,
                    fun() -> weir_pool:stop(demo_pool) end,
                    fun() -> weir_log:close(demo_log) end,
                    fun() -> file:delete(File) end
                ] ++
                [fun() -> application:stop(App) end || App <- lists:reverse(Started), App =/= inets]
    }.

%% @doc Ends it. Nothing is left, not even the log's file.
-spec stop(watch()) -> ok.
stop(#{stops := Stops}) -> lists:foreach(fun(Stop) -> Stop() end, Stops).

page([Port | More]) ->
    case weir_watch:page(#{port => Port}) of
        {ok, Page} -> {weir_watch_page:address(Page), [Page]};
        {error, {no_inets, _}} -> {none, []};
        {error, _} when More =/= [] -> page(More)
    end.

ended(Pid, Reason) ->
    true = unlink(Pid),
    Monitor = monitor(process, Pid),
    exit(Pid, Reason),
    receive
        {'DOWN', Monitor, process, Pid, _} -> ok
    end.

%% How long each sender pauses, so that all together send half as much again as the server handles.
pause_ms(Plain) ->
    %% The least of some, as of a machine that does nothing else.
    Each = lists:min([probe(Plain) || _ <- lists:seq(1, ?PROBES)]),
    max(1, round(Each * ?SENDERS * 0.65 / 1000)).

probe(Plain) ->
    Begin = erlang:monotonic_time(microsecond),
    ok = lists:foreach(fun(N) -> gen_server:cast(Plain, {0, N}) end, lists:seq(1, ?PROBE)),
    _ = gen_server:call(Plain, readings, infinity),
    (erlang:monotonic_time(microsecond) - Begin) / ?PROBE.

sender(Plain, I, Gate) ->
    fun(N) -> atomics:get(Gate, 1) =:= 0 andalso gen_server:cast(Plain, {I, N}) end.

%% Shut from when a million wait until none do.
gate(Plain, Gate) ->
    fun(_) ->
        case process_info(Plain, message_queue_len) of
            {message_queue_len, Queue} when Queue >= ?MOST -> atomics:put(Gate, 1, 1);
            {message_queue_len, 0} -> atomics:put(Gate, 1, 0);
            _ -> ok
        end
    end.

%% A process that does something with 1, 2, 3 and so on, and pauses in between.
loop(Ms, Do) -> spawn_link(fun() -> loop(Ms, Do, 1) end).

loop(Ms, Do, N) ->
    _ = Do(N),
    ok = pause(Ms),
    loop(Ms, Do, N + 1).

pause(Ms) ->
    receive
    after Ms -> ok
    end.
