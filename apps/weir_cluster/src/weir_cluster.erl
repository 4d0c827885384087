%% @doc Pools that span nodes: local first, bounded, on OTP's distribution and pg.
%%
%% ```
%% %% On each node, beside the pool of that name:
%% ok = weir_pool:start(lookups, #{size => 8, strategy => least_loaded, worker => {lookup_server, start_link, []}}),
%% ok = weir_cluster:start(lookups, #{}),
%%
%% %% Here, or elsewhere if there is no room here:
%% {ok, Answer} = weir_cluster:call(lookups, {lookup, Key}, 1000).
%% %% Where the key belongs:
%% {ok, Answer} = weir_cluster:call_key(lookups, Key, {lookup, Key}, 1000).
%% '''
%%
%% Each node that has a {@link weir_pool} publishes it under its name, and hears of the others through pg, in the scope
%% `weir_cluster'. Whoever connects the nodes connects the pools. While the pool here has room, a call is
%% {@link weir_pool:call/3} and a read of a persistent term more, and nothing leaves the node. When it has none, the
%% call goes to the lighter of two other nodes, one hop to a process that takes it to a worker there. A node without
%% workers of its own, but with `serve => false', is a client: all its calls go elsewhere.
%%
%% Nothing here exists only once. When a network splits, each side goes on with the nodes that it has, and a key has an
%% owner on each side. Where that must not be, use a consensus (ra, khepri) or a database.
%%
%% <ul>
%% <li>A request is begun at most once, unless the caller says that it is idempotent. It is tried on another node only
%%   if it is certain that it was not begun.</li>
%% <li>Whoever waits gets an answer, an exit or an error by the time-out. A time-out travels with the request: what no
%%   worker was given by then is given to none.</li>
%% <li>No caller is suspended by a busy connection. Such a connection, a full window or a node that does not answer
%%   makes another node be chosen.</li>
%% </ul>
%%
%% Room is known in pools whose calls are counted: those with the strategy `least_loaded', or a module of yours. In
%% others a call leaves the node only when there is no worker.
%%
%% All nodes run the same version of this application, or one with the same first two numbers.
%% docs/guide/cluster.md shows uses, docs/internals/cluster.md how it works.
-module(weir_cluster).

-export([start/2, stop/1, start_link/2, child_spec/2, pools/0, leave/1, leave/2]).
-export([pick/1, pick/2, claim/2, claim/3]).
-export([call/2, call/3, call_key/3, call_key/4, cast/2, cast_key/3, multicall/2, multicall/3]).
-export([send_request/2, send_request/3, receive_response/2]).
-export([owners/3, info/1]).

-export_type([opts/0, option_error/0, call_opts/0, call_error/0, claim_error/0, leave_error/0, overload/0]).
-export_type([request_id/0]).
-export_type([info/0, node_info/0]).

-include("weir_cluster.hrl").

%% How long a request may take where nothing is said, and how long leaving may, milliseconds.
-define(CALL_MS, 5000).
-define(LEAVE_MS, 60_000).

-type opts() :: #{
    serve => boolean(),
    room => pos_integer() | infinity,
    window => pos_integer(),
    max_calls => pos_integer(),
    zone => term(),
    weight => size | pos_integer(),
    policy => module(),
    shutdown => timeout()
}
    | [{atom(), term()}].
