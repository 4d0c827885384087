%% @doc A request that leaves the node, in the process of the caller.
%%
%% ```
%%            choose a node that was not tried <---------------------------+
%%                 | no such: one that had no room, here, or an error      |
%%                 v                                                       |
%%   window full, connection busy or gone ---------------------------------+  at most ?TRIES
%%                 |                                                       |
%%                 v  monitor with an alias, send to an intake             |
%%   reply | exit  |  not begun; 'DOWN' with shutdown ---------------------+
%%                 |  'DOWN' with another reason: perhaps begun. If it is idempotent +
%%                 v
%%               caller
%% '''
%%
%% What a caller knows of loads is as old as his last word from there. So a call without a key that expects room is
%% refused by a node whose workers have none, and goes to the next, except when there is no next or it is the last try:
%% that one takes it as it is. Simulated, 99 of 100 then wait half as long from some thirty nodes on
%% (weir_bench_cluster_policy). Who knows that there is no room, and chose that node all the same, is not refused: the
%% others are as full.
%%
%% What is monitored is a process of this node, weir_cluster_monitor, which ends when the intakes do. A request that
%% was sent goes elsewhere only when it is known that nobody has begun it, or when beginning it twice does no harm.
%% The alias is that of the monitor and ends with it, so a reply that comes later reaches nobody. All tries together
%% have the time-out, and the receive is all that waits: what is sent is sent by `nosuspend' and `noconnect'.
%% @private
-module(weir_cluster_call).

-export([call/6, pick/4, claim/4, cast/4, multicall/4, send_request/4, wait/2, request/5, owners/3]).
-export([deadline/1, left/1, in_time/2]).

-export_type([where/0, sent/0]).

-include("weir_cluster.hrl").

-define(TRIES, 3).
%% So often two nodes are drawn, before it is taken that there are no two.
-define(DRAWS, 6).
%% So long a node may take to say whether one of its workers is free, while others may be.
-define(AT_ONCE_MS, 1000).

-type where() :: none | {key, term()}.

%% Nodes that have not begun it, and why, the last first. This node is one of them.
-type tried() :: [{node(), Why :: term()}].

-record(sent, {
    alias :: reference(),
    target :: #target{}
}).

-opaque sent() :: #sent{}.

%% @doc When a time-out that begins now is over, by this node's clock.
-spec deadline(timeout()) -> integer() | infinity.
deadline(infinity) -> infinity;
deadline(Timeout) -> now_ms() + Timeout.

