%% @doc Finds the process that holds a node up, says why it does, and what to do about it.
%% ```
%% {ok, _} = application:ensure_all_started(weir_watch).
%% Diagnoses = weir_watch:diagnose().
%% '''
%% One process of the node, the agent (`weir_watch_agent'), looks at some hundreds of processes a second; at
%% 1,000,000 processes that takes less than a hundredth of a core. It looks at them without a message, waits for
%% none, and copies no mailbox that is long; only processes of Weir's own, if they are in no trouble, are asked what
%% they count. What it finds is a {@type snapshot()} each second; its {@type diagnosis()}s name a process, the cause,
%% the evidence in figures, and the remedy.
%%
%% `bin/weir top NODE' shows the same of a node that has nothing of Weir. The guide is `docs/guide/watch.md', with the
%% rule of each cause.
-module(weir_watch).

-export([start_link/0, child_spec/1]).
-export([diagnose/0, diagnose/1, look/0, look/1, messages/1, snapshot/0, causes/0, top/0, page/1]).
-export([look_for/3]).

-export_type([options/0, look_error/0, snapshot/0, suspect/0, diagnosis/0, cause/0, cost/0, call/0]).

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
    watched := non_neg_integer(),
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
        caches := [map()], sockets := map(),
        left_out := map()},
    delays := #{sum_us := non_neg_integer(), counts := [non_neg_integer()]},
    cost := cost(),
    limits := [binary()]
}.
%% A second of a node; from OTP 27 on there is one more when the runtime tells of a long mailbox, with the new suspect
%% and else what the one before has told. `at' is the system's time, `watched' for how long the agent has looked, and
%% `uptime' the node's age, all in milliseconds; `run_queue' the processes that wait for a scheduler; `schedulers' the
%% share of this second that each scheduler worked, 0.0 to 1.0; `memory' in bytes, by the names of `erlang:memory/0';
%% `input' and `output' the bytes that ports received and sent in a second. `suspects' has the processes that are looked
%% at closely, the worst first, and `diagnoses' what is wrong with some of them. `parts' has what Weir's own parts tell
%% by their `info' functions, empty where they are not there. `delays' counts by how much a process that sleeps for 100
%% ms again and again has
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
    ancestors := [pid() | atom()],
    supervisor := pid() | atom() | undefined,
    since := integer(),
    queue := non_neg_integer(),
    queues := [non_neg_integer()],
    drained := non_neg_integer(),
    growth := integer(),
    until_million := non_neg_integer() | infinity,
    handled := non_neg_integer() | undefined,
    arriving := non_neg_integer() | undefined,
    reductions := non_neg_integer(),
    core := float(),
    heap := non_neg_integer(),
    doing := [{call(), float()}],
    states := #{atom() => float()},
    messages := [{binary(), float()}],
    sent_by := [{call(), float()}],
    senders := [pid()],
    tables := [{atom(), float()}],
    waiters := non_neg_integer(),
    waiting := [pid()],
    waits_for := pid() | undefined,
    chain := [pid()],
    answers := boolean()
}.
%% A process that is looked at. `ancestors' has up to ten of those that have started it, the nearest first, which is
%% `supervisor'. `behaviour' is `gen_server', `gen_statem', `gen_event', `weir_server', `gen_server2',
%% `gen_batch_server' or `process'. `queue' is its mailbox now; `drained' what a weir_server has taken out of it and
%% not handled; `queues' both together in each of up to 60 seconds, the oldest first. `growth' is by how many messages
%% a second both grow; `until_million' the seconds until there are a million. `handled' is how many messages it handled
%% in a second of the last minute, and `arriving' how many come, about: of a weir_server what it has counted, and, from
%% OTP 27 on, of a gen_server, a gen_server2, and a gen_statem with `handle_event/4' how often it entered a callback for
%% a message, if it is diagnosed or inspected; `undefined' where that is not known. `reductions' is a second's; `core'
%% the share of its time that it ran or wanted to run, 0.0 to 1.0; `heap' bytes, of one with more than 1,000 messages
%% those of the heap's youngest part, since the runtime would go through all messages to tell more. `doing' has the
%% functions in which it was found, and `states' the states of `process_info(Pid, status)', each with its share of the
%% samples. `messages' has the kinds of its messages, with their shares; what they hold, only {@link messages/1} tells.
%% Of one with more than 1,000 messages in its mailbox that is diagnosed or inspected there are, from OTP 27 on, those
%% of up to 16 messages that were seen to be sent; `sent_by' has the functions that sent them through a behaviour or
%% `erlang:send/2', and `senders' the processes. The operator `!' is not seen. `tables' are those of ets that one with
%% the cause `ets_lock' was seen to use, from OTP 27 on. `waiters' estimates how
%% many processes are in a call to it, and `waiting' names some; `waits_for' is whom it is calling, `chain' that one,
%% whom he is calling, and so on. `answers' is false while a question about it has had no answer for a second: it runs,
%% and does not come to answer the runtime.

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
%% What the agent itself takes: its share of one core in the last minute, and its processes' memory in bytes. Both are
%% estimates: the share is the time for which its processes were at work, times the share of the processor time that
%% the machine has given to the node.

%% What the slowest rules need.
-define(LOOK_MS, 10_000).
%% A snapshot comes each second, but from a node that hardly has a turn.
-define(SILENCE_MS, 60_000).

-type options() :: #{seconds => pos_integer(), node => node()} | [{seconds, pos_integer()} | {node, node()}].
%% `seconds' (10): for how long to look. `node' (this one): where.

