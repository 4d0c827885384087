%% A state machine: commands over real connections, one after the other and from several processes at a time, beside a
%% model that is a map. What comes from several processes has to be what some order of the commands gives.
-module(weir_memcached_server_prop_SUITE).

-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-define(SERVER, ?MODULE).
-define(KEYS, [<<"a">>, <<"b">>, <<"c">>]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_memcached_server_test:set_up(Config).

end_per_suite(Config) -> weir_memcached_server_test:tear_down(Config).

end_per_testcase(_Case, _Config) -> weir_memcached_server_test:stop_all().

sequential(_Config) ->
    Property = ?FORALL(Commands, commands(?MODULE), begin
        ok = start(),
        {History, State, Result} = weir_kit_property:run_commands(?MODULE, Commands),
        ok = stop(),
        ?WHENFAIL(ct:pal("~p~n~p~n~p", [History, State, Result]), Result =:= ok)
    end),
    weir_kit_property:holds(Property, [{numtests, weir_kit:long(75, 150)}, {max_size, 60}, quiet]).

parallel(_Config) ->
    Property = ?FORALL(Commands, parallel_commands(?MODULE), begin
        ok = start(),
        {Sequential, Parallel, Result} = run_parallel_commands(?MODULE, Commands),
        ok = stop(),
        ?WHENFAIL(ct:pal("~p~n~p~n~p", [Sequential, Parallel, Result]), Result =:= ok)
    end),
    weir_kit_property:holds(Property, [{numtests, weir_kit:long(50, 100)}, {max_size, 30}, quiet]).

start() ->
    {ok, Server} = weir_memcached_server:start_link(#{name => ?SERVER}),
    true = unlink(Server),
    ok.

%% Checks what the server counts, and stops it.
stop() ->
    ok = weir_memcached_server_test:exact(whereis(?SERVER)),
    weir_memcached_server:stop(?SERVER).

%% ---------------------------------------------------------------- the model

%% Items by key; the clock; the number of the next value; and what `gets' has given: its result, and of which value.
-record(model, {
    items = #{} :: #{binary() => {Value :: binary(), Flags :: non_neg_integer(), Expires :: never | integer(),
        Version :: integer()}},
    now = 0 :: integer(),
    next = 1 :: integer(),
    uniques = [] :: [{Key :: binary(), Result :: term(), Version :: integer()}]
}).

initial_state() -> #model{}.

command(#model{uniques = Uniques}) ->
    frequency([
        {6, {call, ?MODULE, get, [key()]}},
        {4, {call, ?MODULE, gets, [key()]}},
        {2, {call, ?MODULE, mg, [key()]}},
        {6, {call, ?MODULE, set, [key(), value(), ttl()]}},
        {2, {call, ?MODULE, ms, [key(), value(), ttl()]}},
        {3, {call, ?MODULE, store, [oneof([add, replace]), key(), value(), ttl()]}},
        {3, {call, ?MODULE, concat, [oneof([append, prepend]), key(), value()]}},
        {4, {call, ?MODULE, arithmetic, [oneof([incr, decr]), key(), oneof([0, 1, 7, 100])]}},
        {2, {call, ?MODULE, delete, [key()]}},
        {2, {call, ?MODULE, touch, [key(), ttl()]}},
        {1, {call, ?MODULE, flush, []}},
        {1, {call, ?MODULE, advance, [oneof([1_000])]}}
    ] ++ [
        {6, ?LET({Key, Result, Version}, oneof(Uniques), {call, ?MODULE, cas,
            [Key, {call, ?MODULE, unique, [Result]}, value(), Version]})}
     || Uniques =/= []
    ]).

key() -> oneof(?KEYS).

value() -> oneof([<<"0">>, <<"5">>, <<"99">>, <<"x">>, <<>>, <<"18446744073709551615">>, binary:copy(<<"y">>, 100),
    binary:copy(<<"z">>, 70_000)]).

%% Far from what a test takes.
ttl() -> oneof([0, 0, 0, 500, 1_500, -1]).

%% A version is only known where its gets is.
precondition(#model{uniques = Uniques}, {call, _, cas, [Key, {call, _, unique, [Result]}, _, Version]}) ->
    lists:member({Key, Result, Version}, Uniques);
precondition(_Model, _Call) ->
    true.

item(Key, #model{items = Items, now = Now}) ->
    case Items of
        #{Key := {_, _, Expires, _} = Item} when Expires =:= never; Expires > Now -> Item;
        #{} -> none
    end.

put_item(Key, Value, Expires, #model{items = Items, next = Next} = Model) ->
    Model#model{items = Items#{Key => {Value, 0, Expires, Next}}, next = Next + 1}.

expires(0, _Model) -> never;
expires(Ttl, #model{now = Now}) -> Now + Ttl.

next_state(Model, Result, {call, _, gets, [Key]}) ->
    case item(Key, Model) of
        none -> Model;
        {_, _, _, Version} -> Model#model{uniques = [{Key, Result, Version} | Model#model.uniques]}
    end;
next_state(Model, _Result, {call, _, Function, [Key, Value, Ttl]}) when Function =:= set; Function =:= ms ->
    put_item(Key, Value, expires(Ttl, Model), Model);
next_state(Model, _Result, {call, _, store, [Mode, Key, Value, Ttl]}) ->
    case {Mode, item(Key, Model)} of
        {add, none} -> put_item(Key, Value, expires(Ttl, Model), Model);
        {replace, {_, _, _, _}} -> put_item(Key, Value, expires(Ttl, Model), Model);
        _ -> Model
    end;
next_state(Model, _Result, {call, _, cas, [Key, _Unique, Value, Version]}) ->
    case item(Key, Model) of
        {_, _, _, Version} -> put_item(Key, Value, never, Model);
        _ -> Model
    end;
next_state(Model, _Result, {call, _, concat, [Side, Key, More]}) ->
    case item(Key, Model) of
        none -> Model;
        {Value, _, Expires, _} when Side =:= append -> put_item(Key, <<Value/binary, More/binary>>, Expires, Model);
        {Value, _, Expires, _} -> put_item(Key, <<More/binary, Value/binary>>, Expires, Model)
    end;
next_state(Model, _Result, {call, _, arithmetic, [Direction, Key, By]}) ->
    case number(item(Key, Model)) of
        {ok, N, {Value, _, Expires, _}} -> put_item(Key, padded(sum(Direction, N, By), byte_size(Value)), Expires,
            Model);
        _ -> Model
    end;
next_state(#model{items = Items} = Model, _Result, {call, _, delete, [Key]}) ->
    Model#model{items = maps:remove(Key, Items)};
next_state(#model{items = Items} = Model, _Result, {call, _, touch, [Key, Ttl]}) ->
    case item(Key, Model) of
        none -> Model;
        {Value, Flags, _, Version} -> Model#model{items = Items#{Key => {Value, Flags, expires(Ttl, Model), Version}}}
    end;
next_state(Model, _Result, {call, _, flush, []}) ->
    Model#model{items = #{}};
next_state(#model{now = Now} = Model, _Result, {call, _, advance, [Seconds]}) ->
    Model#model{now = Now + Seconds};
next_state(Model, _Result, _Call) ->
    Model.

number(none) -> none;
number({Value, _, _, _} = Item) ->
    %% What comes behind a space does not count.
    try binary_to_integer(hd(binary:split(Value, <<" ">>))) of
        N when N < 1 bsl 64 -> {ok, N, Item};
        _ -> not_a_number
    catch
        error:badarg -> not_a_number
    end.

sum(incr, N, By) -> (N + By) rem (1 bsl 64);
sum(decr, N, By) -> max(0, N - By).

padded(N, Size) ->
    Digits = integer_to_binary(N),
    <<Digits/binary, (binary:copy(<<" ">>, max(0, Size - byte_size(Digits))))/binary>>.

postcondition(Model, {call, _, Get, [Key]}, Result) when Get =:= get; Get =:= mg ->
    case item(Key, Model) of
        none -> Result =:= none;
        {Value, _, _, _} -> Result =:= {ok, Value}
    end;
postcondition(Model, {call, _, gets, [Key]}, Result) ->
    case {item(Key, Model), Result} of
        {none, none} -> true;
        {{Value, _, _, _}, {ok, Value, _}} -> true;
        _ -> false
    end;
postcondition(_Model, {call, _, Set, _}, Result) when Set =:= set; Set =:= ms -> Result =:= stored;
postcondition(Model, {call, _, store, [add, Key, _, _]}, Result) -> Result =:= stored_if(item(Key, Model) =:= none);
postcondition(Model, {call, _, store, [replace, Key, _, _]}, Result) -> Result =:= stored_if(item(Key, Model) =/= none);
postcondition(Model, {call, _, concat, [_, Key, _]}, Result) -> Result =:= stored_if(item(Key, Model) =/= none);
postcondition(Model, {call, _, cas, [Key, _, _, Version]}, Result) ->
    case item(Key, Model) of
        none -> Result =:= not_found;
        {_, _, _, Version} -> Result =:= stored;
        _ -> Result =:= exists
    end;
postcondition(Model, {call, _, arithmetic, [Direction, Key, By]}, Result) ->
    case number(item(Key, Model)) of
        none -> Result =:= none;
        not_a_number -> Result =:= not_a_number;
        {ok, N, _} -> Result =:= sum(Direction, N, By)
    end;
postcondition(Model, {call, _, Function, [Key | _]}, Result) when Function =:= delete; Function =:= touch ->
    Result =:= (item(Key, Model) =/= none);
postcondition(_Model, _Call, Result) ->
    Result =:= ok.

stored_if(true) -> stored;
stored_if(false) -> not_stored.

%% ---------------------------------------------------------------- the commands

%% Asks on the connection of the calling process, without a deadline: a late answer is no counterexample.
ask(Request) ->
    Server = whereis(?SERVER),
    Socket =
        case erlang:get({?MODULE, Server}) of
            undefined ->
                New = weir_memcached_server_test:connect(Server),
                erlang:put({?MODULE, Server}, New),
                New;
            Known ->
                Known
        end,
    weir_memcached_server_test:ask_forever(Socket, Request).

get(Key) ->
    Size = byte_size(Key),
    case ask(["get ", Key, "\r\n"]) of
        <<"END\r\n">> ->
            none;
        <<"VALUE ", Key:Size/binary, " 0 ", Rest/binary>> ->
            [Length, Value] = binary:split(Rest, <<"\r\n">>),
            {ok, without(Value, <<"\r\nEND\r\n">>, binary_to_integer(Length))}
    end.

gets(Key) ->
    Size = byte_size(Key),
    case ask(["gets ", Key, "\r\n"]) of
        <<"END\r\n">> ->
            none;
        <<"VALUE ", Key:Size/binary, " 0 ", Rest/binary>> ->
            [Numbers, Value] = binary:split(Rest, <<"\r\n">>),
            [Length, Unique] = binary:split(Numbers, <<" ">>),
            {ok, without(Value, <<"\r\nEND\r\n">>, binary_to_integer(Length)), Unique}
    end.

mg(Key) ->
    case ask(["mg ", Key, " v\r\n"]) of
        <<"EN\r\n">> ->
            none;
        <<"VA ", Rest/binary>> ->
            [Length, Value] = binary:split(Rest, <<"\r\n">>),
            {ok, without(Value, <<"\r\n">>, binary_to_integer(Length))}
    end.

without(Data, End, Length) ->
    <<Value:Length/binary, Rest/binary>> = Data,
    {End, End} = {Rest, End},
    Value.

set(Key, Value, Ttl) -> stored("set", Key, Value, Ttl, "").

ms(Key, Value, Ttl) ->
    <<"HD\r\n">> = ask(["ms ", Key, " ", integer_to_list(byte_size(Value)), " T", integer_to_list(Ttl), "\r\n", Value,
        "\r\n"]),
    stored.

store(Mode, Key, Value, Ttl) -> stored(atom_to_list(Mode), Key, Value, Ttl, "").

concat(Side, Key, Value) -> stored(atom_to_list(Side), Key, Value, 0, "").

%% Of the result of a gets.
unique({ok, _, Unique}) -> Unique.

cas(Key, Unique, Value, _Version) -> stored("cas", Key, Value, 0, [" ", Unique]).

stored(Command, Key, Value, Ttl, Unique) ->
    Size = integer_to_list(byte_size(Value)),
    case ask([Command, " ", Key, " 0 ", integer_to_list(Ttl), " ", Size, Unique, "\r\n", Value, "\r\n"]) of
        <<"STORED\r\n">> -> stored;
        <<"NOT_STORED\r\n">> -> not_stored;
        <<"EXISTS\r\n">> -> exists;
        <<"NOT_FOUND\r\n">> -> not_found
    end.

arithmetic(Direction, Key, By) ->
    case ask([atom_to_list(Direction), " ", Key, " ", integer_to_list(By), "\r\n"]) of
        <<"NOT_FOUND\r\n">> -> none;
        <<"CLIENT_ERROR", _/binary>> -> not_a_number;
        Digits -> binary_to_integer(string:trim(Digits))
    end.

delete(Key) ->
    case ask(["delete ", Key, "\r\n"]) of
        <<"DELETED\r\n">> -> true;
        <<"NOT_FOUND\r\n">> -> false
    end.

touch(Key, Ttl) ->
    case ask(["touch ", Key, " ", integer_to_list(Ttl), "\r\n"]) of
        <<"TOUCHED\r\n">> -> true;
        <<"NOT_FOUND\r\n">> -> false
    end.

advance(Seconds) -> weir_memcached_server:advance(?SERVER, Seconds).

flush() ->
    <<"OK\r\n">> = ask("flush_all\r\n"),
    ok.
