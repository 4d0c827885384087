%% @doc Copies of items on more than one server, and gets that ask a second one when the first takes long.
%%
%% The owner of a key decides, and answers. What it has done is then done at the next owners on the ring, `replicas'
%% together, by requests whose replies nobody waits for: what was stored is set there, what was deleted, touched or made
%% stale likewise. Deleted there is what has become of the item as it was (`incr', `decr', `append', `prepend'), since
%% copies may differ; what a server has removed because it could not store the new; what it did not have when it was to
%% delete it; and what it may have stored or not (`add', `replace' with `no_reply'). A server that has answered in the
%% owner's place is left out.
%%
%% All that is about a key goes to a copy by the same connection, as long as that is up and not busy, so what one caller
%% does is done there in that order. Callers overtake each other after the owner's answer: a copy may be the one's where
%% the owner has the other's; and after a time-out or a loss of the connection it is as it was, whatever the owner has.
%%
%% ```
%%   hedged get      owner                                      second
%%   asked           at once                                    after the delay, if there is no answer
%%   a hit           its value                                  its value
%%   no item         not_found                                  is not believed: the owner's answer is waited for
%%   an error        the second's answer is waited for, if it was asked    the owner's answer is waited for
%% '''
%% With one copy a second connection of the same server is asked: that helps where one is behind a large value, or lost.
%% An answer that comes too late goes to an alias that is no more.
%% @private
-module(weir_memcached_replicas).

-export([follow/6, follow_many/4, get/5]).

-include("weir_memcached_config.hrl").

%% @doc Has an operation that was answered followed by the owners but for the first, and for the one that has answered.
%% `taken': the answer is not waited for.
-spec follow(weir_memcached_config:config(), Key :: binary(), weir_memcached_request:operation(),
    Answer :: taken | term(), By :: none | weir_memcached_config:server(), Timeout :: timeout()) ->
    ok.
follow(Config, Key, Operation, Answer, By, Timeout) ->
    case following(Operation, Answer) of
        none ->
            ok;
        Following ->
            Slot = slot(Key, Config),
            lists:foreach(
                fun(Server) -> tell(Server, Slot, Following, 1, Timeout, Config) end, others(Key, By, Config)
            )
    end.