-type look_error() ::
    weir_watch_remote:reason()
    | overloaded
    | system_limit
    | noproc
    | term().
%% Why there is no answer: one of those that `bin/weir' says in words, for another node; `overloaded', the agent has
%% stopped at one of its limits; `system_limit', there is no room for another process; `noproc', the agent has just
%% ended; what else it ended with.

%% @doc Starts the node's agent, as the application does.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> weir_watch_agent:start_link().

%% @doc The agent as a child of a supervisor of yours, for a node that does not start the application. There is one on
%% a node. It is transient: at its limits it ends with `{shutdown, overloaded}' and stays away; when it crashes that
%% counts for your supervisor, which the application's own never lets happen.
-spec child_spec(term()) -> supervisor:child_spec().
child_spec(_) ->
    #{
        id => weir_watch_agent, start => {?MODULE, start_link, []}, restart => transient, modules => [weir_watch_agent]
    }.

%% @doc What is wrong with this node: the diagnoses of {@link look/0}.
-spec diagnose() -> [diagnosis()] | {error, look_error()}.
diagnose() -> diagnose(#{}).

%% @doc The same of another node, which need not have Weir, or with a number of seconds to look: the diagnoses of
%% {@link look/1}. No diagnosis means that nothing was found in that time; whether something kept the agent from
%% looking, only look/1 tells.
-spec diagnose(node() | options()) -> [diagnosis()] | {error, look_error()}.
diagnose(Options) ->
    case look(Options) of
        #{diagnoses := Diagnoses} -> Diagnoses;
        {error, _} = Error -> Error
    end.

%% @doc What an agent tells of this node: `diagnoses', `suspects', `limits' and the rest. Where the application runs the
%% answer is what its agent knows, at once, or when that has looked for ten seconds; where it does not, an agent looks
%% for ten seconds and is gone. Costs what the agent costs for so long.
-spec look() -> snapshot() | {error, look_error()}.
look() -> look(#{}).

%% @doc The same of another node, which need not have Weir, or with a number of seconds to look: `#{seconds => 30,
%% node => 'shop@host'}', also as a keyword list; an atom is a node. What is no option raises `{bad_option, Key,
%% Value}', and so does a name that no node can have. When the time is over, the next snapshot is the answer. On
%% another node the agent is removed before this returns, which may take as long as the node takes to look for
%% processes that run it: some seconds where there are a million, a minute at most. When the caller is killed, nothing
%% is left either.
-spec look(node() | options()) -> snapshot() | {error, look_error()}.
look(Given) ->
    Options = options(Given),
    Ms = case Options of #{seconds := Seconds} -> Seconds * 1000; #{} -> ?LOOK_MS end,
    case {maps:get(node, Options, node()), whereis(weir_watch_agent)} of
        {Node, _} when Node =/= node() -> look_at(Node, Ms);
        {_, undefined} -> look_alone(Ms);
        {_, Agent} when is_map_key(seconds, Options) -> looked(Agent, Ms);
        {_, Agent} -> known(Agent)
    end.

