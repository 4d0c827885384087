%% Records shared by the modules of this application; not part of its interface. docs/internals/cluster.md tells who
%% writes what and when.

-define(MAX_MS, 4294967295).

-define(IS_TIMEOUT(Timeout),
    (Timeout =:= infinity orelse (is_integer(Timeout) andalso Timeout >= 0 andalso Timeout =< ?MAX_MS))
).

%% Raises `badarg', and tells the shell why: texts by the number of the argument.
-define(BADARG(Args, Causes),
    erlang:error(badarg, Args, [{error_info, #{module => weir_cluster_opts, cause => Causes}}])
).

%% What callers know of a published pool of this node: a persistent term, written once.
-record(conf, {
    name :: weir_pool:name(),
    serve :: boolean(),
    room :: pos_integer() | infinity,
    window :: pos_integer(),
    max_calls :: pos_integer(),
    zone :: term(),
    weight :: size | pos_integer(),
    policy :: module(),
    shutdown :: timeout(),
    counters :: atomics:atomics_ref(),
    %% Whose each bucket of keys is.
    keys :: weir_cluster_keys:table()
}).

%% Another node that serves the pool: a row of the table of views.
-record(target, {
    node :: node(),
    %% The process that speaks for the pool there.
    member :: pid(),
    intakes :: tuple(),
    %% The process here that ends when they do.
    monitor :: pid(),
    %% See weir_cluster_link.
    words :: atomics:atomics_ref(),
    weight :: pos_integer(),
    zone :: term(),
    same_zone :: boolean(),
    %% The process here that hears the acknowledgements.
    agent :: pid()
}).
