%% @doc The process that reads what is told of a node as a whole. It reads what the runtime counts anyway; some of
%% that, the memory and the schedulers' times, the runtime asks of each scheduler, so one that is blocked by native
%% code keeps this process waiting, and not the agent, which is linked to it and asks it once a second for a message
%% `{node, Pid, Facts}'. It turns nothing on but the schedulers' wall time, which it turns off by dying: the runtime
%% ties it to the process that has turned it on. A reading costs some 250 microseconds.
%% @private
-module(weir_watch_node).

-export([start_link/0, ask/1, at_once/0, uptime_ms/0]).
-export([init/1, loop/2]).

-record(node, {
    at :: integer(),
    schedulers :: [{pos_integer(), integer(), integer()}],
    input :: non_neg_integer(),
    output :: non_neg_integer(),
    %% Processor time, milliseconds; 0 where the threads tell.
    runtime :: non_neg_integer(),
    %% The files in which Linux tells how long each poll thread has run, and how long that was.
    pollers :: [file:filename()],
    polled :: [non_neg_integer()],
    %% The same of the first schedulers, which also tell how long they have waited for a processor.
    threads :: [file:filename()],
    waited :: {Ran :: non_neg_integer(), Waited :: non_neg_integer()}
}).

%% Schedulers that are asked how long they have waited for a processor.
-define(THREADS, 8).

%% @doc Starts it for the calling agent.
-spec start_link() -> pid().
start_link() -> spawn_opt(?MODULE, init, [self()], [link, {priority, high}]).

%% @doc Asks for a reading.
-spec ask(pid()) -> ok.
ask(Reader) ->
    Reader ! read,
    ok.

%% @private
-spec init(pid()) -> no_return().
init(Agent) -> loop(Agent, new()).

%% @private Called by its full name, so that it comes into the code of another version.
-spec loop(pid(), #node{}) -> no_return().
loop(Agent, Node) ->
    receive
        read ->
            {Facts, Next} = read(Node),
            Agent ! {node, self(), Facts},
            ?MODULE:loop(Agent, Next);
        _ ->
            ?MODULE:loop(Agent, Node)
    end.

%% @doc What can be read without waiting for anybody; the rest is empty.
-spec at_once() -> map().
at_once() ->
    #{
        otp => list_to_binary(erlang:system_info(otp_release)),
        uptime => uptime_ms(),
        processes => erlang:system_info(process_count),
        process_limit => erlang:system_info(process_limit),
        ports => erlang:system_info(port_count),
        run_queue => erlang:statistics(total_run_queue_lengths),
        schedulers => [],
        memory => #{},
        input => 0,
        output => 0,
        polling => 0.0,
        sockets => 0,
        given => 1.0
    }.

%% @doc The age of the node. Of `statistics(wall_clock)' each question changes what the next one who asks is told.
-spec uptime_ms() -> non_neg_integer().
uptime_ms() ->
    erlang:convert_time_unit(erlang:monotonic_time() - erlang:system_info(start_time), native, millisecond).

new() ->
    _ = erlang:system_flag(scheduler_wall_time, true),
    Tasks = tasks(),
    Pollers = [File || {Name, File} <- Tasks, is_poller(Name)],
    Threads = lists:sublist([File || {Name, File} <- Tasks, is_scheduler(Name)], ?THREADS),
    {Input, Output} = io(),
    #node{
        at = now_ns(), schedulers = schedulers(), input = Input, output = Output, pollers = Pollers,
        polled = polled(Pollers), runtime = runtime(Threads), threads = Threads, waited = waited(Threads)
    }.