options(Node) when is_atom(Node) ->
    options(#{node => Node});
options(Options) when is_map(Options) ->
    case lists:filter(fun is_wrong/1, lists:sort(maps:to_list(Options))) of
        [] -> Options;
        [{Key, Value} | _] -> error({bad_option, Key, Value})
    end;
options(Options) ->
    %% The first of a key counts, as in proplists and keywords.
    try maps:from_list(lists:reverse(Options)) of
        Map -> options(Map)
    catch
        error:_ -> error({bad_option, options, Options})
    end.

is_wrong({seconds, Seconds}) -> not (is_integer(Seconds) andalso Seconds > 0);
is_wrong({node, Node}) -> Node =/= node() andalso not weir_watch_remote:is_name(Node);
is_wrong(_) -> true.

look_at(Node, Ms) -> attached(Node, fun(Agent) -> looked(Agent, Ms) end).

attached(Node, Do) ->
    case weir_watch_remote:attach(Node) of
        {ok, Agent, Handle} ->
            try
                Do(Agent)
            after
                ok = weir_watch_remote:detach(Handle)
            end;
        {error, _} = Error ->
            Error
    end.

%% An agent that ends when nobody listens any more.
look_alone(Ms) ->
    case weir_watch_agent:start() of
        {ok, Agent} -> looked(Agent, Ms);
        {error, _} = Error -> Error
    end.

%% What it has told, if it has looked for long enough; it may have died since.
known(Agent) ->
    try weir_watch_agent:snapshot(Agent) of
        #{watched := Watched} = Snapshot when Watched >= ?LOOK_MS -> Snapshot;
        #{watched := Watched} -> looked(Agent, ?LOOK_MS - Watched);
        none -> looked(Agent, ?LOOK_MS)
    catch
        exit:_ -> looked(Agent, ?LOOK_MS)
    end.

%% By a process of its own, so that no snapshot is left in the caller's mailbox: its answer is what it ends with.
looked(Agent, Ms) ->
    Caller = self(),
    {Pid, Monitor} = spawn_monitor(?MODULE, look_for, [Caller, Agent, Ms]),
    receive
        {'DOWN', Monitor, process, Pid, {looked, Snapshot}} -> Snapshot;
        {'DOWN', Monitor, process, Pid, Reason} -> {error, Reason}
    end.

%% @private
-spec look_for(Caller :: pid(), Agent :: pid(), Ms :: non_neg_integer()) -> no_return().
look_for(Caller, Agent, Ms) ->
    _ = monitor(process, Caller),
    Ended = monitor(process, Agent),
    ok = weir_watch_agent:subscribe(Agent),
    exit(last(erlang:monotonic_time(millisecond) + Ms, Ended)).

%% The first snapshot after that time.
last(Until, Ended) ->
    receive
        {weir_watch, Agent, Snapshot} ->
            case erlang:monotonic_time(millisecond) < Until of
                true ->
                    ok = weir_watch_agent:next(Agent),
                    last(Until, Ended);
                false ->
                    {looked, Snapshot}
            end;
        {'DOWN', Ended, process, _, noconnection} ->
            disconnected;
        {'DOWN', Ended, process, _, {shutdown, overloaded}} ->
            overloaded;
        {'DOWN', Ended, process, _, Reason} ->
            Reason;
        %% The caller is gone.
        {'DOWN', _, process, _, _} ->
            normal
    after ?SILENCE_MS -> timeout
    end.

%% @doc The oldest messages in the mailbox of a process, up to 20, each as text of some 300 characters at most, and how
%% many there are. The process may have a registered name, or be one of another node, which need not have Weir. This is
%% the one function that tells what messages hold.
%% ```
%% Pid = spawn(fun() -> receive never -> ok end end),
%% Pid ! {login, <<"ann">>},
%% {ok, #{queue := 1, messages := [<<"{login,<<\"ann\">>}">>]}} = weir_watch:messages(Pid).
%% '''
%% The process copies all of its messages for that, which takes it some milliseconds. So one that has more than 10,000
%% of them is not asked, `{error, too_many}', nor one that takes more than 8 MB, `{error, too_large}'. One that does
%% not answer within five seconds is `{error, timeout}', one that is not there `{error, dead}'; the others are those of
%% {@link look/1}. What is no process raises `{bad_process, Given}'.
-spec messages(pid() | atom()) ->
    {ok, #{queue := non_neg_integer(), messages := [binary()]}}
    | {error, dead | too_many | too_large | timeout | look_error()}.
messages(Pid) when is_pid(Pid), node(Pid) =:= node() ->
    messages_of(Pid);
messages(Pid) when is_pid(Pid) ->
    attached(node(Pid), fun(_Agent) -> messages_of(Pid) end);
messages(Name) when is_atom(Name) ->
    case whereis(Name) of
        Pid when is_pid(Pid) -> messages_of(Pid);
        _ -> {error, dead}
    end;
messages(Other) ->
    error({bad_process, Other}).

messages_of(Pid) ->
    try weir_watch_messages:ask(Pid) of
        Asked -> receive {_, Asked, process, _, Reason} -> weir_watch_messages:answer(Reason) end
    catch
        error:system_limit -> {error, system_limit}
    end.

%% @doc What the agent has told last; `none' in its first second. Exits with `noproc' where it does not run, and with
%% `timeout' when it has had no turn for five seconds.
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
