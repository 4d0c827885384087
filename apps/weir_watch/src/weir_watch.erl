%% @doc Finds the process that holds a node up, says why it does, and what to do about it.
%% ```
%% {ok, _} = application:ensure_all_started(weir_watch).
%% Diagnoses = weir_watch:diagnose().
%% '''
%% One process of the node, the agent (`weir_watch_agent'), looks at some hundreds of processes a second; at
%% 1,000,000 processes that takes some hundredth of a core. It sends no message to those it looks at, waits for none,
%% and copies no mailbox that is long. What it finds is a {@type snapshot()} each second; its {@type diagnosis()}s
%% name a process, the cause, the evidence in figures, and the remedy.
%%
%% `bin/weir top NODE' shows the same of a node that has nothing of Weir. The guide is `docs/guide/watch.md', with the
%% rule of each cause.
-module(weir_watch).

-export([start_link/0, child_spec/1]).
-export([diagnose/0, diagnose/1, snapshot/0, causes/0, top/0, page/1]).

-export_type([snapshot/0, suspect/0, diagnosis/0, cause/0, cost/0, call/0]).

-type cause() ::
    busy
    | blocking
    | searching
    | flooded
    | logger
    | shared_client
    | sockets
    | small_pool
    | gc
    | ets_lock
    | port
    | distribution
    | nif
    | deadlock
    | backlog
    | unsure.
%% Why a process is in trouble; {@link causes/0} tells each one's rule and remedy.

-type call() :: {module(), atom(), arity()}.

-type snapshot() :: #{
    node := node(),
    otp := binary(),
    at := integer(),
    uptime := non_neg_integer(),
    processes := non_neg_integer(),
    process_limit := pos_integer(),
    ports := non_neg_integer(),
    run_queue := non_neg_integer(),
    schedulers := [float()],
    memory := #{atom() => non_neg_integer()},
    input := non_neg_integer(),
    output := non_neg_integer(),
    suspects := [suspect()],
    diagnoses := [diagnosis()],
    parts := #{pools := [map()], clusters := [map()], logs := [map()], servers := [map()], clients := [map()],
        sockets := map(),
        left_out := map()},
    delays := #{sum_us := non_neg_integer(), counts := [non_neg_integer()]},
    cost := cost(),
    limits := [binary()]
}.
%% A second of a node; from OTP 27 on there is one more when the runtime tells of a long mailbox, with the new suspect
%% and else what the one before has told. `at' is the system's time and `uptime' the node's age, both in milliseconds;
%% `run_queue' the processes that wait for a scheduler; `schedulers' the share of this second that each scheduler
%% worked, 0.0 to 1.0; `memory' in bytes, by the names of `erlang:memory/0'; `input' and `output' the bytes that ports
%% received and sent in a second. `suspects' has the processes that are looked at closely, the worst first, and
%% `diagnoses' what is wrong with some of them. `parts' has what Weir's own parts tell by their `info' functions,
%% empty where they are not there. `delays' counts by how much a process that sleeps for 100 ms again and again has
%% overslept since the agent began: how often by at most 2, 5, 10, 20, 50, 100, 200, 500, 1,000, 2,000 and 5,000 ms
%% (and by more than the bound before), and by more. `limits' says in words what the agent cannot see or has given up,
%% such as the node's system monitor being somebody else's.

-type suspect() :: #{
    pid := pid(),
    name := atom() | undefined,
    label := binary() | undefined,
    module := module() | undefined,
    behaviour := atom(),
    application := atom() | undefined,
    supervisor := pid() | atom() | undefined,
    since := integer(),
    queue := non_neg_integer(),
    queues := [non_neg_integer()],
    drained := non_neg_integer(),
    growth := integer(),
    until_million := non_neg_integer() | infinity,
    reductions := non_neg_integer(),
    core := float(),
    heap := non_neg_integer(),
    doing := [{call(), float()}],
    states := #{atom() => float()},
    messages := [{binary(), float()}],
    waiters := non_neg_integer(),
    waiting := [pid()],
    waits_for := pid() | undefined,
    chain := [pid()],
    answers := boolean()
}.
%% A process that is looked at. `behaviour' is `gen_server', `gen_statem', `gen_event', `weir_server', `gen_server2',
%% `gen_batch_server' or `process'. `queue' is its mailbox now; `drained' what a weir_server has taken out of it and
%% not handled; `queues' both together in each of up to 60 seconds, the oldest first. `growth' is by how many messages
%% a second both grow; `until_million' the seconds until there are a million. `reductions' is a second's; `core' the
%% share of its time that it ran or wanted to run, 0.0 to 1.0; `heap' bytes. `doing' has the functions in which it was
%% found, and `states' the states of `process_info(Pid, status)', each with its share of the samples. `messages' has
%% the kinds of its messages, never their content, with their shares. `waiters' estimates how many processes are in a
%% call to it, and `waiting' names some; `waits_for' is whom it is calling, `chain' that one, whom he is calling, and
%% so on. `answers' is false while a question about it has had no answer for a second: it runs, and does not come to
%% answer the runtime.