others(Key, By, #config{replicas = Replicas} = Config) ->
    tl(weir_memcached_route:owners(Key, Replicas, Config)) -- [By].

slot(Key, #config{connections = Connections}) -> erlang:phash2(Key, Connections) + 1.

tell(#server{counters = Counters} = Server, Slot, Operation, N, Timeout, Config) ->
    case weir_memcached_ask:tell(Server, Slot, Operation, Timeout, Config) of
        ok -> ok;
        {error, _} -> weir_memcached_counters:add(Counters, unacknowledged, N)
    end.

following({Op, Key, _, _, _, _}, taken) when Op =:= add; Op =:= replace -> {delete, Key};
following({set, Key, _, _, _, _}, {error, {server_error, _}}) -> {delete, Key};
following({put, Key, _, _, _, _, _}, {error, {server_error, _}}) -> {delete, Key};
following({delete, _} = Operation, {error, not_found}) -> Operation;
following({invalidate, Key, _}, {error, not_found}) -> {delete, Key};
following(_, {error, _}) -> none;
following(Operation, _) -> following(Operation).

following({set, _, _, _, _, _} = Operation) -> Operation;
following({put, Key, Data, Flags, Ttl, _, Size}) -> {set, Key, Data, Flags, Ttl, Size};
following({delete, _} = Operation) -> Operation;
following({touch, _, _} = Operation) -> Operation;
following({invalidate, _, _} = Operation) -> Operation;
following({gat, Key, Ttl}) -> {touch, Key, Ttl};
following({Operation, Key, Data, Flags, Ttl, Size}) when Operation =:= add; Operation =:= replace ->
    {set, Key, Data, Flags, Ttl, Size};
following({cas, Key, Data, Flags, Ttl, _, Size}) -> {set, Key, Data, Flags, Ttl, Size};
following({Operation, Key, _}) when
    Operation =:= append; Operation =:= prepend; Operation =:= incr; Operation =:= decr
->
    {delete, Key};
following(_) -> none.

%% @doc Has many items that were stored followed, each as by {@link follow/6}. `Make' makes the operation of those of
%% one connection.
-spec follow_many(weir_memcached_config:config(), [{Key :: binary(), Each, By :: weir_memcached_config:server()}], Make,
    Timeout :: timeout()) -> ok when
    Make :: fun(([Each]) -> weir_memcached_request:operation()), Each :: term().
follow_many(Config, Keys, Make, Timeout) ->
    Following = [
        {Server, slot(Key, Config), Each}
     || {Key, Each, By} <- Keys, Server <- others(Key, By, Config)
    ],
    ByConnection = lists:foldr(
        fun({#server{name = Name} = Server, Slot, Each}, Acc) ->
            {_, Some} = maps:get({Name, Slot}, Acc, {Server, []}),
            Acc#{{Name, Slot} => {Server, [Each | Some]}}
        end,
        #{},
        Following
    ),
    maps:foreach(
        fun({_, Slot}, {Server, Some}) -> tell(Server, Slot, Make(Some), length(Some), Timeout, Config) end,
        ByConnection
    ).

%% @doc A get of which another one is asked, too, if there is no answer after so many milliseconds.
-spec get(weir_memcached_config:config(), Key :: binary(), weir_memcached_request:operation(),
    Timeout :: timeout(), p95 | pos_integer()) -> weir_memcached_reply:reply() | {error, timeout | disconnected | busy}.
get(#config{replicas = Replicas} = Config, Key, Operation, Timeout, Hedge) ->
    Owner = weir_memcached_route:owner(Key, Config),
    Deadline = weir_memcached_ask:deadline(Timeout),
    case weir_memcached_route:has_all(Key, Owner, Config) andalso delay(Hedge, Owner) of
        No when No =:= false; No =:= unknown ->
            weir_memcached_ask:ask(Config, Key, Operation, #{timeout => Timeout});
        Delay ->
            case weir_memcached_ask:send(Owner, Operation, Deadline, any, Config) of
                {sent, Slot, Id} ->
                    case weir_memcached_conn:answer(Id, Delay) of
                        timeout ->
                            {Other, Which} =
                                case weir_memcached_route:owners(Key, max(2, Replicas), Config) of
                                    [_, Next | _] when Replicas > 1 -> {Next, any};
                                    _ -> {Owner, {but, Slot}}
                                end,
                            count(hedged, Owner),
                            either(Id, weir_memcached_ask:send(Other, Operation, Deadline, Which, Config), Owner);
                        Answer ->
                            first(Answer, Key, Operation, Timeout, Config)
                    end;
                refused ->
                    weir_memcached_ask:ask(Config, Key, Operation, #{timeout => Timeout})
            end
    end.

%% Nothing was sent if it was refused, or the connection went down: then it is asked as any other get.
first(Answer, Key, Operation, Timeout, Config) ->
    case Answer of
        gone -> {error, disconnected};
        Refusal when Refusal =:= down; Refusal =:= busy; element(1, Refusal) =:= speaks ->
            weir_memcached_ask:ask(Config, Key, Operation, #{timeout => Timeout});
        Reply -> Reply
    end.

delay(p95, #server{latency = Latency}) ->
    case weir_memcached_latency:percentile(95, Latency) of
        unknown -> unknown;
        Us -> Us div 1000 + 1
    end;
delay(Ms, _) ->
    Ms.

either(First, refused, _) ->
    settled(weir_memcached_conn:answer(First));
either(First, {sent, _, Second}, Owner) ->
    case weir_memcached_conn:either(First, Second) of
        {first, Answer} ->
            case is_useful(Answer) of
                true ->
                    ok = weir_memcached_conn:forget(Second),
                    Answer;
                false ->
                    Other = settled(weir_memcached_conn:answer(Second)),
                    case Other of
                        {ok, [_]} -> won(Other, Owner);
                        _ -> settled(Answer)
                    end
            end;
        {second, {ok, [_]} = Answer} ->
            ok = weir_memcached_conn:forget(First),
            won(Answer, Owner);
        {second, _} ->
            settled(weir_memcached_conn:answer(First))
    end.

is_useful({ok, _}) -> true;
is_useful({error, {Said, _}}) when Said =:= client_error; Said =:= server_error -> true;
is_useful(_) -> false.

won(Answer, Owner) ->
    count(hedges_won, Owner),
    Answer.

settled(gone) -> {error, disconnected};
settled(down) -> {error, disconnected};
settled(busy) -> {error, busy};
settled({speaks, _}) -> {error, disconnected};
settled(Answer) -> Answer.

count(Name, #server{counters = Counters}) -> weir_memcached_counters:add(Counters, Name, 1).