%% @doc Milliseconds until a deadline, as many as a `receive' can be given.
-spec left(integer() | infinity) -> timeout().
left(infinity) -> infinity;
left(Deadline) -> min(?MAX_MS, max(0, Deadline - now_ms())).

%% @doc Has it done elsewhere, since this node has not, or, when only room is missing here, perhaps here all the same.
-spec call(#conf{}, where(), Request :: term(), Deadline :: integer() | infinity, Idempotent :: boolean(), tried()) ->
    {ok, term()} | {exit, term()} | {error, weir_cluster:call_error()}.
call(Conf, Where, Request, Deadline, Idempotent, Tried) ->
    case choice(Conf, Where, Tried) of
        {Target, last} ->
            call_there(call, Target, Conf, Where, Request, Deadline, Idempotent, Tried);
        {Target, more} ->
            call_there(call_within, Target, Conf, Where, Request, Deadline, Idempotent, Tried);
        here ->
            #conf{name = Name} = Conf,
            case {Where, left(Deadline)} of
                %% A worker that is called with no time left begins it all the same.
                {_, 0} -> {exit, timeout};
                {none, Left} -> weir_pool:call(Name, Request, Left);
                {{key, Key}, Left} ->
                    case weir_pool:call_key(Name, Key, Request, Left) of
                        {ok, _} = Answer -> Answer;
                        {error, Why} -> call(Conf, Where, Request, Deadline, Idempotent, [{node(), Why} | Tried])
                    end
            end;
        nowhere ->
            case {without_room(Tried, Conf), [Why || {_, {perhaps_begun, Why}} <- Tried]} of
                {{Target, Others}, _} ->
                    call_there(call, Target, Conf, Where, Request, Deadline, Idempotent, Others);
                {none, [Why | _]} ->
                    {exit, Why};
                {none, []} ->
                    nowhere(Tried, Conf)
            end
    end.

call_there(What, #target{node = Node} = Target, Conf, Where, Request, Deadline, Idempotent, Tried) ->
    ok = count(Tried, Conf),
    case request(What, Target, {Where, Request}, Deadline, Conf) of
        {not_begun, Why} ->
            call(Conf, Where, Request, Deadline, Idempotent, [{Node, Why} | Tried]);
        {perhaps_begun, Why} when Idempotent ->
            call(Conf, Where, Request, Deadline, Idempotent, [{Node, {perhaps_begun, Why}} | Tried]);
        {perhaps_begun, Why} ->
            {exit, Why};
        Result ->
            Result
    end.

%% One that has only had no room, the last of them, and the others that were tried.
without_room(Tried, #conf{name = Name} = Conf) ->
    case lists:keytake(no_room, 2, Tried) of
        {value, {Node, no_room}, Others} ->
            case lists:keyfind(Node, #target.node, weir_cluster_view:targets(Name)) of
                #target{} = Target -> {Target, Others};
                false -> without_room(Others, Conf)
            end;
        false ->
            none
    end.

count([{Node, busy}], Conf) when Node =:= node() -> weir_cluster_here:count(spilled, Conf);
count([{Node, _}], _Conf) when Node =:= node() -> ok;
count([], _Conf) -> ok;
count([_ | _], Conf) -> weir_cluster_here:count(retried, Conf).

nowhere(Tried, #conf{name = Name} = Conf) ->
    Silent = silent(Tried, Name),
    case Silent ++ [Node || {Node, Why} <- Tried, not lists:member(Why, [no_worker, no_pool, leaving, gone])] of
        [] ->
            {error, no_worker};
        [_ | _] ->
            ok = weir_cluster_here:count(overloads, Conf),
            {error, {overload, #{pool => Name, tried => lists:reverse(Tried, Silent)}}}
    end.

%% Those who do not answer: whether they have a worker is not known.
silent(Tried, Name) ->
    Silent = [
        {Node, out}
     || #target{node = Node, words = Words} <- weir_cluster_view:targets(Name),
        weir_cluster_link:share(Words) =:= 0, not lists:keymember(Node, 1, Tried)
    ],
    lists:sublist(lists:sort(Silent), ?TRIES).

%% @doc Casts elsewhere, since this node has not.
-spec cast(#conf{}, where(), Message :: term(), tried()) -> ok | {error, weir_cluster:call_error()}.
cast(#conf{name = Name} = Conf, Where, Message, Tried) ->
    case choose(Conf, Where, Tried) of
        #target{node = Node} = Target ->
            ok = count(Tried, Conf),
            case send_cast(Target, {Where, Message}, Conf) of
                ok -> ok;
                {not_begun, Why} -> cast(Conf, Where, Message, [{Node, Why} | Tried])
            end;
        here ->
            case Where of
                none ->
                    weir_pool:cast(Name, Message);
                {key, Key} ->
                    case weir_pool:cast_key(Name, Key, Message) of
                        ok -> ok;
                        {error, Why} -> cast(Conf, Where, Message, [{node(), Why} | Tried])
                    end
            end;
        nowhere ->
            nowhere(Tried, Conf)
    end.

send_cast(#target{words = Words} = Target, Message, Conf) ->
    case reserved(Target, Conf) of
        {ok, Intake, Ask} -> sent(Intake, {weir_cluster, cast, Ask, infinity, Message}, Words);
        Not -> Not
    end.

%% @doc Picks a worker of another node, since this one has none.
-spec pick(#conf{}, where(), Deadline :: integer() | infinity, tried()) ->
    {ok, pid()} | {error, weir_cluster:call_error() | timeout}.
pick(Conf, Where, Deadline, Tried) ->
    case choose(Conf, Where, Tried) of
        #target{node = Node} = Target ->
            ok = count(Tried, Conf),
            case request(pick, Target, {Where, none}, Deadline, Conf) of
                {ok, Worker} -> {ok, Worker};
                {exit, timeout} -> {error, timeout};
                {exit, Why} -> exit({Why, {weir_cluster, pick, [Conf#conf.name]}});
                %% Nothing is done twice by picking again.
                {_, Why} -> pick(Conf, Where, Deadline, [{Node, Why} | Tried])
            end;
        %% The key is of this node by now. Without one, this node has none.
        here when Where =/= none ->
            {key, Key} = Where,
            case weir_pool:pick(Conf#conf.name, Key) of
                {ok, Worker} -> {ok, Worker};
                {error, Why} -> pick(Conf, Where, Deadline, [{node(), Why} | Tried])
            end;
        _ ->
            nowhere(Tried, Conf)
    end.

%% @doc Claims a worker of another node, since none is free here: first of nodes that have a free one. Then it waits,
%% here if this node has workers.
-spec claim(#conf{}, fun((pid()) -> Result), Deadline :: integer() | infinity, tried()) ->
    {ok, Result} | {error, weir_cluster:claim_error()}.
claim(#conf{name = Name} = Conf, Fun, Deadline, [{_, Why}] = Here) ->
    case claim(Conf, Fun, Deadline, at_once, Here) of
        {error, {overload, _}} when Why =:= busy -> claim_here(Name, Fun, Deadline);
        {error, {overload, _}} -> claim(Conf, Fun, Deadline, wait, Here);
        Result -> Result
    end.

claim(#conf{name = Name} = Conf, Fun, Deadline, Wait, Tried) ->
    case choose(Conf, none, Tried) of
        #target{node = Node} = Target ->
            ok = count(Tried, Conf),
            Until = case Wait of at_once -> min(Deadline, deadline(?AT_ONCE_MS)); wait -> Deadline end,
            case weir_cluster_claim:claim(Target, Fun, Until, Wait, Conf) of
                {ok, Result} -> {ok, Result};
                timeout when Until =:= Deadline -> {error, timeout};
                {_, timeout} when Until =:= Deadline -> {error, timeout};
                %% A worker that was claimed for nobody is given back.
                timeout -> claim(Conf, Fun, Deadline, Wait, [{Node, timeout} | Tried]);
                {_, Why} -> claim(Conf, Fun, Deadline, Wait, [{Node, Why} | Tried])
            end;
        here ->
            claim_here(Name, Fun, Deadline);
        nowhere ->
            nowhere(Tried, Conf)
    end.

claim_here(Name, Fun, Deadline) -> in_time(Deadline, fun(Left) -> weir_pool:claim(Name, Fun, Left) end).

%% @doc What it gets with the time that is left. Whose time is over has waited: he is not told what one hears who does
%% not want to wait.
-spec in_time(integer() | infinity, fun((timeout()) -> Result)) -> Result | {error, timeout}.
in_time(Deadline, Get) ->
    case left(Deadline) of
        0 -> {error, timeout};
        Left -> Get(Left)
    end.

%% @doc Calls a worker of each of these nodes, at the same time.
-spec multicall([#target{}], Request :: term(), Deadline :: integer() | infinity, #conf{}) ->
    [{node(), {ok, term()} | {error, term()}}].
multicall(Targets, Request, Deadline, Conf) ->
    %% One that is out, or was not heard of yet, is not asked: what its clock shows is not known.
    Send = fun(Target) ->
        case let_in(Target) of
            [_] -> send(call, Target, {none, Request}, Deadline, Conf);
            [] -> {not_begun, out}
        end
    end,
    Sent = [{Node, Send(Target)} || #target{node = Node} = Target <- Targets],
    [{Node, answer(Result, Deadline)} || {Node, Result} <- Sent].

answer({not_begun, Why}, _Deadline) -> {error, Why};
answer(#sent{} = Sent, Deadline) ->
    case wait(Sent, left(Deadline)) of
        {ok, Reply} -> {ok, Reply};
        timeout -> {error, timeout};
        {_, Why} -> {error, Why}
    end.

%% @doc Sends a request elsewhere, since this node has not begun it.
-spec send_request(#conf{}, Request :: term(), Deadline :: integer() | infinity, tried()) ->
    sent() | {error, weir_cluster:call_error()}.
send_request(Conf, Request, Deadline, Tried) ->
    case choose(Conf, none, Tried) of
        #target{node = Node} = Target ->
            ok = count(Tried, Conf),
            case send(call, Target, {none, Request}, Deadline, Conf) of
                #sent{} = Sent -> Sent;
                {not_begun, Why} -> send_request(Conf, Request, Deadline, [{Node, Why} | Tried])
            end;
        _ ->
            nowhere(Tried, Conf)
    end.

%% ---------------------------------------------------------------- whom

choose(Conf, Where, Tried) ->
    case choice(Conf, Where, Tried) of
        {Target, _} -> Target;
        Else -> Else
    end.

%% `more': it is to be refused there if there is no room.
choice(_Conf, _Where, Tried) when length(Tried) > ?TRIES ->
    nowhere;