%% A map, or a keyword list with the same keys:
%% <ul>
%% <li>`serve': whether this node serves others; `false' for a client. Default `true'. One that serves is seen by others
%%   while the pool is there and has a live worker.</li>
%% <li>`room': a call stays on this node while the worker that the pool picks has fewer calls under way. Default 2: one
%%   that it works at and one that waits. `infinity': calls stay wherever there is a worker.</li>
%% <li>`window': at most so many requests of this node are on their way to, or in the mailbox of, one intake of another
%%   node, which has one for each scheduler; at least 16. Default 1000.</li>
%% <li>`max_calls': at most so many calls of other nodes are under way here; others are refused, and go elsewhere.
%%   Default 10000.</li>
%% <li>`zone': any term. Requests go to nodes of the same zone while there are such. Default `none'.</li>
%% <li>`weight': how much this node gets in comparison with others; `size' (default): as the pool has slots. Keys
%%   belong to nodes by weight, too.</li>
%% <li>`policy': a module that implements {@link weir_cluster_policy}.</li>
%% <li>`shutdown': milliseconds that calls of other nodes have to be finished when the supervisor stops, all of them
%%   together; after that they are told that they may have been begun. Default 5000.</li>
%% </ul>

-type option_error() :: {bad_option, Key :: term(), Value :: term()}.

-type call_opts() ::
    timeout() | #{timeout => timeout(), idempotent => boolean()} | [{timeout, timeout()} | {idempotent, boolean()}].
%% The time-out alone, in milliseconds, or a map or a keyword list:
%% <ul>
%% <li>`timeout': default 5000.</li>
%% <li>`idempotent': the request may be begun twice. So when a node or an intake is lost to which it was sent it is
%%   sent to another. Default `false'.</li>
%% </ul>

-type call_error() :: no_pool | no_worker | {overload, overload()}.
%% <ul>
%% <li>`no_pool': no pool of this name is published on this node.</li>
%% <li>`no_worker': no node has a worker for it. It was not begun.</li>
%% <li>`overload': there are nodes with workers, but the three that were tried had no room, or do not answer. It was not
%%   begun.</li>
%% </ul>

-type claim_error() :: call_error() | weir_pool:claim_error().
%% `timeout': no worker became free in time. The others are those of {@link call_error()}, or say why none was given
%% by the pool of this node.

-type leave_error() :: no_pool | {timeout, Calls :: pos_integer()} | {unheard, [node()]}.
%% `timeout': so many calls of other nodes are under way still, and go on. `unheard': all calls are finished, but these
%% nodes have not said that they send no more, as one that is frozen does not, or this one has had no turn: what they
%% had sent may be lost if this node is halted.

-type overload() :: #{pool := weir_pool:name(), tried := [{node(), busy | full | busy_connection | out | term()}]}.
%% `busy': as many calls are under way there as may be; `full': so are requests of this node on their way there, or in
%% its mailboxes; `busy_connection': the connection has no room, or is gone; `out': it does not answer, so nothing was
%% sent there.

-opaque request_id() :: {here, gen_server:request_id()} | {there, weir_cluster_call:sent()} | {failed, term()}.

-type node_info() :: #{
    node := node(),
    weight := pos_integer(),
    zone := term(),
    load := float() | unknown,
    share := float(),
    requests := non_neg_integer(),
    refused := non_neg_integer(),
    failed := non_neg_integer(),
    timeouts := non_neg_integer(),
    full := non_neg_integer(),
    busy := non_neg_integer(),
    round_trip_ms := non_neg_integer() | unknown,
    clock_ms := integer()
}.
%% Another node, as this one sees it:
%% <ul>
%% <li>`load': calls under way for each worker there, as {@link weir_cluster_policy} has it.</li>
%% <li>`share': how much it is let have of what it would get: 1.0, or less for a while after it has not answered, or
%%   0.</li>
%% <li>`requests': requests that were sent there. Of these, `refused' were not begun, `failed' ended with a worker, an
%%   intake or the connection, `timeouts' had no reply in time.</li>
%% <li>`full', `busy': requests that were not sent there because the window was full, or the connection busy or
%%   gone.</li>
%% <li>`round_trip_ms': from the last ping that it has answered to the answer, the time in its intake's mailbox
%%   included; `unknown' before the first.</li>
%% <li>`clock_ms': how far its monotonic clock is ahead of this node's.</li>
%% </ul>

-type info() :: #{
    name := weir_pool:name(),
    nodes := [node_info()],
    received := #{node() => non_neg_integer()},
    load := float(),
    served := non_neg_integer(),
    casts := non_neg_integer(),
    refused := non_neg_integer(),
    expired := non_neg_integer(),
    spilled := non_neg_integer(),
    retried := non_neg_integer(),
    overloads := non_neg_integer(),
    bad_casts := non_neg_integer()
}.
%% The pool as this node sees it, and since it was published here:
%% <ul>
%% <li>`nodes': the other nodes, by name.</li>
%% <li>`received': requests that nodes which are connected have sent here, clients too, as each said with its last
%%   ping.</li>
%% <li>`load': calls under way for each worker of this node.</li>
%% <li>`served', `casts': what other nodes sent and was begun here. `refused', `expired': calls of theirs that were not,
%%   because too many were under way or there was no room while another node was left to try, or their time was
%%   over.</li>
%% <li>`spilled': requests of this node that left it because there was no room; `retried': that were sent to another
%%   node because one had not begun them; `overloads': that found room nowhere.</li>
%% <li>`bad_casts': casts of other nodes that came here and went nowhere, since the strategy failed, or needs a
%%   key.</li>
%% </ul>

