%% @doc What one caller may find under keys that nobody else writes: the model that every reply is checked against.
%%
%% The caller has some text keys and one number. A text's value names the caller, the key and a serial number, so a
%% value that belongs elsewhere, or to another time, is recognised. For each key the model holds what a read may give:
%%
%% - after an acknowledged write, exactly that;
%% - after a write that failed, what was possible before or what that write stored, because it may have been carried
%%   out, even later;
%% - nothing at all (`absent'), besides, if the server has been killed since the last write began: see {@type era()}.
%%
%% A number whose last change failed gets a new key, so its value is always known exactly.
%%
%% Pure: the requests are made by {@link weir_demo_caller}.
-module(weir_demo_model).

-export([new/2, next/3, check/4]).

-export_type([model/0, request/0, step/0, era/0, verdict/0]).

%% Text keys of a caller; values are between ?MIN_SIZE and about ?MIN_SIZE + ?SIZE_RANGE bytes.
-define(TEXTS, 4).
-define(MIN_SIZE, 16).
-define(SIZE_RANGE, 1_000).

-type era() :: 0 | 1 | 2.
%% 0: the server has not been killed. 1: it may be dead at any time. 2: it is up again, to stay.

-type content() :: absent | {serial, pos_integer()}.

-record(text, {
    possible = [absent] :: [content()],
    %% Written without acknowledgement: possible after any later write too.
    late = [] :: [content()],
    %% When the write began that made `possible' what it is.
    era = 0 :: era()
}).

-record(model, {
    prefix :: binary(),
    caller :: pos_integer(),
    serial = 0 :: non_neg_integer(),
    texts :: #{pos_integer() => #text{}},
    generation = 0 :: non_neg_integer(),
    number = unknown :: unknown | non_neg_integer(),
    number_era = 0 :: era()
}).

-opaque model() :: #model{}.

-type request() ::
    {get, Key :: binary()}
    | {set, Key :: binary(), Value :: binary()}
    | {delete, Key :: binary()}
    | {incr, Key :: binary(), By :: pos_integer()}.

-opaque step() ::
    {get, pos_integer()}
    | {write, pos_integer(), content(), era()}
    | {zero, era()}
    | {incr, pos_integer(), era()}.
%% What the request was in the model's terms, for {@link check/4}.

-type verdict() :: ok | {failed, Reason :: term()} | {wrong, term()}.
%% `failed' is a request that was not answered by the server; `wrong' is an answer that cannot be true.

%% @doc The model of one caller's keys, all absent. Keys start with the prefix and the caller's number.
-spec new(Prefix :: binary(), Caller :: pos_integer()) -> model().
new(Prefix, Caller) ->
    #model{prefix = Prefix, caller = Caller, texts = maps:from_keys(lists:seq(1, ?TEXTS), #text{})}.

