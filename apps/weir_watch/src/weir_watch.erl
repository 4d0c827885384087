%% @doc Finds the process that holds a node up, says why it does, and what to do about it.
%% ```
%% {ok, _} = application:ensure_all_started(weir_watch).
%% Diagnoses = weir_watch:diagnose().
%% '''
%% One process of the node, the agent ({@link weir_watch_agent}), looks at some hundreds of processes a second; at 1,000,000
%% processes that takes some hundredth of a core. It sends no message to those it looks at, waits for none, and copies
%% no mailbox that is long. What it finds is a {@type snapshot()} each second; its {@type diagnosis()}s name a process,
%% the cause, the evidence in figures, and the remedy.
%%
%% `bin/weir top NODE' shows the same of a node that has nothing of Weir. The guide is `docs/guide/watch.md', with the rule of
%% each cause.
-module(weir_watch).

-export([start_link/0, child_spec/1]).
-export([diagnose/0, diagnose/1, snapshot/0, causes/0]).

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
    parts := #{pools := [map()], logs := [map()], servers := [map()], sockets := map()},
    cost := cost(),
    limits := [binary()]
}.
%% A second of a node. `at' is the system's time and `uptime' the node's age, both in milliseconds; `run_queue' the processes that
%% wait for a scheduler; `schedulers' the share of this second that each scheduler worked, 0.0 to 1.0; `memory' in
%% bytes, by the names of `erlang:memory/0'; `input' and `output' the bytes that ports received and sent in a second.
%% `suspects' has the processes that are looked at closely, the worst first, and `diagnoses' what is wrong with some of them.
%% `parts' has what Weir's own parts tell by their `info' functions, empty where they are not there. `limits' says in words what the
%% agent cannot see or has given up, such as the node's system monitor being somebody else's.

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
    arrival := non_neg_integer() | unknown,
    service := non_neg_integer() | unknown,
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
%% A process that is looked at. `behaviour' is `gen_server', `gen_statem', `gen_event', `supervisor', `weir_server' or `process'.
%% `queue' is its mailbox now, and `queues' that of each of up to 60 seconds before, the oldest first; `drained' what a weir_server has taken
%% out of it and not handled. `growth' is by how many messages a second both grow; `arrival' and `service' how many a second come and
%% are handled, where the runtime tells (OTP 27 and later); `until_million' the seconds until there are a million. `reductions' is a second's;
%% `core' the share of its time that it ran or wanted to run, 0.0 to 1.0; `heap' bytes. `doing' has the functions in which it was found, and `states'
%% the states of `process_info(Pid, status)', each with its share of the samples. `messages' has the kinds of its
%% messages, never their content, with their shares. `waiters' estimates how many processes are in a call to it, and `waiting' names some;
%% `waits_for' is whom it is calling, `chain' that one, whom he is calling, and so on. `answers' is false while a
%% question about it has had no answer for a second: it runs, and does not come to answer the runtime.

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
%% What is wrong with a process, or, where `pid' is `undefined', with the node. `summary' is one sentence with figures; `remedy' another; `page' the
%% guide's page about it, such as `<<"docs/guide/pool.md">>'; `sketch' a few lines of code with the process' own module; `evidence' the figures
%% that the cause's rule looked at; `chain' whom the process waits for; `since' the system's time in milliseconds.

-type cost() :: #{share := float(), memory := non_neg_integer(), mailbox := non_neg_integer()}.
%% What the agent itself takes: its share of one core in the last minute, and its processes' memory in bytes.

start_link() -> weir_watch_agent:start_link().
