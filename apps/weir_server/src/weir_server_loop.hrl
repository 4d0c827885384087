%% The state of weir_server_loop, and the state that is kept while `sys' controls the server. Include weir_server.hrl
%% first.

-record(server, {
    parent :: pid(),
    name :: term(),
    mod :: module(),
    hibernate_after :: timeout(),
    debug :: [sys:dbg_opt()],
    %% The tag of the messages of the server's own timers.
    tag :: reference(),
    %% The time from which on a callback is slow, in the unit of os:perf_counter/0.
    slow :: pos_integer(),
    backoff :: weir_server_backoff:backoff(),
    inbox :: weir_server_inbox:inbox(),
    %% Whether nothing is drained, and the loop takes messages from the mailbox one by one.
    direct = false :: boolean(),
    %% The time at which the measured callback of a direct server began, and the number of slow callbacks before it.
    measured = none :: none | {Began :: integer(), InARow :: non_neg_integer()},
    %% The callbacks as external funs. A call by an external fun is cheaper than a call by name, and calls the newest
    %% version of the module, too.
    handle_call :: fun((term(), weir_server:from(), term()) -> term()),
    handle_cast :: fun((term(), term()) -> term()),
    handle_info :: fun((term(), term()) -> term()),
    %% Whether the module exports handle_batch/2. Further down: handle_pre_hibernate/1 and handle_post_hibernate/1.
    batch = false :: boolean(),
    %% Whether infos are always drained.
    infos = false :: boolean(),
    %% How many infos the server handles between two polls while nothing is drained: weir_server_inbox:quiet/1.
    quiet = 0 :: non_neg_integer(),
    pre_hibernate = false :: boolean(),
    post_hibernate = false :: boolean()
}).

%% The fields that follow from the callback module, which must be loaded, and from the inbox for that module.
-define(SERVED_BY(Mod, Inbox),
    mod = Mod,
    inbox = Inbox,
    handle_call = fun Mod:handle_call/3,
    handle_cast = fun Mod:handle_cast/2,
    handle_info = fun Mod:handle_info/2,
    batch = weir_server_inbox:takes_batches(Inbox),
    infos = weir_server_inbox:takes_infos(Inbox),
    quiet = weir_server_inbox:quiet(Inbox),
    pre_hibernate = erlang:function_exported(Mod, handle_pre_hibernate, 1),
    post_hibernate = erlang:function_exported(Mod, handle_post_hibernate, 1)
).

%% The action that a callback has returned. `timer': the loop has started the timer of that action.
-type wait() :: weir_server:action() | {timer, Timer :: reference(), Message :: term(), infinity | hibernate}.

%% The arguments of the loop's functions, while `sys' controls the server.
-record(suspended, {
    server :: #server{},
    chunk :: [term()],
    count :: non_neg_integer(),
    state :: term(),
    wait :: wait(),
    %% Whether `sys' has changed the code.
    changed = false :: boolean()
}).
