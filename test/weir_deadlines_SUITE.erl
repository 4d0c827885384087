%% The suites have no deadline but the minute of weir_kit:wait_ms/0. A call with OTP's default time-out of five seconds
%% fails now and then on a busy machine. These cases find such calls in the abstract code of the suites.
-module(weir_deadlines_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

%% Functions whose last argument is a time-out, and whose default is five seconds: {Module, Function, Arity without the
%% time-out}. The suites of weir_server call gen_server and weir_server through a variable.
-define(DEFAULTS, [
    {gen_server, call, 2}, {gen_event, call, 3}, {weir_server, call, 2}, {variable, call, 2}, {peer, call, 4},
    {sys, suspend, 1}, {sys, resume, 1}, {sys, terminate, 2}, {sys, change_code, 4},
    {sys, get_state, 1}, {sys, get_status, 1}, {sys, replace_state, 2},
    {sys, statistics, 2}, {sys, log, 2}, {sys, log_to_file, 2}, {sys, trace, 2},
    {sys, install, 2}, {sys, remove, 2}, {sys, no_debug, 1}
]).

%% {Module, Function or all, reason}.
-define(ALLOWED, [
    {newcomer, all, "the program of a user, without weir_kit"},
    {weir_server_client_SUITE, calls, "compares call/2 of gen_server and weir_server"},
    {weir_server_client_SUITE, calls_fail, "compares call/2 of gen_server and weir_server"}
]).

all() -> weir_kit:cases(?MODULE).

suites_call_with_the_minute(_Config) ->
    Modules = modules(),
    ?assert(lists:member(?MODULE, Modules)),
    Found = [{Module, Call} || Module <- Modules, Call <- calls(forms(Module))],
    Unlisted = [Call || Call <- Found, not lists:any(fun(Row) -> allows(Row, Call) end, ?ALLOWED)],
    weir_kit:none(default_time_out, Unlisted),
    weir_kit:none(needless_row, [Row || Row <- ?ALLOWED, not lists:any(fun(Call) -> allows(Row, Call) end, Found)]).

finds_each_default(_Config) ->
    [
        ?assertEqual([{f, 1, {Module, Name, Arity}}], calls([form(call(Module, Name, Arity))]))
     || {Module, Name, Arity} <- ?DEFAULTS
    ],
    ?assertEqual([{f, 1, {sys, suspend, 1}}], calls([form("lists:foreach(fun sys:suspend/1, Pids)")])).

%% A written time-out may be the subject of a case.
leaves_time_outs(_Config) ->
    [?assertEqual([], calls([form(call(Module, Name, Arity + 1))])) || {Module, Name, Arity} <- ?DEFAULTS].

%% ---------------------------------------------------------------- help

%% Returns all suites, the modules beside them, and the modules of weir_kit.
modules() ->
    Suites = [Path || Path <- code:get_path(), filename:basename(Path) =:= "test"],
    Folders = [filename:dirname(code:which(weir_kit)) | Suites],
    [list_to_atom(filename:basename(File, ".beam"))
        || Folder <- Folders, File <- filelib:wildcard(filename:join(Folder, "*.beam"))].

forms(Module) ->
    {ok, {Module, [{abstract_code, {raw_abstract_v1, Forms}}]}} = beam_lib:chunks(code:which(Module), [abstract_code]),
    Forms.

%% Returns the calls in DEFAULTS as [{Function that calls, Line, Call}].
calls(Forms) ->
    [{Function, Line, Call} || {function, _, Function, _, Clauses} <- Forms, {Line, Call} <- in(Clauses),
        lists:member(Call, ?DEFAULTS)].

in({call, At, {remote, _, Module, {atom, _, Name}} = Callee, Args}) ->
    [{erl_anno:line(At), {module(Module), Name, length(Args)}} | in(Callee) ++ in(Args)];
in({'fun', At, {function, Module, {atom, _, Name}, {integer, _, Arity}}}) ->
    [{erl_anno:line(At), {module(Module), Name, Arity}}];
in(Tuple) when is_tuple(Tuple) -> in(tuple_to_list(Tuple));
in([Head | Tail]) -> in(Head) ++ in(Tail);
in(_) -> [].

module({atom, _, Module}) -> Module;
module(_) -> variable.

allows({Module, Function, _Reason}, {Module, {In, _Line, _Call}}) -> lists:member(Function, [In, all]);
allows(_Row, _Call) -> false.

call(variable, Name, Arity) -> call("Module", Name, Arity);
call(Module, Name, Arity) -> lists:concat([Module, ":", Name, "(", string:join(lists:duplicate(Arity, "x"), ","), ")"]).

form(Body) ->
    {ok, Tokens, _} = erl_scan:string("f() -> " ++ Body ++ "."),
    {ok, Form} = erl_parse:parse_form(Tokens),
    Form.
