%% The client and a real memcached together against a model: a map. Several callers run their commands at once through
%% one client, each on keys of its own, so each must find exactly what it left, whatever the others do.
-module(prop_weir_memcached).

-include_lib("proper/include/proper.hrl").

-export([prop_one_caller/1, prop_many_callers/1]).

prop_one_caller(Client) ->
    ?FORALL(Commands, list(command()), equals([], differences(Client, Commands))).

prop_many_callers(Client) ->
    ?FORALL(
        Scripts,
        ?LET(N, range(2, 12), vector(N, list(command()))),
        begin
            Callers = [fun() -> differences(Client, Commands) end || Commands <- Scripts],
            equals([], lists:append(weir_kit:in_parallel(Callers)))
        end
    ).

%% Numbers have keys of their own: memcached pads a number that became shorter with spaces, or does not, as it likes.
command() ->
    Text = oneof([a, b, c]),
    Number = oneof([n, m]),
    frequency([
        {4, {get, Text}},
        {2, {get_many, list(Text)}},
        {2, {gat, Text, ttl()}},
        {4, {set, Text, value()}},
        {2, {set_many, list({Text, value()})}},
        {2, {add, Text, value()}},
        {2, {replace, Text, value()}},
        {2, {append, Text, value()}},
        {2, {prepend, Text, value()}},
        {3, {cas, Text, value(), oneof([present, stale])}},
        {2, {touch, Text, ttl()}},
        {2, {delete, oneof([Text, Number])}},
        {2, {put_number, Number, range(0, 1000)}},
        {2, {get_number, Number}},
        {3, {oneof([incr, decr]), oneof([Text, Number]), range(0, 2000)}}
    ]).

%% For ever, for long, or over already.
ttl() ->
    oneof([0, 1000, -1]).

%% No digits at the beginning, so that it is never a number.
value() ->
    oneof([
        <<>>,
        <<"x\r\n">>,
        ?LET(Bytes, binary(), <<"v", Bytes/binary>>),
        ?LET(N, range(1, 5000), binary:copy(<<"v">>, N))
    ]).

%% Runs the commands, and returns those whose result was not the model's.
differences(Client, Commands) ->
    Prefix = iolist_to_binary(["p", integer_to_list(erlang:unique_integer([positive])), "/"]),
    Key = fun(Name) -> <<Prefix/binary, (atom_to_binary(Name))/binary>> end,
    {_, Different} = lists:foldl(
        fun(Command, {Model, Different}) ->
            {Expected, Model1} = model(Command, Model),
            case run(Client, Key, Command) of
                Expected -> {Model1, Different};
                Other -> {Model1, [{Command, Expected, Other} | Different]}
            end
        end,
        {#{}, []},
        Commands
    ),
    lists:reverse(Different).

run(C, Key, {get, K}) -> weir_memcached:get(C, Key(K));
run(C, Key, {get_many, Ks}) -> named(weir_memcached:get_many(C, [Key(K) || K <- Ks]), Key);
run(C, Key, {gat, K, Ttl}) -> weir_memcached:gat(C, Key(K), Ttl);
run(C, Key, {set, K, V}) -> weir_memcached:set(C, Key(K), V, #{ttl => 1000});
run(C, Key, {set_many, Items}) -> weir_memcached:set_many(C, [{Key(K), V} || {K, V} <- Items]);
run(C, Key, {add, K, V}) -> weir_memcached:add(C, Key(K), V);
run(C, Key, {replace, K, V}) -> weir_memcached:replace(C, Key(K), V);
run(C, Key, {append, K, V}) -> weir_memcached:append(C, Key(K), V);
run(C, Key, {prepend, K, V}) -> weir_memcached:prepend(C, Key(K), V);
run(C, Key, {cas, K, V, Which}) -> weir_memcached:cas(C, Key(K), V, unique(C, Key(K), Which));
run(C, Key, {touch, K, Ttl}) -> weir_memcached:touch(C, Key(K), Ttl);
run(C, Key, {delete, K}) -> weir_memcached:delete(C, Key(K));
run(C, Key, {put_number, K, N}) -> weir_memcached:set(C, Key(K), integer_to_binary(N));
run(C, Key, {get_number, K}) ->
    case weir_memcached:get(C, Key(K)) of
        {ok, Digits} -> {ok, binary_to_integer(string:trim(Digits))};
        {error, _} = Error -> Error
    end;
run(C, Key, {Op, K, N}) ->
    case weir_memcached:Op(C, Key(K), N) of
        {error, {client_error, _}} -> {error, client_error};
        Result -> Result
    end.

%% The values under the model's names; a key that is none of them stays as it is.
named({ok, Values}, Key) ->
    Names = maps:from_list([{Key(Name), Name} || Name <- [a, b, c]]),
    {ok, maps:from_list([{maps:get(K, Names, K), V} || {K, V} <- maps:to_list(Values)])};
named(Error, _) ->
    Error.

unique(C, Key, Which) ->
    case {weir_memcached:gets(C, Key), Which} of
        {{ok, _, Cas}, present} -> Cas;
        {{ok, _, Cas}, stale} -> Cas - 1;
        {{error, not_found}, _} -> 1
    end.

%% What a memcached of one caller does.
model({get, K}, M) -> {read(K, M), M};
model({get_many, Ks}, M) -> {{ok, maps:with(Ks, M)}, M};
model({gat, K, Ttl}, M) -> {read(K, M), aged(K, Ttl, M)};
model({set, K, V}, M) -> {ok, M#{K => V}};
model({set_many, Items}, M) -> {ok, maps:merge(M, maps:from_list(Items))};
model({add, K, V}, M) -> store(not is_map_key(K, M), K, V, M);
model({replace, K, V}, M) -> store(is_map_key(K, M), K, V, M);
model({append, K, V}, M) -> store(is_map_key(K, M), K, <<(maps:get(K, M, <<>>))/binary, V/binary>>, M);
model({prepend, K, V}, M) -> store(is_map_key(K, M), K, <<V/binary, (maps:get(K, M, <<>>))/binary>>, M);
model({cas, K, V, Which}, M) ->
    case {is_map_key(K, M), Which} of
        {false, _} -> {{error, not_found}, M};
        {true, present} -> {ok, M#{K := V}};
        {true, stale} -> {{error, exists}, M}
    end;
model({touch, K, Ttl}, M) -> {found(K, M), aged(K, Ttl, M)};
model({delete, K}, M) -> {found(K, M), maps:remove(K, M)};
model({put_number, K, N}, M) -> {ok, M#{K => N}};
model({get_number, K}, M) -> {read(K, M), M};
model({incr, K, N}, M) -> calculated(K, fun(Old) -> Old + N end, M);
model({decr, K, N}, M) -> calculated(K, fun(Old) -> max(0, Old - N) end, M).

read(K, M) ->
    case M of
        #{K := V} -> {ok, V};
        #{} -> {error, not_found}
    end.

found(K, M) ->
    case is_map_key(K, M) of
        true -> ok;
        false -> {error, not_found}
    end.

aged(K, -1, M) -> maps:remove(K, M);
aged(_, _, M) -> M.

store(true, K, V, M) -> {ok, M#{K => V}};
store(false, _, _, M) -> {{error, not_stored}, M}.

calculated(K, Calculate, M) ->
    case M of
        #{K := Old} when is_integer(Old) ->
            New = Calculate(Old),
            {{ok, New}, M#{K := New}};
        #{K := _} ->
            {{error, client_error}, M};
        #{} ->
            {{error, not_found}, M}
    end.
