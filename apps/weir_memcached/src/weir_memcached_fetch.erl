%% @doc What is around a get and a set of something that takes time to compute: one computes it, on the node and, where
%% the server speaks the meta protocol, among all nodes.
%%
%% ```
%%   peek      a hit                          its value; a chance that it is computed anew before it expires
%%             stale, another one computes    its value, or wait
%%             stale, and we have won         compute
%%             a miss                         one process of the node goes on, others wait (weir_memcached_flight)
%%   lease     a hit                          another node was quicker
%%             won                            compute, and put the value if the item is still what was won
%%             another node has won           its stale value, or lease again, until it is a hit or `wait' is over
%% '''
%% What the server holds for one that has won is an item without bytes that expires after `lease' seconds, or a stale
%% one. Who has won and fails gives it back, and the next one wins. Who is killed cannot: one of its node that waits for
%% it goes on with what it had won; without one, the next of all nodes wins when that item expires.
%%
%% A server that cannot be asked is no reason to fail: the function is run, by one process of the node, and its value is
%% not stored. So is it with servers that speak text only, where the value is stored: there nodes know nothing of each
%% other.
%%
%% The chance to compute early is that of "Optimal Probabilistic Cache Stampede Prevention" (Vattani, Chierichetti and
%% Lowenstein, VLDB 2015): with the time that is left less than a number drawn from an exponential distribution, here
%% with the mean of `early'. The server lets one of those who draw such a number win.
%% @private
-module(weir_memcached_fetch).

-export([fetch/4, options/1]).

-include("weir_memcached_config.hrl").

%% Milliseconds between two looks at what another node computes: doubled, each a random part between half and all.
-define(FIRST_PAUSE, 10).
-define(LONGEST_PAUSE, 200).
%% By how much those who wait outlast a lease.
-define(LEASE_WAIT_MS, 2000).

-record(want, {
    config :: weir_memcached_config:config(),
    bytes :: binary(),
    wire :: weir_memcached_request:wire_key(),
    function :: fun(() -> term()),
    options :: map(),
    until :: integer()
}).

-type data() :: {value, binary(), weir_memcached_codec:flags()} | none.
%% As it is stored. `none': there is no such thing.
-type outcome() :: {ok, data()} | {error, term()}.

%% @doc The options of a fetch, with defaults: key, default, and what says whether a value is one.
-spec options(weir_memcached:fetch_options()) -> map().
options(Given) ->
    Map =
        case weir_memcached_config:to_map(Given) of
            {ok, Some} -> Some;
            error -> error({bad_option, options, Given})
        end,
    Table = table(),
    maps:foreach(
        fun(Key, Value) ->
            case lists:keyfind(Key, 1, Table) of
                {Key, _, Is} -> Is(Value) orelse error({bad_option, Key, Value});
                false -> error({bad_option, Key, Value})
            end
        end,
        Map
    ),
    All = maps:merge(maps:from_list([{Key, Default} || {Key, Default, _} <- Table, Default =/= none]), Map),
    %% Whoever waits for another node that was killed goes on after that.
    #{lease := Lease} = All,
    maps:merge(#{wait => min(1000 * Lease + ?LEASE_WAIT_MS, ?MAX_TIMEOUT)}, All).

table() ->
    Seconds = fun(Value) -> is_integer(Value) andalso Value >= 0 andalso Value =< ?MOST_SECONDS end,
    Time = fun(Value) -> is_integer(Value) andalso Value > 0 andalso Value =< ?MAX_TIMEOUT end,
    [
        {ttl, 0, fun(Value) -> ?is_ttl(Value) andalso Value >= 0 end},
        {jitter, 0, fun(Value) -> is_integer(Value) andalso Value >= 0 andalso Value =< 100 end},
        {negative_ttl, 0, Seconds},
        {early, 0, Seconds},
        {lease, 10, fun(Value) -> Seconds(Value) andalso Value > 0 end},
        {stale, serve, fun(Value) -> Value =:= serve orelse Value =:= wait end},
        {wait, none, Time},
        {timeout, none, fun(Value) -> Value =:= infinity orelse Time(Value) end},
        {codec, none, fun weir_memcached_codec:is_codec/1},
        {flags, none, fun(Value) -> is_integer(Value) andalso Value >= 0 andalso Value =< 16#FFFFFFFF end}
    ].

%% @doc The value of a key; what the function gives, if there is none.
-spec fetch(weir_memcached_config:config(), weir_memcached:key(), fun(() -> term()), weir_memcached:fetch_options()) ->
    {ok, Value :: term()} | {error, term()}.
fetch(Config, Key, Function, Given) ->
    Options = maps:merge(#{codec => Config#config.codec}, options(Given)),
    case Options of
        #{negative_ttl := Seconds, codec := Codec} when Seconds > 0, Codec =/= term, Codec =/= json ->
            error({contradicting_options, {negative_ttl, Seconds}, {codec, Codec}});
        #{} ->
            Until = erlang:monotonic_time(millisecond) + maps:get(wait, Options),
            case weir_memcached_ask:key(Key, Config) of
                {ok, Bytes, Wire} ->
                    Want = #want{
                        config = Config, bytes = Bytes, wire = Wire, function = Function, options = Options,
                        until = Until
                    },
                    decoded(peek(Want), Want);
                {error, _} = Error ->
                    Error
            end
    end.

decoded({ok, {value, Bytes, Flags}}, #want{config = Config, options = Options}) ->
    weir_memcached_ask:decode(Config, Options, Bytes, Flags);
decoded({ok, none}, _) ->
    {error, not_found};
decoded({error, _} = Error, _) ->
    Error.

%% ---------------------------------------------------------------- what is there

-spec peek(#want{}) -> outcome().
peek(#want{options = #{early := Early, stale := Stale}} = Want) ->
    case ask({peek, Want#want.wire}, Want) of
        %% Text, which knows no time.
        {ok, [{_, Flags, _, Value}]} -> {ok, data(Value, Flags, Want)};
        {ok, []} -> together(fun() -> look_again(Want) end, Want);
        {ok, Value, Tokens} ->
            case seen(Value, Tokens) of
                hit ->
                    soon_over(Early, Tokens, {ok, data(Value, maps:get(flags, Tokens, 0), Want)}, Want);
                won ->
                    alone(fun() -> compute({won, Value, Tokens}, Want) end, Want);
                stale when Stale =:= serve ->
                    served_stale(Value, Tokens, Want);
                _ ->
                    together(fun() -> lease(?FIRST_PAUSE, Want) end, Want)
            end;
        {error, not_found} ->
            together(fun() -> lease(?FIRST_PAUSE, Want) end, Want);
        {error, _} ->
            together(fun() -> compute(unstored, Want) end, Want)
    end.

%% `kept': somebody computes it, and there is nothing yet.
seen(_, #{won := true}) -> won;
seen(<<>>, #{leased := true}) -> kept;
seen(<<>>, #{stale := true}) -> kept;
seen(_, #{stale := true}) -> stale;
seen(_, _) -> hit.

%% An item without bytes says that there is no such thing, with codecs that make some bytes of every value.
data(<<>>, _, #want{options = #{codec := Codec}}) when Codec =:= term; Codec =:= json ->
    none;
data(Value, Flags, _) ->
    {value, Value, Flags}.

served_stale(Value, Tokens, Want) ->
    count(stale, Want),
    {ok, data(Value, maps:get(flags, Tokens, 0), Want)}.

soon_over(Early, #{ttl := Left}, Hit, Want) when Early > 0, is_integer(Left) ->
    case ceil(-Early * math:log(rand:uniform_real())) of
        Drawn when Left < Drawn ->
            Refresh = fun() ->
                case ask({lease, Want#want.wire, lease_seconds(Want), min(Drawn + 1, ?MOST_SECONDS)}, Want) of
                    {ok, Value, #{won := true} = Tokens} ->
                        %% It may be gone, or stale, since it was seen: then nobody has it.
                        How = case Value =:= <<>> orelse is_map_key(stale, Tokens) of true -> won; false -> early end,
                        compute({How, Value, Tokens}, Want);
                    _ -> Hit
                end
            end,
            case weir_memcached_flight:lead(flight(Want), flights(Want), Refresh) of
                {led, {error, _}} -> Hit;
                {led, Outcome} -> Outcome;
                taken -> Hit
            end;
        _ ->
            Hit
    end;
soon_over(_, _, Hit, _) ->
    Hit.

%% ---------------------------------------------------------------- one for all

%% Whoever waits for another one of the node takes its place if that one is killed.
together(Fun, #want{until = Until} = Want) ->
    Heir = fun(Won) -> compute(Won, Want) end,
    case weir_memcached_flight:run(flight(Want), flights(Want), Fun, Heir, Until) of
        {led, Outcome} ->
            Outcome;
        {shared, {ok, Outcome}} ->
            count(shared, Want),
            Outcome;
        {shared, {raised, Class, Reason}} ->
            {error, {raised, Class, Reason}};
        {shared, stopped} ->
            {error, disconnected};
        again ->
            peek(Want);
        timeout ->
            {error, timeout}
    end.

%% Nobody else can compute what was won here.
alone(Fun, Want) ->
    case weir_memcached_flight:lead(flight(Want), flights(Want), Fun) of
        {led, Outcome} -> Outcome;
        taken -> Fun()
    end.

flight(#want{bytes = Bytes, options = #{codec := Codec}}) -> {Bytes, Codec}.

flights(#want{config = #config{flights = Flights}}) -> Flights.

%% Text again: whoever computed before may have stored it since that look.
look_again(Want) ->
    case ask({get, Want#want.wire}, Want) of
        {ok, [{_, Flags, _, Value}]} -> {ok, data(Value, Flags, Want)};
        _ -> compute(plainly, Want)
    end.

%% ---------------------------------------------------------------- one of all nodes

-spec lease(Pause :: pos_integer(), #want{}) -> outcome().
lease(Pause, #want{wire = Wire, until = Until, options = #{stale := Stale}} = Want) ->
    case ask({lease, Wire, lease_seconds(Want), 0}, Want) of
        {ok, Value, Tokens} ->
            case seen(Value, Tokens) of
                hit -> {ok, data(Value, maps:get(flags, Tokens, 0), Want)};
                won -> compute({won, Value, Tokens}, Want);
                stale when Stale =:= serve -> served_stale(Value, Tokens, Want);
                _ ->
                    case erlang:monotonic_time(millisecond) >= Until of
                        true ->
                            {error, timeout};
                        false ->
                            receive
                            after Pause div 2 + rand:uniform(Pause div 2) -> ok
                            end,
                            lease(min(2 * Pause, ?LONGEST_PAUSE), Want)
                    end
            end;
        %% A server that has no leases after all.
        {error, unsupported} ->
            compute(plainly, Want);
        %% One that cannot keep a place, or cannot be asked any more: somebody else may have it.
        {error, _} ->
            compute(unstored, Want)
    end.

lease_seconds(#want{options = #{lease := Seconds}}) -> Seconds.

%% ---------------------------------------------------------------- computing

%% `{won, Value, Tokens}': what is there, which nobody else may replace; `{early, Value, Tokens}': an item that is good
%% still, and stays as it is if it cannot be computed now; `plainly': stored whatever is there; `unstored'.
compute(How, #want{function = Function} = Want) ->
    count(computed, Want),
    ok = hold(How, Want),
    try
        stored(Function(), How, Want)
    catch
        Class:Reason:Stack ->
            ok = release(How, Want),
            erlang:raise(Class, Reason, Stack)
    end.

%% For who takes this process' place if it is killed.
hold({won, _, _} = Won, Want) -> weir_memcached_flight:hold(flight(Want), flights(Want), Won);
hold(_, _) -> ok.

stored({ok, Value}, How, Want) ->
    store(Value, #{}, How, Want);
stored({ok, Value, Options}, How, Want) when Options =:= #{} ->
    store(Value, Options, How, Want);
stored({ok, Value, #{ttl := Ttl} = Options}, How, Want) when map_size(Options) =:= 1, ?is_ttl(Ttl), Ttl >= 0 ->
    store(Value, Options, How, Want);
stored(not_found, How, #want{options = #{negative_ttl := 0}} = Want) ->
    ok = release(How, Want),
    {ok, none};
stored(not_found, How, #want{options = #{negative_ttl := Seconds}} = Want) ->
    ok = put(<<>>, 0, Seconds, How, Want),
    {ok, none};
stored({error, _} = Error, How, Want) ->
    ok = release(How, Want),
    Error;
stored(Other, _, _) ->
    error({bad_return_value, Other}).

store(Value, Own, How, #want{config = Config, options = Options} = Want) ->
    {Data, Flags, _Size} = weir_memcached_ask:encode(Config, Options, Value),
    Bytes = iolist_to_binary(Data),
    #{ttl := Ttl, jitter := Jitter} = maps:merge(Options, Own),
    ok = put(Bytes, Flags, sooner(Ttl, Jitter), How, Want),
    {ok, {value, Bytes, Flags}}.

%% Items that were stored together shall not expire together.
sooner(Ttl, Jitter) ->
    case Ttl * Jitter div 100 of
        %% Not down to 0, which is for ever.
        Most when Most > 0, Ttl =< ?MOST_SECONDS -> max(1, Ttl - rand:uniform(Most + 1) + 1);
        _ -> Ttl
    end.

%% What cannot be stored is computed again by the next.
put(_, _, _, unstored, _) ->
    ok;
put(Bytes, Flags, Ttl, plainly, #want{wire = Wire} = Want) ->
    _ = ask({set, Wire, Bytes, Flags, Ttl, byte_size(Bytes)}, Want),
    ok;
put(Bytes, Flags, Ttl, {_, _, #{cas := Cas}}, #want{wire = Wire} = Want) ->
    _ = ask({put, Wire, Bytes, Flags, Ttl, Cas, byte_size(Bytes)}, Want),
    ok.

release({won, Value, #{cas := Cas} = Tokens}, #want{wire = Wire} = Want) ->
    IsKept = Value =:= <<>> andalso not is_map_key(stale, Tokens),
    _ = ask({release, Wire, Cas, case IsKept of true -> missing; false -> stale end}, Want),
    ok;
release(_, _) ->
    ok.

ask(Operation, #want{config = Config, bytes = Bytes, options = Options}) ->
    weir_memcached_ask:ask(Config, Bytes, Operation, maps:with([timeout], Options)).

count(Name, #want{config = Config, bytes = Bytes}) ->
    #server{counters = Counters} = weir_memcached_route:owner(Bytes, Config),
    weir_memcached_counters:add(Counters, Name, 1).
