%% @doc The code samples of a Markdown file, run as they are printed.
%%
%% A sample is a block between ```` ```Language ```` and ```` ``` ````. What it presumes, a variable, a function or the
%% rest of its module, is given by who runs it.
-module(weir_kit_sample).

-export([blocks/2, replace/3, load/1, load/2, evaluate/1, evaluate/2, evaluate/3, terms/1, handler/2]).
-export([transcript/2, parses/1]).

-type locals() :: #{Function :: atom() => fun()}.

%% @doc The samples of one language, in their order.
-spec blocks(file:filename(), string()) -> [string()].
blocks(File, Language) ->
    {ok, Bytes} = file:read_file(File),
    Pattern = ["^( *)```", Language, "\n(.*?)^ *```$"],
    case re:run(Bytes, Pattern, [global, dotall, multiline, unicode, {capture, [2], list}]) of
        {match, Blocks} -> [Block || [Block] <- Blocks];
        nomatch -> []
    end.

%% @doc A sample with another host or port than the printed one, which a test cannot have.
-spec replace(string(), Printed :: string(), Given :: string() | integer()) -> string().
replace(Block, Printed, Given) -> lists:flatten(string:replace(Block, Printed, lists:concat([Given]), all)).

%% @doc Compiles a sample that is a module, or functions of one, and loads it.
-spec load(string()) -> module().
load(Block) -> load(Block, "").

%% @doc As {@link load/1}, with what the sample leaves out. One without a name is called `sample'. The source is written
%% to the current directory.
-spec load(string(), Rest :: string()) -> module().
load("-module(" ++ _ = Block, Rest) ->
    {match, [Name]} = re:run(Block, "^-module\\((.*?)\\)", [{capture, all_but_first, list}]),
    ok = file:write_file(Name ++ ".erl", unicode:characters_to_binary([Block, $\n, Rest])),
    {ok, Module, Binary} = compile:file(Name, [binary, return_errors, nowarn_export_all]),
    {module, Module} = code:load_binary(Module, Name ++ ".erl", Binary),
    Module;
load(Block, Rest) ->
    load("-module(sample).\n-compile(export_all).\n" ++ Rest ++ "\n" ++ Block, "").

%% @doc Evaluates the expressions of a sample.
-spec evaluate(string()) -> erl_eval:binding_struct().
evaluate(Block) -> evaluate(Block, #{}).

%% @doc As {@link evaluate/1}, where variables are bound already.
-spec evaluate(string(), #{Variable :: atom() => term()}) -> erl_eval:binding_struct().
evaluate(Block, Bindings) -> evaluate(Block, Bindings, #{}).

%% @doc As {@link evaluate/2}, where there are functions too. Each expression up to a full stop is evaluated by itself,
%% as in the shell.
-spec evaluate(string(), #{Variable :: atom() => term()}, locals()) -> erl_eval:binding_struct().
evaluate(Block, Bindings, Locals) ->
    Local = {value, fun(Name, Arguments) -> apply(maps:get(Name, Locals), Arguments) end},
    lists:foldl(
        fun(Tokens, Bound) ->
            {value, _, Next} = expressions(Tokens, Bound, Local),
            Next
        end,
        Bindings,
        split(Block)
    ).

expressions(Tokens, Bindings, Local) ->
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    erl_eval:exprs(Expressions, Bindings, Local).

%% @doc The terms of a sample that is a sys.config.
-spec terms(string()) -> [term()].
terms(Block) ->
    [
        begin
            {ok, Term} = erl_parse:parse_term(Tokens),
            Term
        end
     || Tokens <- split(Block)
    ].

%% @doc Adds the default handler of a sample that is a sys.config to logger, as the kernel would when the node starts,
%% but by another name, and removes it.
-spec handler(string(), logger:handler_id()) -> ok.
handler(Block, Id) ->
    [[{kernel, Kernel}]] = terms(Block),
    [{handler, default, Module, Handler}] = proplists:get_value(logger, Kernel),
    ok = logger:add_handler(Id, Module, Handler),
    ok = logger:remove_handler(Id).

%% @doc Evaluates what was typed in a transcript of the shell, and returns for each command its result and the keys of
%% the maps that are printed below it.
-spec transcript(string(), #{Variable :: atom() => term()}) -> [{Result :: term(), Keys :: [atom()]}].
transcript(Block, Bindings) ->
    {match, Commands} = re:run(Block, "^\\d+> (.*?\\.)$(.*?)(?=^\\d+> |\\z)", [
        global, dotall, multiline, {capture, all_but_first, list}
    ]),
    [{result(Command, Bindings), keys(Printed)} || [Command, Printed] <- Commands].

result(Command, Bindings) ->
    [Tokens] = split(Command),
    {value, Result, _} = expressions(Tokens, Bindings, none),
    Result.

keys(Printed) ->
    case re:run(Printed, "(\\w+) =>", [global, {capture, all_but_first, list}]) of
        {match, Found} -> lists:usort([list_to_atom(Key) || [Key] <- Found]);
        nomatch -> []
    end.

%% @doc Whether a sample that calls what is not here would be understood: forms, expressions or terms.
-spec parses(string()) -> boolean().
parses(Block) ->
    lists:all(
        fun(Form) ->
            %% A macro is read as its name.
            Tokens = [Token || Token <- Form, element(1, Token) =/= '?'],
            element(1, erl_parse:parse_form(Tokens)) =:= ok orelse element(1, erl_parse:parse_exprs(Tokens)) =:= ok
        end,
        split(Block)
    ).

%% The tokens of each form.
split(Text) ->
    case erl_scan:tokens([], Text ++ "\n", 1) of
        {done, {ok, Tokens, _}, Rest} -> [Tokens | split(string:trim(Rest))];
        {done, {eof, _}, _} -> [];
        {more, _} -> []
    end.