%% What has been since the last reading. `polling' is the share of a core that the busiest poll thread took, where that
%% is known; `sockets' how many OTP's module `socket' has, which are no ports; `given' the share of the time for which
%% schedulers wanted to run that the machine has let them. Linux tells for how long each has run and waited. Elsewhere
%% it is their processor time as a share of the time in which they had work; one that spins while it has none adds to
%% the former, so that less is seen than is so.
read(#node{at = Before, schedulers = Schedulers, pollers = Pollers, threads = Threads} = Node) ->
    #node{input = Input0, output = Output0, polled = Polled0, runtime = Runtime0, waited = {Ran0, Waited0}} = Node,
    Now = now_ns(),
    Seconds = max(Now - Before, 1) / 1_000_000_000,
    New = schedulers(),
    {Input, Output} = io(),
    Polled = polled(Pollers),
    Runtime = runtime(Threads),
    {Ran, Waited} = Both = waited(Threads),
    Shares = shares(Schedulers, New),
    Facts = #{
        schedulers => Shares,
        memory => maps:from_list(erlang:memory([total, processes, binary, ets, code, atom])),
        input => round((Input - Input0) / Seconds),
        output => round((Output - Output0) / Seconds),
        polling => lists:max([0 | lists:zipwith(fun erlang:'-'/2, Polled, Polled0)]) / 1_000_000_000 / Seconds,
        sockets => sockets(),
        given =>
            case Threads of
                [] -> given((Runtime - Runtime0) / 1000 / Seconds, lists:sum(Shares));
                _ -> had((Ran - Ran0) / 1_000_000_000 / Seconds, (Waited - Waited0) / 1_000_000_000 / Seconds)
            end
    },
    {Facts, Node#node{
        at = Now, schedulers = New, input = Input, output = Output, polled = Polled, runtime = Runtime, waited = Both
    }}.

%% Who has none has not loaded it. Some two microseconds.
sockets() ->
    try erlang:module_loaded(socket) andalso socket:number_of() of
        false -> 0;
        Sockets -> Sockets
    catch
        error:_ -> 0
    end.

%% Asked only where the threads do not tell: each question changes what the next one who asks is told, whoever he is.
runtime([]) -> element(1, erlang:statistics(runtime));
runtime(_Threads) -> 0.

%% Of so few there is nothing to say.
given(_Cores, Wanted) when Wanted < 0.2 -> 1.0;
given(Cores, Wanted) -> min(1.0, Cores / Wanted).

%% Of so little there is nothing to say, either.
had(Ran, Waited) when Ran + Waited < 0.2 -> 1.0;
had(Ran, Waited) -> Ran / (Ran + Waited).

now_ns() -> erlang:monotonic_time(nanosecond).

io() ->
    {{input, Input}, {output, Output}} = erlang:statistics(io),
    {Input, Output}.

schedulers() ->
    case erlang:statistics(scheduler_wall_time) of
        undefined -> [];
        Times -> lists:sort([Time || {Id, _, _} = Time <- Times, Id =< erlang:system_info(schedulers)])
    end.

shares(Before, Now) when length(Before) =:= length(Now) ->
    [
        if Total > Total0 -> (Active - Active0) / (Total - Total0); true -> 0.0 end
     || {{_, Active0, Total0}, {_, Active, Total}} <- lists:zip(Before, Now)
    ];
shares(_Before, _Now) ->
    [].

%% The runtime's threads by name.
tasks() ->
    try
        {ok, Tasks} = prim_file:list_dir("/proc/self/task"),
        [
            {Name, "/proc/self/task/" ++ Task ++ "/schedstat"}
         || Task <- Tasks, {ok, Name} <- [contents("/proc/self/task/" ++ Task ++ "/comm")]
        ]
    catch
        _:_ -> []
    end.

%% "0_poller" on OTP 25, "erts_poll_0" on others.
is_poller(Name) -> binary:match(Name, <<"poll">>) =/= nomatch.

%% "1_scheduler" and "erts_sched_1".
is_scheduler(Name) -> binary:match(Name, [<<"_scheduler">>, <<"erts_sched_">>]) =/= nomatch.

polled(Pollers) -> [Ran || {Ran, _} <- lists:map(fun stat/1, Pollers)].

waited(Threads) ->
    {Ran, Waited} = lists:unzip(lists:map(fun stat/1, Threads)),
    {lists:sum(Ran), lists:sum(Waited)}.

%% Nanoseconds that the thread has run, and has waited for a processor.
stat(File) ->
    case contents(File) of
        {ok, Text} ->
            [Ran, Waited | _] = binary:split(Text, <<" ">>, [global]),
            {binary_to_integer(Ran), binary_to_integer(Waited)};
        _ ->
            {0, 0}
    end.

%% Not by the file server, and not by file:read_file/1, which asks how long the file is.
%% `eof' is one that has nothing in it.
contents(File) ->
    case prim_file:open(File, [read, raw, binary]) of
        {ok, Fd} ->
            Text = prim_file:read(Fd, 100),
            _ = prim_file:close(Fd),
            Text;
        {error, _} = Error ->
            Error
    end.
