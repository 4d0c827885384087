%% @doc Terms as JSON, for programs that read what weir_watch finds. Whatever the term, what comes out is JSON: no term
%% is an error, and none is printed without a bound.
%%
%% | Erlang | JSON |
%% |---|---|
%% | `true', `false'; `null', `undefined' | the same; `null' |
%% | another atom, a binary | a string; what is not UTF-8 in a binary becomes U+FFFD |
%% | an integer, a float | a number, a float with as few digits as read back to the same float |
%% | a list, a map | an array, an object. Keys are atoms, binaries or integers; others as below |
%% | `{Module, Function, Arity}' | `"module:function/arity"' |
%% | `{What, Share}', `What' being such a function or a binary | `{"what": ..., "share": ...}' |
%% | a pid | a string: `"<0.123.0>"', as its own node prints it, with ` on Node' behind it where that is not `Home' |
%% | anything else | a string: the term as Erlang prints it, in some 200 characters |
%%
%% Functions without processes: nothing to leave behind.
%% @private
-module(weir_watch_json).

-export([encode/1, encode/2, pid/2]).

-define(PRINTED, 200).

%% @doc The term as JSON in UTF-8, on one line.
-spec encode(term()) -> iodata().
encode(Term) -> encode(Term, node()).

%% @doc The same, for terms that came from the node `Home': its pids are printed as it prints them.
-spec encode(term(), Home :: node()) -> iodata().
encode(undefined, _Home) ->
    <<"null">>;
encode(Atom, _Home) when Atom =:= true; Atom =:= false; Atom =:= null ->
    atom_to_binary(Atom);
encode(Integer, _Home) when is_integer(Integer) ->
    integer_to_binary(Integer);
encode(Float, _Home) when is_float(Float) ->
    float_to_binary(Float, [short]);
encode([], _Home) ->
    <<"[]">>;
encode([_ | _] = List, Home) when length(List) > 0 ->
    [$[, lists:join($,, [encode(Element, Home) || Element <- List]), $]];
encode(Map, Home) when is_map(Map) ->
    Members = [[string(text(Key, Home)), $:, encode(Value, Home)] || {Key, Value} <- maps:to_list(Map)],
    [${, lists:join($,, Members), $}];
encode({{M, F, A} = Call, Share}, Home) when is_atom(M), is_atom(F), is_integer(A), is_number(Share) ->
    encode(#{what => Call, share => Share}, Home);
encode({What, Share}, Home) when is_binary(What), is_number(Share) ->
    encode(#{what => What, share => Share}, Home);
encode(Term, Home) ->
    string(text(Term, Home)).

%% @doc A pid as its own node prints it, and which node that is, where it is not `Home'.
-spec pid(pid(), Home :: node()) -> binary().
pid(Pid, Home) ->
    [_, Rest] = string:split(pid_to_list(Pid), "."),
    Local = list_to_binary(["<0.", Rest]),
    case node(Pid) of
        Home -> Local;
        Node -> <<Local/binary, " on ", (atom_to_binary(Node))/binary>>
    end.

text(Binary, _Home) when is_binary(Binary) ->
    Binary;
text(Atom, _Home) when is_atom(Atom) ->
    atom_to_binary(Atom);
text(Pid, Home) when is_pid(Pid) ->
    pid(Pid, Home);
text({M, F, A}, _Home) when is_atom(M), is_atom(F), is_integer(A) ->
    iolist_to_binary([atom_to_binary(M), $:, atom_to_binary(F), $/, integer_to_binary(A)]);
text(Term, _Home) ->
    unicode:characters_to_binary(io_lib:format("~0tp", [Term], [{chars_limit, ?PRINTED}])).

string(Text) -> [$", escape(Text, <<>>), $"].

escape(<<C, Rest/binary>>, Acc) when C =:= $"; C =:= $\\ ->
    escape(Rest, <<Acc/binary, $\\, C>>);
escape(<<C, Rest/binary>>, Acc) when C < 16#20; C =:= 16#7F ->
    escape(Rest, <<Acc/binary, (iolist_to_binary(io_lib:format("\\u~4.16.0b", [C])))/binary>>);
escape(<<C/utf8, Rest/binary>>, Acc) ->
    escape(Rest, <<Acc/binary, C/utf8>>);
escape(<<_, Rest/binary>>, Acc) ->
    escape(Rest, <<Acc/binary, 16#FFFD/utf8>>);
escape(<<>>, Acc) ->
    Acc.
