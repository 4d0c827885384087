%% @doc Descriptions of messages for reports: the *shape* of a term has sizes in place of payloads.
%%
%% A batch of a thousand payloads would make a log of megabytes. A pure module.
%% @private
-module(weir_server_shape).

-export([report_of/1, first/1, shape/1, without_batch/3, hidden/1]).

%% Number of messages that a report shows.
-define(SHOWN, 3).

%% Depth and width of the terms in a report.
-define(DEPTH, 4).
-define(WIDTH, 8).

%% Bytes from which on a report shows the shape of an argument.
-define(LARGE, 1000).

%% The smallest integer that a report does not show.
-define(BIG, (1 bsl 64)).

%% @doc Returns the description of a batch in reports: the number of its messages, and the shapes of the first ones.
-spec report_of([weir_server:message()]) -> {batch, non_neg_integer(), Shapes :: [term()]}.
report_of(Batch) -> {batch, length(Batch), [shape(Message) || Message <- first(Batch)]}.

%% @doc Returns the first messages, as many as reports show.
-spec first([Message]) -> [Message].
first(Messages) -> lists:sublist(Messages, ?SHOWN).

%% @doc Returns the shape of a message.
-spec shape(weir_server:message()) -> term().
shape(Message) -> shape(Message, ?DEPTH).

%% @doc Returns an exception of handle_batch/2 without the batch. A description replaces each batch, or part of a batch,
%% in the arguments of the stack trace and in the reason of an error. The shape replaces an argument of more than ?LARGE
%% bytes, which may be made of the batch.
-spec without_batch(error | exit, Reason :: term(), erlang:stacktrace()) ->
    {error | exit, Reason :: term(), erlang:stacktrace()}.
without_batch(error, {Error, Value}, Stacktrace) -> {error, {Error, hidden(Value, ?DEPTH)}, frames(Stacktrace)};
without_batch(Class, Reason, Stacktrace) -> {Class, Reason, frames(Stacktrace)}.

%% @doc Returns a term with a description in place of each batch in it.
-spec hidden(term()) -> term().
hidden(Term) -> hidden(Term, ?DEPTH).

frames(Stacktrace) -> [frame(Frame) || Frame <- Stacktrace].

frame({Mod, Function, Args, Location}) when is_list(Args) ->
    {Mod, Function, [argument(Arg) || Arg <- Args], Location};
frame({Fun, Args, Location}) when is_list(Args) ->
    {Fun, [argument(Arg) || Arg <- Args], Location};
frame(Frame) ->
    Frame.

argument(Arg) ->
    Hidden = hidden(Arg, ?DEPTH),
    case erlang:external_size(Hidden) > ?LARGE of
        true -> shape(Hidden, ?DEPTH);
        false -> Hidden
    end.

hidden([_ | _] = List, Depth) ->
    case is_batch(List) of
        true -> report_of(List);
        false when Depth > 0 -> hidden_elements(List, Depth - 1);
        false -> List
    end;
hidden(Tuple, Depth) when is_tuple(Tuple), Depth > 0 ->
    list_to_tuple([hidden(Element, Depth - 1) || Element <- tuple_to_list(Tuple)]);
hidden(Map, Depth) when is_map(Map), Depth > 0 ->
    maps:map(fun(_Key, Value) -> hidden(Value, Depth - 1) end, Map);
hidden(Term, _Depth) ->
    Term.

hidden_elements([Element | List], Depth) -> [hidden(Element, Depth) | hidden_elements(List, Depth)];
hidden_elements(End, _Depth) -> End.

is_batch([{cast, _} | List]) -> is_batch(List);
is_batch([{info, _} | List]) -> is_batch(List);
is_batch([{call, {_, _}, _} | List]) -> is_batch(List);
is_batch(End) -> End =:= [].

%% Lists, binaries and maps can be payloads of any size, so a shape has their sizes alone.
shape(Binary, _Depth) when is_bitstring(Binary) -> {binary, byte_size(Binary)};
shape(Map, _Depth) when is_map(Map) -> {map, map_size(Map)};
shape([_ | _] = List, _Depth) -> {list, list_size(List, 0)};
shape(Tuple, Depth) when is_tuple(Tuple), Depth > 0, tuple_size(Tuple) =< ?WIDTH ->
    list_to_tuple([shape(Element, Depth - 1) || Element <- tuple_to_list(Tuple)]);
shape(Tuple, _Depth) when is_tuple(Tuple) -> {tuple, tuple_size(Tuple)};
shape(Fun, _Depth) when is_function(Fun) -> {function, element(2, erlang:fun_info(Fun, arity))};
shape(Integer, _Depth) when is_integer(Integer), abs(Integer) >= ?BIG -> {integer, erlang:external_size(Integer)};
shape(Small, _Depth) -> Small.

%% An improper list has no length.
list_size([_ | List], Size) -> list_size(List, Size + 1);
list_size(_End, Size) -> Size.
