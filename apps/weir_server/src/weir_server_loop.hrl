%% What weir_server_loop works on, and what it leaves behind when a system message takes over. Include weir_server.hrl
%% first.

-record(server, {
    parent :: pid(),
    name :: term(),
    mod :: module(),
    hibernate_after :: timeout(),
    debug :: [sys:dbg_opt()],
    %% Tells the messages of the server's own timers.
    tag :: reference(),
    %% From how long a callback is slow, in os:perf_counter/0's unit.
    slow :: pos_integer(),
    backoff :: weir_server_backoff:backoff(),
    inbox :: weir_server_inbox:inbox(),
    %% Nothing is drained, and messages are taken from the mailbox one by one.
    direct = false :: boolean(),
    %% When the callback of a direct server began that is being measured, and how many slow ones were before it.
    measured = none :: none | {Began :: integer(), InARow :: non_neg_integer()},
    %% The callbacks as external funs: calling one is cheaper than looking it up, and it calls the newest version all
    %% the same.
    handle_call :: fun((term(), weir_server:from(), term()) -> term()),
    handle_cast :: fun((term(), term()) -> term()),
    handle_info :: fun((term(), term()) -> term()),
    %% Whether the module takes batches, and whether it wants to know of hibernation.
    batch = false :: boolean(),
    %% Whether infos are drained, too.
    infos = false :: boolean(),
    %% How many infos the server handles between two polls while nothing is drained: weir_server_inbox:quiet/1.
    quiet = 0 :: non_neg_integer(),
    pre_hibernate = false :: boolean(),
    post_hibernate = false :: boolean()
}).

%% Its fields that follow from the callback module, which must be loaded, and from an inbox for that.
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

%% What a callback has asked for; `timer': that has been started.
-type wait() :: weir_server:action() | {timer, Timer :: reference(), Message :: term(), infinity | hibernate}.

%% Everything that a turn works on, for the moments when the loop is left.
-record(suspended, {
    server :: #server{},
    chunk :: [term()],
    count :: non_neg_integer(),
    state :: term(),
    wait :: wait(),
    %% Whether the code was changed meanwhile.
    changed = false :: boolean()
}).