%% @doc Publishes the pool of this name, which is started by itself, before or after, until {@link stop/1} or the end of
%% the application.
%%
%% `{already_started, Pid}': it is published on this node; `{not_started, weir_cluster}': the application is not
%% running.
-spec start(weir_pool:name(), opts()) ->
    ok | {error, option_error() | {already_started, pid()} | {not_started, weir_cluster} | term()}.
start(Name, Opts) ->
    case weir_cluster_opts:check(Name, Opts) of
        {ok, _} -> weir_cluster_sup:start_pool(child_spec(Name, Opts));
        {error, Reason} -> {error, Reason}
    end.

%% @doc Ends what {@link start/2} began. Calls of other nodes that are under way are finished, for as long as `shutdown'
%% says; {@link leave/2} tells whether they are.
-spec stop(weir_pool:name()) -> ok | {error, no_pool}.
stop(Name) -> weir_cluster_sup:stop_pool({?MODULE, Name}).

%% @doc Like {@link start/2}, for a supervisor of yours: the process is linked to the caller.
-spec start_link(weir_pool:name(), opts()) ->
    {ok, pid()} | {error, option_error() | {already_started, pid()} | {not_started, weir_cluster} | term()}.
start_link(Name, Opts) ->
    case weir_cluster_opts:check(Name, Opts) of
        {ok, Conf} -> started(Name, weir_cluster_pool:start_link(Conf));
        {error, Reason} -> {error, Reason}
    end.

started(_Name, {ok, Pid}) -> {ok, Pid};
started(_Name, {error, Reason}) -> {error, Reason};
started(Name, ignore) ->
    case weir_cluster_view:owner(Name) of
        {ok, Owner} -> {error, {already_started, Owner}};
        error -> {error, {not_started, weir_cluster}}
    end.

%% @doc For a supervisor: place it behind the pool, so that it is stopped before.
-spec child_spec(weir_pool:name(), opts()) -> supervisor:child_spec().
child_spec(Name, Opts) ->
    #{id => {?MODULE, Name}, start => {?MODULE, start_link, [Name, Opts]}, type => supervisor}.

%% @doc The pools that are published here, in any order. Cost: goes over a table of a few rows for each pool and node.
-spec pools() -> [weir_pool:name()].
pools() -> weir_cluster_view:owned().

%% @doc Like {@link leave/2} with a time-out of 60,000 milliseconds.
-spec leave(weir_pool:name()) -> ok | {error, leave_error()}.
leave(Name) -> leave(Name, ?LEAVE_MS).

%% @doc Takes this node out: it serves no others any more. They are told, nothing that comes is begun, and this returns
%% when all others have said that they send no more, what was begun is finished, and answers and refusals have arrived.
%% After `ok' nobody notices that the node is stopped, or halted. Calls of this node go on, here and elsewhere. Also
%% after an error the node has left: it serves again when it is published anew, by {@link stop/1} and {@link start/2}.
%%
%% Cost: two messages to each other node and two back, and as many to each intake of this one.
-spec leave(weir_pool:name(), timeout()) -> ok | {error, leave_error()}.
leave(Name, Timeout) when ?IS_TIMEOUT(Timeout) ->
    case weir_cluster_view:conf(Name) of
        #conf{} = Conf ->
            weir_cluster_leave:leave(Conf, weir_cluster_call:deadline(Timeout));
        undefined ->
            {error, no_pool}
    end;