-type diagnosis() :: #{
    pid := pid() | undefined,
    name := atom() | undefined,
    node := node(),
    cause := cause(),
    summary := binary(),
    remedy := binary(),
    page := binary(),
    sketch := binary(),
    evidence := #{atom() => term()},
    chain := [pid()],
    since := integer()
}.
%% What is wrong with a process, or, where `pid' is `undefined', with the node. `summary' is one sentence with
%% figures; `remedy' another; `page' the guide's page about it, such as `<<"docs/guide/pool.md">>'; `sketch' a few
%% lines of code with the process' own module; `evidence' the figures that the cause's rule looked at; `chain' whom
%% the process waits for; `since' the system's time in milliseconds.

-type cost() :: #{share := float(), memory := non_neg_integer(), mailbox := non_neg_integer()}.
%% What the agent itself takes: its share of one core in the last minute, and its processes' memory in bytes.

-define(LOOK_S, 5).
%% A snapshot comes each second.
-define(SILENCE_MS, 10_000).

%% @doc Starts the node's agent, as the application does.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> weir_watch_agent:start_link().

%% @doc The agent as a child of a supervisor of yours, for a node that does not start the application. There is one on
%% a node.
-spec child_spec(term()) -> supervisor:child_spec().
child_spec(_) -> #{id => weir_watch_agent, start => {?MODULE, start_link, []}}.

%% @doc What is wrong with this node. Where the agent runs the answer is what it knows, at once; where it does not, an
%% agent looks for five seconds and is gone. `{error, Reason}' if the agent ends meanwhile.
-spec diagnose() -> [diagnosis()] | {error, term()}.
diagnose() -> diagnose(#{}).

%% @doc The same of another node, which need not have Weir, or with a number of seconds to look: `#{seconds => 10,
%% node => 'shop@host'}', also as a keyword list. Costs what the agent costs for so long. Other options raise
%% `{bad_option, Key}'. A node that cannot be looked at is `{error, Reason}': `not_distributed' (this one is not),
%% `refused' (not there, or another cookie), `disconnected', `timeout', `overloaded' (the agent has stopped, at one of
%% its limits), `too_old', `{other_modules, Modules}' (it has others of these names), `{no_compiler, Release}' and a
%% few that name what the node answered; `bin/weir' says them in words.
-spec diagnose(node() | #{seconds => pos_integer(), node => node()} | [{atom(), term()}]) ->
    [diagnosis()] | {error, term()}.
diagnose(Node) when is_atom(Node) ->
    diagnose(#{node => Node});
diagnose(Options) when is_list(Options) ->
    diagnose(maps:from_list(Options));
diagnose(Options) when is_map(Options) ->
    case maps:without([seconds, node], Options) of
        Unknown when map_size(Unknown) > 0 -> error({bad_option, hd(maps:keys(Unknown))}, [Options]);
        _ -> ok
    end,
    Seconds = maps:get(seconds, Options, ?LOOK_S),
    (is_integer(Seconds) andalso Seconds > 0) orelse error({bad_option, seconds}, [Options]),
    case maps:get(node, Options, node()) of
        Node when Node =/= node() ->
            case weir_watch_remote:attach(Node) of
                {ok, Agent, Handle} ->
                    try
                        diagnosed(Agent, Seconds)
                    after
                        ok = weir_watch_remote:detach(Handle)
                    end;
                {error, _} = Error ->
                    Error
            end;
        _ ->
            case whereis(weir_watch_agent) of
                undefined ->
                    %% It ends when nobody listens any more.
                    {ok, Agent} = weir_watch_agent:start(),
                    diagnosed(Agent, Seconds);
                Agent when is_map_key(seconds, Options) ->
                    diagnosed(Agent, Seconds);
                Agent ->
                    case known(Agent) of
                        #{diagnoses := Diagnoses} -> Diagnoses;
                        none -> diagnosed(Agent, Seconds)
                    end
            end
    end.

%% `none' also of one that has died since.
known(Agent) ->
    try
        weir_watch_agent:snapshot(Agent)
    catch
        exit:_ -> none
    end.