%% @doc The next request of a caller, and what to give {@link check/4} with its reply: of a hundred, 60 get, 25 set,
%% 5 delete and 10 incr. `Dice' is a random number from 1 to 10,000.
-spec next(Dice :: pos_integer(), era(), model()) -> {request(), step(), model()}.
next(Dice, Era, Model) ->
    Text = 1 + Dice rem ?TEXTS,
    case Dice div 4 rem 100 of
        N when N < 60 -> {{get, text_key(Text, Model)}, {get, Text}, Model};
        N when N < 85 -> set(Text, Era, Model);
        N when N < 90 -> {{delete, text_key(Text, Model)}, {write, Text, absent, Era}, Model};
        N -> incr(N - 89, Era, Model)
    end.

set(Text, Era, #model{serial = Serial} = Model) ->
    Next = Model#model{serial = Serial + 1},
    {{set, text_key(Text, Model), value(Text, Serial + 1, Model)}, {write, Text, {serial, Serial + 1}, Era}, Next}.

incr(_By, Era, #model{number = unknown} = Model) ->
    {{set, number_key(Model), <<"0">>}, {zero, Era}, Model};
incr(By, Era, Model) ->
    {{incr, number_key(Model), By}, {incr, By, Era}, Model}.

%% @doc Judges the reply to the request of a step. `Era' is the one after the reply.
-spec check(step(), Reply :: term(), era(), model()) -> {verdict(), model()}.
check({get, Text}, {ok, Value}, _Era, Model) ->
    #text{possible = Possible} = State = text(Text, Model),
    case [Content || {serial, Serial} = Content <- Possible, value(Text, Serial, Model) =:= Value] of
        [Content] -> {ok, put_text(Text, State#text{possible = lists:usort([Content | State#text.late])}, Model)};
        [] -> {{wrong, {get, text_key(Text, Model), shorten(Value), Possible}}, Model}
    end;
check({get, Text}, {error, not_found}, Era, Model) ->
    found_absent(Text, Era, get, Model);
check({write, Text, absent, Began}, ok, _Era, Model) ->
    #text{possible = Possible} = text(Text, Model),
    case Possible of
        [absent] -> {{wrong, {delete, text_key(Text, Model), ok, Possible}}, Model};
        _ -> {ok, written(Text, absent, Began, Model)}
    end;
check({write, Text, absent, _Began}, {error, not_found}, Era, Model) ->
    found_absent(Text, Era, delete, Model);
check({write, Text, Content, Began}, ok, _Era, Model) ->
    {ok, written(Text, Content, Began, Model)};
check({write, Text, Content, _Began}, Reply, _Era, Model) ->
    #text{possible = Possible, late = Late} = State = text(Text, Model),
    Unsure = State#text{possible = lists:usort([Content | Possible]), late = lists:usort([Content | Late])},
    {verdict(Reply), put_text(Text, Unsure, Model)};
check({zero, Began}, ok, _Era, Model) ->
    {ok, Model#model{number = 0, number_era = Began}};
check({incr, By, Began}, {ok, Number}, _Era, #model{number = Old} = Model) when Number =:= Old + By ->
    {ok, Model#model{number = Number, number_era = Began}};
check({incr, By, _Began}, {ok, Number}, _Era, #model{number = Old} = Model) ->
    {{wrong, {incr, number_key(Model), {Old, By, Number}}}, forget_number(Model)};
check({incr, _By, _Began}, {error, not_found}, Era, #model{number_era = Written} = Model) ->
    case may_be_lost(Written, Era) of
        true -> {ok, forget_number(Model)};
        false -> {{wrong, {incr, number_key(Model), not_found}}, forget_number(Model)}
    end;
check({get, _}, Reply, _Era, Model) ->
    {verdict(Reply), Model};
check(_Step, Reply, _Era, Model) ->
    {verdict(Reply), forget_number(Model)}.

%% Replies that only a request which was not carried out may get.
verdict({error, Reason}) when Reason =:= disconnected; Reason =:= timeout; Reason =:= busy -> {failed, Reason};
verdict(Reply) -> {wrong, Reply}.

found_absent(Text, Era, Operation, Model) ->
    #text{possible = Possible, late = Late, era = Written} = State = text(Text, Model),
    case lists:member(absent, Possible) orelse may_be_lost(Written, Era) of
        true -> {ok, put_text(Text, State#text{possible = lists:usort([absent | Late])}, Model)};
        false -> {{wrong, {Operation, text_key(Text, Model), not_found, Possible}}, Model}
    end.

%% Written before the server was up to stay, and read after it may have been killed.
may_be_lost(Written, Now) ->
    Written < 2 andalso Now > 0.

written(Text, Content, Began, Model) ->
    #text{late = Late} = State = text(Text, Model),
    put_text(Text, State#text{possible = lists:usort([Content | Late]), era = Began}, Model).

forget_number(#model{generation = Generation} = Model) ->
    Model#model{generation = Generation + 1, number = unknown}.

text(Text, #model{texts = Texts}) ->
    maps:get(Text, Texts).

put_text(Text, State, #model{texts = Texts} = Model) ->
    Model#model{texts = Texts#{Text := State}}.

text_key(Text, #model{prefix = Prefix, caller = Caller}) ->
    <<Prefix/binary, (integer_to_binary(Caller))/binary, ":t", (integer_to_binary(Text))/binary>>.

number_key(#model{prefix = Prefix, caller = Caller, generation = Generation}) ->
    <<Prefix/binary, (integer_to_binary(Caller))/binary, ":n", (integer_to_binary(Generation))/binary>>.

value(Text, Serial, Model) ->
    Name = <<(text_key(Text, Model))/binary, ":", (integer_to_binary(Serial))/binary, " ">>,
    Size = ?MIN_SIZE + erlang:phash2(Name, ?SIZE_RANGE),
    <<Name/binary, (binary:copy(<<"v">>, Size))/binary>>.

shorten(Value) when byte_size(Value) > 60 -> <<(binary:part(Value, 0, 60))/binary, "...">>;
shorten(Value) -> Value.