leave(Name, Timeout) ->
    ?BADARG([Name, Timeout], #{2 => "neither milliseconds nor infinity"}).

%% @doc Picks a worker: one of this node if there is any, or else one of another node, which is asked for it.
%%
%% Cost: that of {@link weir_pool:pick/1} and a read of a persistent term; elsewhere a message there and one back.
-spec pick(weir_pool:name()) -> {ok, pid()} | {error, call_error() | timeout}.
pick(Name) ->
    case weir_cluster_view:conf(Name) of
        #conf{} = Conf ->
            case weir_pool:pick(Name) of
                {ok, Pid} -> {ok, Pid};
                {error, Why} -> pick(Conf, none, [{node(), Why}])
            end;
        undefined ->
            {error, no_pool}
    end.

%% @doc Picks the worker of a key on the node of that key. Such a pid may be gone, or no longer be that of the key,
%% when it is used; {@link call_key/4} is not so.
-spec pick(weir_pool:name(), Key :: term()) -> {ok, pid()} | {error, call_error() | timeout}.
pick(Name, Key) ->
    case weir_cluster_view:conf(Name) of
        #conf{} = Conf ->
            case is_here(Key, Conf) andalso weir_pool:pick(Name, Key) of
                {ok, Pid} ->
                    {ok, Pid};
                NotHere ->
                    pick(Conf, {key, Key}, tried(NotHere))
            end;
        undefined ->
            {error, no_pool}
    end.

pick(Conf, Where, Tried) -> weir_cluster_call:pick(Conf, Where, weir_cluster_call:deadline(?CALL_MS), Tried).

%% @doc Like {@link claim/3} with a time-out of 5000 milliseconds.
-spec claim(weir_pool:name(), fun((pid()) -> Result)) -> {ok, Result} | {error, claim_error()}.
claim(Name, Fun) -> claim(Name, Fun, ?CALL_MS).

%% @doc Calls a function with a worker that nobody else has claimed: one of this node if one is free, or else one of
%% another node that has one. When all are taken it waits, on this node if that has workers. The time-out is that of
%% waiting; with 0 it is {@link weir_pool:claim/2}.
%%
%% It is as in {@link weir_pool:claim/3}. The worker of another node is held by a process there. When the claimer, his
%% node or the connection is gone, or his node has not answered for 15 seconds, the claim is abandoned, and the pool's
%% option `abandoned' says what becomes of the worker. With `free' and `wait' it is given to others while a claimer
%% that was cut off may still use it; with `replace', the default, it is killed.
%%
%% Cost: on this node that of {@link weir_pool:claim/3}. Elsewhere a process here, one there, and three messages.
-spec claim(weir_pool:name(), fun((pid()) -> Result), timeout()) -> {ok, Result} | {error, claim_error()}.
claim(Name, Fun, Timeout) when is_function(Fun, 1), ?IS_TIMEOUT(Timeout) ->
    case weir_cluster_view:conf(Name) of
        #conf{} = Conf ->
            case weir_pool:claim(Name, Fun, 0) of
                {error, Why} when Timeout > 0 ->
                    weir_cluster_call:claim(Conf, Fun, weir_cluster_call:deadline(Timeout), [{node(), Why}]);
                Result ->
                    Result
            end;
        undefined ->
            {error, no_pool}
    end;
claim(Name, Fun, Timeout) when is_function(Fun, 1) ->
    ?BADARG([Name, Fun, Timeout], #{3 => "neither milliseconds nor infinity"});
claim(Name, Fun, Timeout) ->
    ?BADARG([Name, Fun, Timeout], #{2 => "not a fun of one argument, the worker's pid"}).

%% @doc Like {@link call/3} with a time-out of 5000 milliseconds.
-spec call(weir_pool:name(), Request :: term()) -> {ok, Reply :: term()} | {error, call_error()}.
call(Name, Request) -> call(Name, Request, ?CALL_MS).

%% @doc Calls a worker: one of this node while there is room, or else one of the node that the policy says.
%%
%% Exits are those of `gen_server:call/3', with `{weir_cluster, call, Args}' when the request had left the node:
%% `timeout', the worker's reason if it dies in the call, `{nodedown, Node}' if the connection is lost. Then the
%% request may have been begun.
%%
%% Cost: on this node that of {@link weir_pool:call_within/4} and a read of a persistent term. Elsewhere three reads
%% of an ets table, a monitor, a message there and one back, and a process there.
-spec call(weir_pool:name(), Request :: term(), call_opts()) -> {ok, Reply :: term()} | {error, call_error()}.
call(Name, Request, Timeout) when ?IS_TIMEOUT(Timeout) ->
    call(Name, Request, Timeout, false, Timeout);
call(Name, Request, Opts) ->
    {Timeout, Idempotent} = weir_cluster_opts:call(Opts, [Name, Request, Opts]),
    call(Name, Request, Timeout, Idempotent, Opts).

call(Name, Request, Timeout, Idempotent, Opts) ->
    case weir_cluster_view:conf(Name) of
        #conf{room = Room} = Conf ->
            case weir_pool:call_within(Name, Request, Timeout, Room) of
                {ok, _} = Answer ->
                    Answer;
                {error, Why} ->
                    Deadline = weir_cluster_call:deadline(Timeout),
                    Result = weir_cluster_call:call(Conf, none, Request, Deadline, Idempotent, [{node(), Why}]),
                    result(Result, call, [Name, Request, Opts])
            end;
        undefined ->
            {error, no_pool}
    end.

result({exit, Reason}, Function, Args) -> exit({Reason, {?MODULE, Function, Args}});
result(Result, _Function, _Args) -> Result.

%% @doc Like {@link call_key/4} with a time-out of 5000 milliseconds.
-spec call_key(weir_pool:name(), Key :: term(), Request :: term()) -> {ok, Reply :: term()} | {error, call_error()}.
call_key(Name, Key, Request) -> call_key(Name, Key, Request, ?CALL_MS).

%% @doc Calls the worker of a key on the node of that key, wherever that is.
%%
%% Equal keys belong to the same node on all nodes that see the same nodes, and when a node comes or goes only keys
%% of that node move. If it cannot be reached, or is left out because it does not answer, the next owner gets the
%% request ({@link owners/3}); so for a while both may be asked. Errors and exits are those of {@link call/3}.
%%
%% Cost: a hash of the key and a read of a word more than {@link call/3} on this node; elsewhere twice that, and a read
%% of an ets table in place of three.
-spec call_key(weir_pool:name(), Key :: term(), Request :: term(), call_opts()) ->
    {ok, Reply :: term()} | {error, call_error()}.
call_key(Name, Key, Request, Opts) ->
    {Timeout, Idempotent} = weir_cluster_opts:call(Opts, [Name, Key, Request, Opts]),
    case weir_cluster_view:conf(Name) of
        #conf{} = Conf ->
            case is_here(Key, Conf) andalso weir_pool:call_key(Name, Key, Request, Timeout) of
                {ok, Reply} ->
                    {ok, Reply};
                NotHere ->
                    Deadline = weir_cluster_call:deadline(Timeout),
                    Result = weir_cluster_call:call(Conf, {key, Key}, Request, Deadline, Idempotent, tried(NotHere)),
                    result(Result, call_key, [Name, Key, Request, Opts])
            end;
        undefined ->
            {error, no_pool}
    end.

is_here(Key, Conf) -> weir_cluster_view:number_of_key(weir_cluster_keys:bucket(Key), Conf) =:= here.

%% A key of another node was not tried here.
tried(false) -> [];
tried({error, Why}) -> [{node(), Why}].

%% @doc Casts to a worker: one of this node if there is any, whatever it has to do, or else one of another node.
%%
%% `ok': it was sent. Nobody knows whether it arrived.
-spec cast(weir_pool:name(), Message :: term()) -> ok | {error, call_error()}.
cast(Name, Message) ->
    case weir_cluster_view:conf(Name) of
        #conf{} = Conf ->
            case weir_pool:cast(Name, Message) of
                ok -> ok;
                {error, Why} -> weir_cluster_call:cast(Conf, none, Message, [{node(), Why}])
            end;
        undefined ->
            {error, no_pool}
    end.

%% @doc Casts to the worker of a key on the node of that key.
-spec cast_key(weir_pool:name(), Key :: term(), Message :: term()) -> ok | {error, call_error()}.
cast_key(Name, Key, Message) ->
    case weir_cluster_view:conf(Name) of
        #conf{} = Conf ->
            case is_here(Key, Conf) andalso weir_pool:cast_key(Name, Key, Message) of
                ok -> ok;
                NotHere -> weir_cluster_call:cast(Conf, {key, Key}, Message, tried(NotHere))
            end;
        undefined ->
            {error, no_pool}
    end.

%% @doc Like {@link multicall/3} with a time-out of 5000 milliseconds.
-spec multicall(weir_pool:name(), Request :: term()) ->
    {ok, [{node(), {ok, term()} | {error, term()}}]} | {error, no_pool}.
multicall(Name, Request) -> multicall(Name, Request, ?CALL_MS).

%% @doc Calls one worker of each node that serves, this one included, at the same time, and returns by the time-out with
%% what each has said: `{ok, Reply}', or `{error, Reason}' with `timeout', the reason of a worker's death, or why it was
%% not begun: `no_worker', `no_pool', `out', `full', `busy_connection', `gone', `busy' or `leaving'.
-spec multicall(weir_pool:name(), Request :: term(), timeout()) ->
    {ok, [{node(), {ok, term()} | {error, term()}}]} | {error, no_pool}.
multicall(Name, Request, Timeout) when ?IS_TIMEOUT(Timeout) ->
    case weir_cluster_view:conf(Name) of
        #conf{} = Conf ->
            Deadline = weir_cluster_call:deadline(Timeout),
            Own = [send_request_here(Name, Request) || [_] <- [weir_cluster_here:weight(Conf)]],
            Targets = weir_cluster_view:targets(Name),
            Others = weir_cluster_call:multicall(Targets, Request, Deadline, Conf),
            {ok, [{node(), answer(receive_response(Id, weir_cluster_call:left(Deadline)))} || Id <- Own] ++ Others};
        undefined ->
            {error, no_pool}
    end;
multicall(Name, Request, Timeout) ->
    ?BADARG([Name, Request, Timeout], #{3 => "neither milliseconds nor infinity"}).

answer({reply, Reply}) -> {ok, Reply};
answer({error, Reason}) -> {error, Reason};
answer(timeout) -> {error, timeout}.

%% @doc Like {@link send_request/3} with a time-out of 5000 milliseconds.
-spec send_request(weir_pool:name(), Request :: term()) -> request_id().
send_request(Name, Request) -> send_request(Name, Request, ?CALL_MS).

%% @doc Sends a request to a worker of this node if there is any, whatever it has to do, or else to another node, and
%% returns. {@link receive_response/2} gives the answer. After the time-out it is not begun any more on another node. It
%% is not tried elsewhere: if it was refused, the answer says so.
-spec send_request(weir_pool:name(), Request :: term(), timeout()) -> request_id().
send_request(Name, Request, Timeout) when ?IS_TIMEOUT(Timeout) ->
    case weir_cluster_view:conf(Name) of
        #conf{} = Conf ->
            case send_request_here(Name, Request) of
                {failed, Why} ->
                    Deadline = weir_cluster_call:deadline(Timeout),
                    case weir_cluster_call:send_request(Conf, Request, Deadline, [{node(), Why}]) of
                        {error, Reason} -> {failed, Reason};
                        Sent -> {there, Sent}
                    end;
                Here ->
                    Here
            end;
        undefined ->
            {failed, no_pool}
    end;
send_request(Name, Request, Timeout) ->
    ?BADARG([Name, Request, Timeout], #{3 => "neither milliseconds nor infinity"}).

send_request_here(Name, Request) ->
    case weir_pool:pick(Name) of
        {ok, Pid} -> {here, gen_server:send_request(Pid, Request)};
        {error, Why} -> {failed, Why}
    end.

%% @doc Waits for the answer to a request. After `timeout' none comes any more. `{error, Reason}' is the reason of the
%% worker's death, `{nodedown, Node}', or why it was not begun, as of {@link multicall/3}.
-spec receive_response(request_id(), timeout()) -> {reply, term()} | {error, term()} | timeout.
receive_response({here, Id}, Timeout) ->
    case gen_server:receive_response(Id, Timeout) of
        {error, {Reason, _Server}} -> {error, Reason};
        Response -> Response
    end;
receive_response({there, Sent}, Timeout) ->
    case weir_cluster_call:wait(Sent, Timeout) of
        {ok, Reply} -> {reply, Reply};
        timeout -> timeout;
        {_, Reason} -> {error, Reason}
    end;
receive_response({failed, Reason}, _Timeout) ->
    {error, Reason}.

%% @doc The nodes to which a key belongs, the first so many in line, for those who write to several. The first is that
%% of {@link call_key/4}; when it is gone, the second is. Fewer if there are no more.
%%
%% Cost: reads all nodes, and hashes as often.
-spec owners(weir_pool:name(), Key :: term(), Count :: pos_integer()) -> {ok, [node()]} | {error, no_pool}.
owners(Name, Key, Count) when is_integer(Count), Count > 0 ->
    case weir_cluster_view:conf(Name) of
        #conf{} = Conf -> {ok, weir_cluster_call:owners(weir_cluster_keys:bucket(Key), Count, Conf)};
        undefined -> {error, no_pool}
    end;
owners(Name, Key, Count) ->
    ?BADARG([Name, Key, Count], #{3 => "not a number of nodes, from 1"}).

%% @doc The pool and the other nodes, as this one sees them. Cost: reads a row and some words of each.
-spec info(weir_pool:name()) -> {ok, info()} | {error, no_pool}.
info(Name) ->
    case weir_cluster_view:conf(Name) of
        #conf{} = Conf ->
            Now = erlang:monotonic_time(millisecond),
            Targets = lists:keysort(#target.node, weir_cluster_view:targets(Name)),
            Counters = weir_cluster_here:counters(Conf),
            {ok, Counters#{
                name => Name,
                load => weir_cluster_here:load(Conf) / 1000,
                nodes => [node_info(Now, Target) || Target <- Targets],
                received => weir_cluster_view:received(Name)
            }};
        undefined ->
            {error, no_pool}
    end.

node_info(Now, #target{node = Node, weight = Weight, zone = Zone, words = Words}) ->
    (weir_cluster_link:counters(Words))#{
        node => Node,
        weight => Weight,
        zone => Zone,
        load => weir_cluster_link:load(Now, Weight, Words),
        share => weir_cluster_link:share(Words) / 1000,
        round_trip_ms => weir_cluster_link:round_trip(Words),
        clock_ms => weir_cluster_link:offset(Words)
    }.
