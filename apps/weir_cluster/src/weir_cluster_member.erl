%% @doc Speaks for a pool of this node to the other nodes, and writes what callers of this node read of them.
%%
%% pg carries one process for each node and pool: this one. Members tell each other what callers need:
%%
%% ```
%%   here                                  there
%%     |------- hello, intakes, weight ----->|      to each that is in pg's group, to all when the weight changes,
%%     |<------ welcome, the same -----------|      and again each half second while there is no answer
%%     |------- leaving -------------------->|      and again each half second
%%
%%   here                                  intake there
%%     |------- ping, numbers, our time ---->|      to one after the other, and to those that have not acknowledged all
%%     |<------ pong, number, times, load ---|
%%     |<------ handled, number -------------|      to a request that asked for it
%% '''
%%
%% A node is pinged each half second when it has been sent anything since the last ping, when it has not answered that
%% one, or when it does not get its whole share. Of the others twenty are, in turn: so with twenty nodes all are, and
%% with a hundred one that is not used is every two and a half seconds. A node therefore takes part in 160 messages a
%% second for these, however many nodes there are.
%%
%% == Time ==
%%
%% Deadlines travel in the time of the node that they go to: half way between a ping and its pong our clock showed so
%% much, and theirs so much. The pong that came quickest is the best; its error is half of the time that it took. A
%% node that was frozen therefore knows, when it runs again, which of the requests in its mailbox are too late.
%%
%% == Who is in the view ==
%%
%% A node that has said hello, with a weight above 0, until its member is gone, which `nodedown' is too
%% (weir_cluster_monitor), or leaves. weir_cluster_link says which of them are let in. pg is only where members find
%% each other: each reads the group every 100 ms and greets whom it does not know, so a pg that is started anew, and
%% has forgotten all, is noticed by nobody. (It is not asked to tell of changes: before OTP 26.2 it fails when a
%% process that it tells of changes, and that is in a group itself, ends; https://github.com/erlang/otp/issues/7625.)
%%
%% While there is no pg here, the member greets all connected nodes each half second, where weir_cluster_scope hears it.
%% So a node of OTP 25, whose pg fails when it meets one of OTP 28 or later, is a member like others.
%%
%% The member waits for no other node: it sends with `nosuspend', and what was not sent is sent again at the next half
%% second.
%%
%% If this node has no room for a process, the member does without. A node whose monitor cannot be started stays
%% unknown and is greeted again. A join or leave of a group of pg follows at the next tick.
%% @private
-module(weir_cluster_member).

-behaviour(gen_server).

-export([start_link/1, leave/3]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, handle_continue/2, terminate/2]).

-include("weir_cluster.hrl").

-define(SCOPE, weir_cluster).
-define(TICK_MS, 100).
%% Ticks to a ping.
-define(PING, 5).
-define(PING_MS, (?PING * ?TICK_MS)).
%% So many of those that are not used are pinged at a time.
-define(PINGED, 20).
%% So many pings without a pong: nothing is sent there.
-define(SILENT, 4).
-define(FIRST_SHARE, 100).
-define(ALL, 1000).
-define(RAISE_MS, 500).
%% So long a caller may take to send a request that it has counted: as long as one waits for its turn on a busy node.
-define(SENDING_MS, 5000).

-type info() :: #{weight := non_neg_integer(), zone := term(), intakes := [pid()]}.

-record(other, {
    number :: weir_cluster_view:place(),
    target :: #target{},
    %% Until its first pong.
    is_new = true :: boolean(),
    %% What was asked before says nothing.
    since :: integer(),
    %% Pings since the last pong.
    unanswered = 0 :: non_neg_integer(),
    %% It has not answered for long, and has not got its whole share since.
    was_silent = false :: boolean(),
    %% When the share was raised.
    raised :: integer(),
    %% The quickest pong lately, milliseconds.
    quickest = infinity :: integer() | infinity,
    %% How many requests had been sent when the last ping was.
    pinged = 0 :: non_neg_integer(),
    %% Whom to ping next.
    intake = 1 :: pos_integer()
}).

-record(state, {
    conf :: #conf{},
    %% Members of other nodes, as pg knows them.
    members = [] :: [pid()],
    clients = [] :: [pid()],
    %% Members that have no pg, and when they greeted this one last, in ticks.
    without_pg = #{} :: #{pid() => non_neg_integer()},
    %% Who waits for pg.
    joiner = none :: none | pid(),
    others = #{} :: #{node() => #other{}},
    keys = weir_cluster_keys:new() :: weir_cluster_keys:keys(),
    weight = 0 :: non_neg_integer(),
    %% Members that the connection was too busy to tell the weight.
    untold = [] :: [pid()],
    intakes :: [pid()],
    %% Words of nodes that are gone, to which callers may be sending still, and until when they are waited for.
    unsent = [] :: [{node(), Intakes :: pos_integer(), atomics:atomics_ref(), integer()}],
    %% Who leaves on such a node, and waits until nothing more is sent there.
    leaving = [] :: [{node(), reference()}],
    tick = 0 :: non_neg_integer(),
    is_stale = false :: boolean()
}).

%% @doc Starts it.
-spec start_link(#conf{}) -> gen_server:start_ret().
start_link(Conf) -> weir_cluster_start:start(fun() -> gen_server:start_link(?MODULE, Conf, []) end).

%% @doc Has the others told that this node has left, for which it waits for nobody, and says which nodes they are: each
%% sends `{Alias, told, Node}' when nothing is sent from there any more. A member that has just been killed tells them
%% when it is started again, and one that has no turn in time as soon as it has.
-spec leave(weir_pool:name(), Alias :: reference(), timeout()) -> {ok, [node()]} | {error, no_answer | no_pool}.
leave(Name, Alias, Timeout) ->
    case weir_cluster_view:member(Name) of
        {ok, Member} ->
            try
                gen_server:call(Member, {leave, Alias}, Timeout)
            catch
                exit:_ -> {error, no_answer}
            end;
        error ->
            {error, no_pool}
    end.

%% @private
-spec init(#conf{}) -> {ok, #state{}, {continue, join}}.
init(#conf{name = Name} = Conf) ->
    _ = process_flag(trap_exit, true),
    ok = weir_cluster_view:put_process(Name, member),
    New = #state{conf = Conf, intakes = weir_cluster_view:intakes(Name)},
    State = write(weighed(lists:foldl(fun adopted/2, New, weir_cluster_view:numbered(Name)))),
    ok = weir_cluster_view:open(Conf),
    _ = erlang:send_after(?TICK_MS, self(), tick),
    {ok, State, {continue, join}}.

%% @private
-spec handle_continue(join, #state{}) -> {noreply, #state{}}.
handle_continue(join, State) ->
    #state{members = Members} = Found = find(State),
    %% Those whom the former member knew may have changed since.
    ok = say_hello(lists:usort(Members ++ known_members(Found)), Found),
    {noreply, Found}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({leave, Alias}, _From, State) ->
    {reply, {ok, lists:usort([node(Member) || Member <- told(State)])}, left(Alias, State)};
handle_call(Request, _From, State) ->
    {reply, {error, {unknown_call, Request}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Message, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({handled, Node, Intake, Sent}, #state{others = Others} = State) ->
    case Others of
        #{Node := #other{target = #target{words = Words}}} -> ok = weir_cluster_link:handled(Intake, Sent, Words);
        #{} -> ok
    end,
    {noreply, State};
handle_info({pong, Node, Intake, Sent, Time, There, Load}, #state{others = Others} = State) ->
    case Others of
        #{Node := Other} ->
            ok = weir_cluster_link:handled(Intake, Sent, (Other#other.target)#target.words),
            {noreply, State#state{others = Others#{Node := pong(Time, There, Load, turns(Others), Other)}}};
        #{} ->
            {noreply, State}
    end;
handle_info(tick, State) ->
    _ = erlang:send_after(?TICK_MS, self(), tick),
    {noreply, tick(State)};
handle_info({hello, Member, Info}, State) ->
    _ = send(Member, {welcome, self(), info(State)}),
    {noreply, known(Member, Info, State)};
handle_info({hello_without_pg, Member, Info}, #state{tick = Tick, without_pg = Members} = State) ->
    handle_info({hello, Member, Info}, State#state{without_pg = Members#{Member => Tick}});
handle_info({welcome, Member, Info}, State) ->
    {noreply, known(Member, Info, State)};
handle_info({leaving, Member}, State) ->
    {noreply, gone(Member, State)};
handle_info({leaving, Member, Alias}, #state{leaving = Leaving} = State) ->
    {noreply, all_sent(gone(Member, State#state{leaving = lists:usort([{node(Member), Alias} | Leaving])}))};
handle_info({gone, Member}, State) ->
    {noreply, gone(Member, State)};
handle_info({left_out, Node}, #state{others = Others} = State) ->
    case Others of
        #{Node := Other} -> {noreply, State#state{others = Others#{Node := ping(Other)}}};
        #{} -> {noreply, State}
    end;
handle_info(refresh, State) ->
    {noreply, write(State)};
handle_info(leave_pg, State) ->
    {noreply, leave_pg(State)};
handle_info(_Message, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(Reason, #state{conf = #conf{name = Name} = Conf, intakes = Intakes} = State) ->
    %% The last child, and so the first that is shut down with its supervisor, or when one before it has failed.
    Before = [weir_cluster_view:cleaner(Name) | Intakes],
    ok = case Reason =:= shutdown andalso lists:all(fun is_process_alive/1, Before) of
        true -> weir_cluster_here:set_closing(Conf);
        false -> ok
    end,
    tell_all({leaving, self()}, State).

%% ---------------------------------------------------------------- who is there

info(#state{weight = Weight, conf = #conf{zone = Zone} = Conf, intakes = Intakes}) ->
    Served = case weir_cluster_here:has_left(Conf) of true -> 0; false -> Weight end,
    #{weight => Served, zone => Zone, intakes => Intakes}.

send(To, Message) -> erlang:send(To, Message, [nosuspend, noconnect]).

%% Those whom pg knows, and those who have said hello, of whom pg does not know or not yet.
tell_all(Message, State) ->
    _ = unsent(Message, told(State)),
    ok.

%% Sends a message to members. Returns the members whose connection was too busy for it. A member that is not connected
%% is greeted when it is connected again.
unsent(Message, Members) -> [Member || Member <- Members, send(Member, Message) =:= nosuspend].

told(#state{members = Members, clients = Clients, without_pg = WithoutPg} = State) ->
    lists:usort(known_members(State) ++ Members ++ Clients ++ maps:keys(WithoutPg)).

known_members(#state{others = Others}) -> [Member || #other{target = #target{member = Member}} <- maps:values(Others)].

%% Who serves the pool, and who is its client; this one is one of them. pg is a process that may wait for a
%% connection, so another process asks it, which does nothing else.
find(#state{conf = #conf{name = Name}, joiner = Joiner} = State) ->
    Me = self(),
    Others = fun(Group) -> [Pid || Pid <- pg:get_members(?SCOPE, Group), node(Pid) =/= node()] end,
    try
        Group = group(State),
        %% A joiner has nothing to clean up when it dies: asking takes no time.
        Joined = lists:member(Me, pg:get_local_members(?SCOPE, Group)) orelse
            is_pid(Joiner) andalso is_process_alive(Joiner),
        Next = case Joined of
            true -> Joiner;
            false -> spawned(fun() -> pg(join, Group, Me) end)
        end,
        State#state{joiner = Next, members = Others({serve, Name}), clients = Others({client, Name})}
    catch
        %% pg is being started again.
        error:badarg -> State
    end.

%% Without room for a process there is none, and the next tick tries again.
spawned(Fun) ->
    try
        spawn(Fun)
    catch
        error:system_limit -> none
    end.

%% A pool's name may be any term. Who has left is a client of the others from then on.
group(#state{conf = #conf{name = Name, serve = Serve} = Conf}) ->
    case Serve andalso not weir_cluster_here:has_left(Conf) of
        true -> {serve, Name};
        false -> {client, Name}
    end.

is_in(Group, Member) ->
    try
        lists:member(Member, pg:get_local_members(?SCOPE, Group))
    catch
        error:badarg -> false
    end.

pg(Function, Group, Member) ->
    try
        pg:Function(?SCOPE, Group, Member)
    catch
        exit:_ -> ok
    end.

%% Those who have not answered yet.
greet(#state{members = Members} = State) ->
    ok = say_hello(Members -- known_members(State), State),
    State.

%% Whoever there may be.
greet_without_pg(#state{conf = #conf{name = Name}, tick = Tick, without_pg = Before} = State) ->
    _ = case whereis(?SCOPE) of
        undefined ->
            Hello = {hello, Name, self(), info(State)},
            [send({weir_cluster_scope, Node}, Hello) || Node <- nodes()];
        _ ->
            ok
    end,
    %% Those who have pg again, or are gone.
    Still = maps:filter(fun(_Member, Last) -> Tick - Last =< 2 * ?PING end, Before),
    State#state{without_pg = Still}.

say_hello(Members, State) ->
    _ = unsent({hello, self(), info(State)}, Members),
    ok.

%% A node has told of itself, or of a change.
-spec known(pid(), info(), #state{}) -> #state{}.
known(Member, #{weight := Weight, intakes := Intakes}, State) when Weight =:= 0; Intakes =:= [] ->
    gone(Member, State);
known(Member, #{weight := Weight, zone := Zone, intakes := Intakes}, #state{others = Others} = State) ->
    Node = node(Member),
    Tuple = list_to_tuple(Intakes),
    case Others of
        #{Node := #other{target = #target{weight = Weight, zone = Zone, intakes = Tuple, member = Member}}} ->
            State;
        #{Node := #other{target = #target{intakes = Tuple, member = Member} = Target} = Other} ->
            Changed = Other#other{target = Target#target{weight = Weight, zone = Zone, same_zone = near(Zone, State)}},
            put_other(Node, Changed, State);
        #{Node := #other{target = #target{member = Former}}} ->
            known_anew(Member, Tuple, Weight, Zone, gone(Former, State));
        #{} ->
            known_anew(Member, Tuple, Weight, Zone, State)
    end.

known_anew(Member, Intakes, Weight, Zone, #state{others = Others} = State) ->
    Node = node(Member),
    Number = weir_cluster_view:free_number([Taken || #other{number = Taken} <- maps:values(Others)]),
    Words = weir_cluster_link:new(tuple_size(Intakes)),
    case weir_cluster_monitor:start(Member, tuple_to_list(Intakes), Words) of
        {ok, Monitor} ->
            Target = #target{
                node = Node,
                member = Member,
                intakes = Intakes,
                monitor = Monitor,
                words = Words,
                weight = Weight,
                zone = Zone,
                same_zone = near(Zone, State),
                agent = self()
            },
            Now = now_ms(),
            put_other(Node, ping(#other{number = Number, since = Now, raised = Now, target = Target}), State);
        no_room ->
            State
    end.

%% One that the former member knew: callers go on as if nothing had happened.
adopted({Number, #target{node = Node, member = Member, intakes = Intakes, words = Words} = Former}, State) ->
    IsNew = weir_cluster_link:round_trip(Words) =:= unknown,
    WasSilent = not IsNew andalso weir_cluster_link:share(Words) < ?ALL,
    Now = now_ms(),
    case weir_cluster_monitor:start(Member, tuple_to_list(Intakes), Words) of
        {ok, Monitor} ->
            Target = Former#target{monitor = Monitor, agent = self()},
            Other = #other{
                number = Number, since = Now, is_new = IsNew, was_silent = WasSilent, raised = Now, target = Target
            },
            put_other(Node, Other, State);
        no_room ->
            %% The node is greeted anew.
            #state{conf = #conf{name = Name}} = State,
            ok = weir_cluster_view:delete_target(Name, Number),
            ok = weir_cluster_link:set_gone(Words),
            State
    end.

near(Zone, #state{conf = #conf{zone = Mine}}) -> Zone =:= Mine.

put_other(Node, #other{number = Number, target = #target{weight = Weight} = Target} = Other, State) ->
    #state{conf = #conf{name = Name}, others = Others, keys = Keys} = State,
    ok = weir_cluster_view:put_target(Name, Number, Target),
    stale(State#state{others = Others#{Node => Other}, keys = weir_cluster_keys:join(Node, Weight, Keys)}).

gone(Member, #state{conf = #conf{name = Name}, others = Others, keys = Keys} = State) ->
    Node = node(Member),
    case Others of
        #{Node := #other{number = Number, target = #target{member = Member} = Target}} ->
            #target{monitor = Monitor, words = Words, intakes = Intakes} = Target,
            Monitor ! retire,
            Left = write(State#state{others = maps:remove(Node, Others), keys = weir_cluster_keys:leave(Node, Keys)}),
            ok = weir_cluster_view:delete_target(Name, Number),
            ok = weir_cluster_link:set_gone(Words),
            Unsent = {Node, tuple_size(Intakes), Words, now_ms() + ?SENDING_MS},
            all_sent(Left#state{unsent = [Unsent | Left#state.unsent]});
        #{} ->
            State
    end.

%% Tells who leaves when what callers were sending to him is sent. For one that was killed meanwhile nobody waits long.
all_sent(#state{unsent = Unsent, leaving = Leaving} = State) ->
    Now = now_ms(),
    Left = [Each || {_, Intakes, Words, Until} = Each <- Unsent, Now < Until,
        not weir_cluster_link:is_sent(Intakes, Words)],
    {Waiting, Told} = lists:partition(fun({Node, _}) -> lists:keymember(Node, 1, Left) end, Leaving),
    _ = [send(Alias, {Alias, told, node()}) || {_, Alias} <- Told],
    State#state{unsent = Left, leaving = Waiting}.

%% Several changes at a time are written at once.
stale(#state{is_stale = true} = State) -> State;
stale(State) ->
    self() ! refresh,
    State#state{is_stale = true}.

write(#state{conf = Conf, others = Others, keys = Keys} = State) ->
    Targets = [{Number, Target} || #other{number = Number, target = Target} <- maps:values(Others)],
    ok = weir_cluster_view:write(Conf, lists:sort(Targets), Keys),
    State#state{is_stale = false}.

%% ---------------------------------------------------------------- pings

%% How many half seconds it takes until each of the others was pinged.
turns(Others) -> (map_size(Others) + ?PINGED - 1) div ?PINGED.

pong(Time, _There, _Load, _Turns, #other{since = Since} = Other) when Time < Since ->
    Other;
pong(Time, There, Load, Turns, #other{target = #target{words = Words}, pinged = Pinged} = Other) ->
    #other{quickest = Quickest} = Other,
    Now = now_ms(),
    ok = weir_cluster_link:answered(Words),
    Until = Now + (Turns + 1) * ?PING_MS,
    ok = weir_cluster_link:set_load(Load, weir_cluster_link:requests(Words) - Pinged, Until, Words),
    Took = Now - Time,
    ok = weir_cluster_link:set_round_trip(Took, Words),
    Quick =
        case Took =< Quickest of
            true ->
                ok = weir_cluster_link:set_offset(There - (Time + Now) div 2, Words),
                Took;
            %% So that a path that has become longer is measured anew some time.
            false ->
                Quickest + 1
        end,
    let_in(Now, Took, Other#other{unanswered = 0, quickest = Quick}).

let_in(_Now, _Took, #other{is_new = true, target = #target{words = Words}} = Other) ->
    ok = weir_cluster_link:set_share(?ALL, Words),
    Other#other{is_new = false};
let_in(Now, Took, #other{target = #target{words = Words}, was_silent = WasSilent, raised = Raised} = Other) ->
    case weir_cluster_link:share(Words) of
        ?ALL ->
            Other#other{was_silent = false};
        _ when not WasSilent, Took < ?PING_MS ->
            ok = weir_cluster_link:set_share(?ALL, Words),
            Other;
        _ when Now - Raised < ?RAISE_MS ->
            Other#other{was_silent = true};
        Share ->
            ok = weir_cluster_link:set_share(min(?ALL, max(?FIRST_SHARE, 2 * Share)), Words),
            Other#other{was_silent = true, raised = Now}
    end.

is_due(Half, Turns, #other{number = Number, unanswered = Unanswered, pinged = Pinged, target = Target}) ->
    #target{intakes = Intakes, words = Words} = Target,
    Number rem Turns =:= Half rem Turns orelse Unanswered > 0 orelse weir_cluster_link:share(Words) < ?ALL orelse
        weir_cluster_link:requests(Words) > Pinged orelse
        lists:any(fun(I) -> weir_cluster_link:unhandled(I, Words) > 0 end, lists:seq(1, tuple_size(Intakes))).

ping(#other{target = #target{intakes = Intakes, words = Words}, unanswered = Unanswered, intake = Next} = Other) ->
    Now = now_ms(),
    Requests = weir_cluster_link:requests(Words),
    [
        send(element(I, Intakes), {ping, self(), weir_cluster_link:sent(I, Words), Requests, Now})
     || I <- lists:seq(1, tuple_size(Intakes)), I =:= Next orelse weir_cluster_link:unhandled(I, Words) > 0
    ],
    Other#other{
        unanswered = Unanswered + 1,
        intake = Next rem tuple_size(Intakes) + 1,
        pinged = Requests
    }.

%% A node that is silent gets nothing. Pings are counted and not the time, since after this node itself stood still it
%% has yet to read what others have answered.
heard(#other{unanswered = Unanswered, target = #target{words = Words}} = Other) when Unanswered >= ?SILENT ->
    ok = weir_cluster_link:set_share(0, Words),
    Other#other{was_silent = true};
heard(Other) ->
    Other.

tick(#state{tick = Tick, members = Before} = State) ->
    #state{members = Members} = Ticked = find(all_sent(State#state{tick = Tick + 1})),
    case Tick rem ?PING of
        0 ->
            greet_without_pg(greet(weighed(pinged(said_again(Ticked)))));
        _ when Members =/= Before ->
            greet(Ticked);
        _ ->
            _ = weight(Ticked),
            Ticked
    end.

pinged(#state{conf = #conf{name = Name}, others = Others, tick = Tick} = State) ->
    ok = weir_cluster_view:forget_received(Name, nodes(connected)),
    %% Whose monitor was killed is greeted anew. Monitors do nothing but wait: asking them takes no time.
    Lost = [Member || #other{target = #target{member = Member, monitor = Monitor}} <- maps:values(Others),
        not is_process_alive(Monitor)],
    #state{others = Present} = Left = lists:foldl(fun gone/2, State, Lost),
    Turns = turns(Present),
    Next = fun(_Node, Each) ->
        Other = heard(Each),
        case is_due(Tick div ?PING, Turns, Other) of
            true -> ping(Other);
            false -> Other
        end
    end,
    Left#state{others = maps:map(Next, Present)}.

%% Repeats what may not have been sent.
said_again(#state{conf = Conf, untold = Untold} = State) ->
    ok = case weir_cluster_here:has_left(Conf) of
        true -> tell_all({leaving, self()}, State);
        false -> ok
    end,
    tell_weight(Untold, State).

%% Tells members what this node weighs, and notes those that could not be told.
tell_weight(Members, State) -> State#state{untold = unsent({hello, self(), info(State)}, Members)}.

%% What this node weighs, which all others hear when it changes.
weighed(#state{conf = Conf, weight = Before, keys = Keys} = State) ->
    case weight(State) of
        Before ->
            State;
        Weight ->
            Changed = State#state{weight = Weight},
            ok = weir_cluster_here:set_weight(Weight, Conf),
            Told = tell_weight(told(Changed), Changed),
            stale(Told#state{keys = own(Weight, Keys)})
    end.

own(0, Keys) -> weir_cluster_keys:leave(node(), Keys);
own(Weight, Keys) -> weir_cluster_keys:join(node(), Weight, Keys).

%% And how much is under way in its pool, which is measured at the same time.
weight(#state{conf = #conf{serve = false}}) -> 0;
weight(#state{conf = #conf{name = Name} = Conf}) ->
    case weir_pool:info(Name) of
        {ok, #{calls := Calls, live := Live, size := Size}} ->
            ok = weir_cluster_here:measured(Calls, Live, Conf),
            case weir_cluster_here:has_left(Conf) of
                true -> 0;
                false -> weight(Live, Size, Conf)
            end;
        {error, no_pool} ->
            0
    end.

weight(0, _Size, _Conf) -> 0;
weight(_Live, Size, #conf{weight = size}) -> max(1, Size);
weight(_Live, _Size, #conf{weight = Weight}) -> Weight.

left(Alias, State) ->
    tell_all({leaving, self(), Alias}, State),
    weighed(leave_pg(State)).

%% Waits for the joiner before: two joiners might join the same group twice.
leave_pg(#state{joiner = Before} = State) when is_pid(Before) ->
    case is_process_alive(Before) of
        true -> leave_pg_later(State);
        false -> leave_pg(State#state{joiner = none})
    end;
leave_pg(#state{conf = #conf{name = Name}} = State) ->
    Me = self(),
    case spawned(fun() ->
        %% In this order: others, who read who serves before who is a client, miss it in neither.
        _ = is_in({client, Name}, Me) orelse pg(join, {client, Name}, Me),
        pg(leave, {serve, Name}, Me)
    end) of
        none -> leave_pg_later(State);
        Joiner -> State#state{joiner = Joiner}
    end.

leave_pg_later(State) ->
    _ = erlang:send_after(?TICK_MS, self(), leave_pg),
    State.

now_ms() -> erlang:monotonic_time(millisecond).