%% From a process of its own, so that no snapshot is left in the caller's mailbox.
diagnosed(Agent, Seconds) ->
    Caller = self(),
    {Pid, Monitor} = spawn_monitor(fun() ->
        Ended = monitor(process, Agent),
        ok = subscribe(Agent),
        Caller ! {self(), last(erlang:monotonic_time(millisecond) + Seconds * 1000, Ended)}
    end),
    receive
        {Pid, Diagnoses} ->
            true = demonitor(Monitor, [flush]),
            Diagnoses;
        {'DOWN', Monitor, process, Pid, Reason} ->
            {error, Reason}
    end.

subscribe(Agent) ->
    try
        weir_watch_agent:subscribe(Agent)
    catch
        exit:{Reason, _} -> ended(Reason)
    end.

%% What the first snapshot after that time has told.
last(Until, Ended) ->
    receive
        {weir_watch, Agent, #{diagnoses := Diagnoses}} ->
            case erlang:monotonic_time(millisecond) < Until of
                true ->
                    ok = weir_watch_agent:next(Agent),
                    last(Until, Ended);
                false ->
                    Diagnoses
            end;
        {'DOWN', Ended, process, _, Reason} ->
            ended(Reason)
    after ?SILENCE_MS -> exit(timeout)
    end.

-spec ended(term()) -> no_return().
ended(noconnection) -> exit(disconnected);
ended({nodedown, _}) -> exit(disconnected);
ended({shutdown, overloaded}) -> exit(overloaded);
ended(Reason) -> exit(Reason).

%% @doc What the agent has told last; `none' in its first second. Fails with `noproc' where it does not run.
-spec snapshot() -> snapshot() | none.
snapshot() -> weir_watch_agent:snapshot(weir_watch_agent).

%% @doc Each cause with its rule, its remedy, and the page about it, in the order in which the rules are tried.
-spec causes() -> [{cause(), Rule :: binary(), Remedy :: binary(), Page :: binary()}].
causes() -> weir_watch_causes:causes().

%% @doc Shows this node in the shell, as `bin/weir top' does of another, until a key or Enter ends it.
-spec top() -> ok.
top() -> weir_watch_top:run(#{}).

%% @doc Starts the page of this node, linked to the caller: `weir_watch:page(#{port => 8080})'. {@link
%% weir_watch_page} has the options and errors. The application starts it too, if its environment has `{page,
%% Options}'.
-spec page(weir_watch_page:options()) -> {ok, pid()} | {error, term()}.
page(Options) -> weir_watch_page:start_link(Options).