choice(Conf, {key, _} = Where, Tried) ->
    case owner(Conf, Where, Tried) of
        #target{} = Target -> {Target, last};
        Else -> Else
    end;
choice(#conf{policy = Policy} = Conf, none, Tried) ->
    case candidates(Conf, Tried) of
        [] ->
            room_here(Tried);
        Targets ->
            Now = now_ms(),
            Candidates = [
                #{node => Node, zone => Zone, weight => Weight, load => weir_cluster_link:load(Now, Weight, Words)}
             || #target{node = Node, zone = Zone, weight = Weight, words = Words} <- Targets
            ],
            case Policy:choose(load_here(Conf, Tried), Candidates) of
                here ->
                    room_here(Tried);
                Node ->
                    IsLast = is_last(Tried, Conf) orelse are_full(Candidates, Conf),
                    {chosen(Node, Targets, Policy), case IsLast of true -> last; false -> more end}
            end
    end.

chosen(Node, Targets, Policy) ->
    case lists:keyfind(Node, #target.node, Targets) of
        #target{} = Target -> Target;
        false -> error({bad_choice, Policy, Node})
    end.

is_last(Tried, #conf{name = Name}) ->
    Tries = length(lists:keydelete(node(), 1, Tried)) + 1,
    Tries =:= ?TRIES orelse weir_cluster_view:size(Name) =< Tries.

%% Of one there is nothing to compare it with: it may be the only one that was drawn.
are_full([_], _Conf) -> false;
are_full(Candidates, #conf{room = Room}) ->
    lists:all(fun(#{load := Load}) -> is_number(Load) andalso Load >= Room end, Candidates).

%% Of those who have a key, the first who was not tried.
owner(#conf{name = Name} = Conf, {key, Key}, []) ->
    Bucket = weir_cluster_keys:bucket(Key),
    case weir_cluster_view:number_of_key(Bucket, Conf) of
        here -> here;
        nobody -> next_owner(Conf, Bucket, []);
        Number ->
            case let_in(weir_cluster_view:target(Name, Number)) of
                [Target] -> Target;
                [] -> next_owner(Conf, Bucket, [])
            end
    end;
owner(Conf, {key, Key}, Tried) ->
    next_owner(Conf, weir_cluster_keys:bucket(Key), Tried).

%% This node has workers, but they are busy.
room_here(Tried) ->
    case lists:keyfind(node(), 1, Tried) of
        {_, busy} -> here;
        _ -> nowhere
    end.

%% The pool has just said that its workers have `room' calls each.
load_here(#conf{room = Room} = Conf, Tried) ->
    case lists:keyfind(node(), 1, Tried) of
        {_, busy} -> max(Room, weir_cluster_here:load(Conf) / 1000);
        _ -> none
    end.

%% The first in line who was not tried and is let in.
next_owner(#conf{name = Name} = Conf, Bucket, Tried) ->
    Targets = weir_cluster_view:targets(Name),
    Left = [Node || Node <- owners(Bucket, ?TRIES, Targets, Conf), not lists:keymember(Node, 1, Tried)],
    Found = fun
        (Node) when Node =:= node() -> [here];
        (Node) -> let_in(lists:keyfind(Node, #target.node, Targets))
    end,
    case lists:flatmap(Found, Left) of
        [Owner | _] -> Owner;
        [] when Targets =:= [] -> alone(Tried, Conf);
        [] -> nowhere
    end.

%% Who has left, and is alone now, has keys no more, but workers still.
alone(Tried, #conf{name = Name} = Conf) ->
    IsLeft = weir_cluster_here:has_left(Conf) andalso not lists:keymember(node(), 1, Tried),
    case IsLeft andalso weir_pool:info(Name) of
        {ok, #{live := Live}} when Live > 0 -> here;
        _ -> nowhere
    end.

%% A node, unless it is left out or gone.
let_in(#target{words = Words} = Target) -> [Target || weir_cluster_link:share(Words) > 0];
let_in(_Gone) -> [].

%% @doc The first so many nodes in line for a bucket.
-spec owners(weir_cluster_keys:bucket(), Count :: pos_integer(), #conf{}) -> [node()].
owners(Bucket, Count, #conf{name = Name} = Conf) ->
    owners(Bucket, Count, weir_cluster_view:targets(Name), Conf).

owners(Bucket, Count, Targets, Conf) ->
    Weights = [{Node, Weight} || #target{node = Node, weight = Weight} <- Targets],
    weir_cluster_keys:owners(Bucket, Count, weir_cluster_here:weight(Conf) ++ Weights).

%% Two that are let in and were not tried, or one: of the same zone if there are such.
candidates(Conf, Tried) ->
    case drawn(near, Conf, Tried, ?DRAWS, []) of
        [] ->
            case drawn(all, Conf, Tried, ?DRAWS, []) of
                [] -> left_over(Conf, Tried);
                Drawn -> Drawn
            end;
        Near ->
            Near
    end.

%% Who was not drawn: light ones beside heavy ones, or those with a small share.
left_over(#conf{name = Name}, Tried) ->
    Left = [
        Target
     || #target{node = Node} = Each <- weir_cluster_view:targets(Name), not lists:keymember(Node, 1, Tried),
        Target <- let_in(Each)
    ],
    case Left of
        [] -> [];
        _ -> [lists:nth(erlang:phash2(erlang:unique_integer(), length(Left)) + 1, Left)]
    end.

drawn(_Which, _Conf, _Tried, 0, Drawn) ->
    Drawn;
drawn(_Which, _Conf, _Tried, _Draws, [_, _] = Drawn) ->
    Drawn;
drawn(Which, #conf{name = Name} = Conf, Tried, Draws, Drawn) ->
    %% No state of the caller's: a generator of `rand' would be one.
    Random = erlang:phash2({erlang:unique_integer(), Draws}, 1 bsl 31),
    case weir_cluster_view:draw(Name, Which, Random) of
        #target{node = Node, words = Words} = Target ->
            Fits = not lists:keymember(Node, 1, Tried) andalso not lists:keymember(Node, #target.node, Drawn) andalso
                weir_cluster_link:is_let_in(Random bsr 16, Words),
            drawn(Which, Conf, Tried, Draws - 1, [Target || Fits] ++ Drawn);
        none ->
            Drawn
    end.

%% ---------------------------------------------------------------- to one of them

%% @doc Asks that node, and waits for its answer, for as long as it may take or longer.
-spec request(What, #target{}, {where(), term()}, Deadline | {Deadline, Until :: Deadline}, #conf{}) ->
    {ok, term()} | {exit, term()} | {not_begun, term()} | {perhaps_begun, term()} when
    What :: call | call_within | pick | claim, Deadline :: integer() | infinity.
request(What, #target{monitor = Monitor} = Target, Request, {Deadline, Until}, Conf) ->
    case reserved(Target, Conf) of
        {ok, Intake, Ask} ->
            %% Made here and not in a record, so that wait/3 looks at no message that came before.
            Alias = erlang:monitor(process, Monitor, [{alias, reply_demonitor}]),
            case asked(Alias, What, Ask, Request, Deadline, Intake, Target) of
                ok ->
                    case wait(Alias, Target, left(Until)) of
                        timeout -> {exit, timeout};
                        Result -> Result
                    end;
                Not ->
                    Not
            end;
        Not ->
            Not
    end;
request(What, Target, Request, Deadline, Conf) ->
    request(What, Target, Request, {Deadline, Deadline}, Conf).

%% Who has sent a request must wait for the answer, or give it up.
send(What, #target{monitor = Monitor} = Target, Request, Deadline, Conf) ->
    case reserved(Target, Conf) of
        {ok, Intake, Ask} ->
            Alias = erlang:monitor(process, Monitor, [{alias, reply_demonitor}]),
            case asked(Alias, What, Ask, Request, Deadline, Intake, Target) of
                ok -> #sent{alias = Alias, target = Target};
                Not -> Not
            end;
        Not ->
            Not
    end.

asked(Alias, What, Ask, {Where, Request}, Deadline, Intake, #target{words = Words}) ->
    case sent(Intake, {weir_cluster, What, Ask, there(Deadline, Words), {Alias, Where, Request}}, Words) of
        ok ->
            ok;
        Not ->
            true = demonitor(Alias, [flush]),
            Not
    end.

%% The intake of this scheduler, if its window has room.
reserved(#target{intakes = Intakes, monitor = Monitor, words = Words} = Target, #conf{window = Window}) ->
    %% Not the same for the first schedulers of all nodes.
    Size = tuple_size(Intakes),
    Index = (erlang:system_info(scheduler_id) + erlang:phash2(node(), Size)) rem Size + 1,
    %% The monitor, a process of this node that does nothing but wait, says in a word that it ends; one that was killed
    %% does not.
    case is_process_alive(Monitor) andalso weir_cluster_link:reserve(Index, Window, Words) of
        {ok, Sent} ->
            {ok, element(Index, Intakes), ask(Sent, Window, Target)};
        full ->
            ok = weir_cluster_link:count(full, Words),
            {not_begun, full};
        _ ->
            {not_begun, gone}
    end.

sent(Intake, Message, Words) ->
    case erlang:send(Intake, Message, [nosuspend, noconnect]) of
        ok ->
            weir_cluster_link:requested(Words);
        _ ->
            ok = weir_cluster_link:count(busy, Words),
            {not_begun, busy_connection}
    end.

ask(Sent, Window, #target{agent = Agent}) when Sent rem (Window div 4) =:= 0 -> {Agent, Sent};
ask(_Sent, _Window, _Target) -> none.

there(infinity, _Words) -> infinity;
there(Deadline, Words) -> Deadline + weir_cluster_link:offset(Words).

%% @doc Waits for the answer. After `timeout' none comes any more.
-spec wait(sent(), timeout()) ->
    {ok, Reply :: term()} | {exit, term()} | {not_begun, term()} | {perhaps_begun, term()} | timeout.
wait(#sent{alias = Alias, target = Target}, Timeout) -> wait(Alias, Target, Timeout).

wait(Alias, Target, Timeout) ->
    receive
        {Alias, reply, _, _} = Answer -> answered(Answer, Target);
        {Alias, exit, _} = Answer -> answered(Answer, Target);
        {Alias, not_begun, _, _} = Answer -> answered(Answer, Target);
        %% Its alias is no more. An answer may have come before.
        {'DOWN', Alias, process, _, Reason} -> last_answer(Alias, Target, {down, Reason})
    after Timeout ->
        true = demonitor(Alias, [flush]),
        last_answer(Alias, Target, {timeout, Timeout})
    end.

last_answer(Alias, Target, Else) ->
    receive
        {Alias, reply, _, _} = Answer -> answered(Answer, Target);
        {Alias, exit, _} = Answer -> answered(Answer, Target);
        {Alias, not_begun, _, _} = Answer -> answered(Answer, Target)
    after 0 ->
        case Else of
            {down, Reason} ->
                ended(Reason, Target);
            %% It was given no time, which says nothing of the node.
            {timeout, 0} ->
                timeout;
            {timeout, _} ->
                ok = timed_out(Target),
                timeout
        end
    end.

%% Whoever leaves a node out has it asked at once whether it is there.
timed_out(#target{node = Node, words = Words, agent = Agent}) ->
    case weir_cluster_link:timed_out(Words) of
        left_out -> Agent ! {left_out, Node}, ok;
        ok -> ok
    end.

answered({_Alias, reply, Reply, Load}, #target{words = Words}) ->
    ok = weir_cluster_link:replied(Load, Words),
    {ok, Reply};
answered({_Alias, exit, Reason}, #target{words = Words}) ->
    ok = weir_cluster_link:answered(Words),
    ok = weir_cluster_link:count(failed, Words),
    {exit, Reason};
answered({_Alias, not_begun, Why, Load}, #target{words = Words}) ->
    ok = weir_cluster_link:count(refused, Words),
    ok = weir_cluster_link:replied(Load, Words),
    {not_begun, Why}.

%% The monitor may have ended before it heard of being monitored.
ended(noproc, #target{words = Words} = Target) -> ended(weir_cluster_link:how_ended(Words), Target);
ended(shutdown, #target{words = Words}) ->
    ok = weir_cluster_link:count(refused, Words),
    {not_begun, leaving};
ended(Reason, #target{node = Node, words = Words}) ->
    ok = weir_cluster_link:count(failed, Words),
    {perhaps_begun, case Reason of noconnection -> {nodedown, Node}; _ -> Reason end}.

now_ms() -> erlang:monotonic_time(millisecond).
