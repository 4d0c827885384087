%% Runs a script on gen_server and on weir_server, and compares what it saw. gen_server, of whatever release runs the
%% test, is the oracle.
%%
%% A script is a fun of the module to use. The observation of a script is its result, and the reports of gen_server and
%% proc_lib that were logged meanwhile, with the text that their formatters make. An observation is free of the terms
%% that differ between any two runs (pids, references, sizes of heaps) and of the names and frames of the machinery.
-module(weir_server_same).

-include_lib("stdlib/include/assert.hrl").

-export([check/1, check_all/1, check_from/3, run/2, run/3, normal/1, mailbox/0, result/1]).
-export([on_two_nodes/2, silence/1, unsilence/1]).

%% the handler
-export([log/2]).

-define(LABELS, [{gen_server, terminate}, {gen_server, no_handle_info}, {proc_lib, crash}]).

%% Compares one script.
check(Script) ->
    ?assertEqual(run(gen_server, Script), run(weir_server, Script)).

%% Compares scripts with names: `[{Name, Script}]'. Runs all of them, and shows those that differ.
check_all(Scripts) ->
    Differing = [
        {Name, {gen_server, Expected}, {weir_server, Actual}}
     || {Name, Script} <- Scripts,
        Expected <- [run(gen_server, Script)],
        Actual <- [run(weir_server, Script)],
        Expected =/= Actual
    ],
    ?assertEqual([], Differing).

%% Compares the result of a script with the expected one, and from this release of OTP on also with gen_server.
check_from(Release, Expected, Script) ->
    {Returned, _} = run(weir_server, Script),
    ?assertEqual({returned, Expected}, Returned),
    weir_server_loop_lib:release_number() < Release orelse check(Script).

run(S, Script) ->
    run(S, Script, #{}).

%% Runs a script in a process of its own, so that its messages do not reach the next one, and returns what it saw. If
%% the script met a deadline, fails with the error of that. Options: `trap_exit'.
run(S, Script, Options) ->
    Self = self(),
    Id = list_to_atom("same_" ++ integer_to_list(erlang:unique_integer([positive]))),
    Run = fun() ->
        process_flag(trap_exit, maps:get(trap_exit, Options, false)),
        %% A process that another script has left behind may still log a report.
        Others = maps:from_keys(processes(), other),
        ok = logger:add_handler(Id, ?MODULE, #{config => #{tell => self(), others => Others}}),
        Result =
            try
                {returned, Script(S)}
            catch
                Class:Reason:Stacktrace -> {raised, Class, Reason, Stacktrace}
            after
                ok = logger:remove_handler(Id)
            end,
        Self ! {Id, normal({Result, [shown(Event) || Event <- logged()]})}
    end,
    {Pid, Ref} = spawn_monitor(Run),
    receive
        {Id, {{raised, error, {never, _, _} = Late, _}, _}} ->
            error(Late);
        {Id, Observed} ->
            receive {'DOWN', Ref, process, Pid, _} -> Observed end;
        {'DOWN', Ref, process, Pid, Reason} ->
            _ = logger:remove_handler(Id),
            normal({died, Reason})
    end.

%% Called by logger in the process that logs, so before that process is gone.
log(#{msg := {report, #{label := Label}}} = Event, #{config := #{tell := Pid, others := Others}}) ->
    _ = lists:member(Label, ?LABELS) andalso not is_map_key(self(), Others) andalso (Pid ! {?MODULE, Event}),
    ok;
log(_, _) ->
    ok.

logged() ->
    receive {?MODULE, Event} -> [Event | logged()] after 0 -> [] end.

shown(#{level := Level, msg := {report, #{label := {proc_lib, crash}, report := [Info, Linked]}}}) ->
    %% The client may have sent the next message before the crash.
    Varying = [pid, heap_size, stack_size, reductions, dictionary, message_queue_len, messages],
    Dictionary = lists:sort(proplists:get_value(dictionary, Info)),
    {Level, crash, [Item || {Key, _} = Item <- Info, not lists:member(Key, Varying)], Dictionary, length(Linked)};
shown(#{level := Level, msg := {report, Given}, meta := #{report_cb := Long, domain := Domain} = Meta}) ->
    %% Only weir_server has this key.
    Report = maps:without([drained], Given),
    #{tag := Tag, report_cb := Short} = maps:get(error_logger, Meta),
    {Format, Args} = Short(Report),
    Texts = [
        lists:flatten(Long(Report, #{depth => Depth, chars_limit => Limit, single_line => Single}))
     || Depth <- [unlimited, 10], Limit <- [unlimited, 4096], Single <- [true, false]
    ],
    %% Text with a stack trace in it cannot be freed of its frames.
    Text =
        case has_stacktrace(Report) of
            true -> [length(Texts)];
            false -> [lists:flatten(io_lib:format(Format, Args)) | Texts]
        end,
    {Level, Domain, Tag, Report, Text}.

has_stacktrace(#{client_info := {_, {_, _}}}) -> true;
has_stacktrace(#{reason := Reason}) -> has_frame(Reason);
has_stacktrace(_) -> false.

has_frame({M, F, A, L}) when is_atom(M), is_atom(F), is_integer(A) orelse is_list(A), is_list(L) -> true;
has_frame(Term) when is_tuple(Term) -> lists:any(fun has_frame/1, tuple_to_list(Term));
has_frame([Head | Tail]) -> has_frame(Head) orelse has_frame(Tail);
has_frame(_) -> false.

%% Frees a term of what differs between two runs, and of the machinery's names.
normal(weir_server) ->
    gen_server;
%% The entry of the process dictionary that weir_server:info/1 reads.
normal({'$weir_server', _}) ->
    machinery;
%% In a status.
normal({statistics, {_Start, {reductions, _}, In, Out}}) ->
    {statistics, In, Out};
%% A report has eight frames, and the number of the machinery's depends on where in its call the client was.
normal({client_info, {Pid, {Name, [_ | _] = Stack}}}) ->
    {client_info, {normal(Pid), {normal(Name), lists:sublist(normal_list(Stack), 2)}}};
normal(Pid) when is_pid(Pid) ->
    pid;
normal(Ref) when is_reference(Ref) ->
    ref;
normal(Port) when is_port(Port) ->
    port;
normal(Fun) when is_function(Fun) ->
    {module, Mod} = erlang:fun_info(Fun, module),
    {arity, Arity} = erlang:fun_info(Fun, arity),
    case lists:member(Mod, machinery()) of
        true -> {a_fun, Arity};
        false -> {a_fun, Mod, Arity}
    end;
normal({M, F, A, L}) when is_atom(M), is_atom(F), is_integer(A) orelse is_list(A), is_list(L) ->
    case lists:member(M, machinery()) of
        true -> machinery;
        false -> {frame, M, F, normal(A)}
    end;
normal(Tuple) when is_tuple(Tuple) ->
    list_to_tuple(normal(tuple_to_list(Tuple)));
normal(Map) when is_map(Map) ->
    maps:from_list(normal(maps:to_list(Map)));
normal(List) when is_list(List), List =/= [] ->
    case io_lib:printable_unicode_list(List) of
        true -> normal_text(List);
        false -> normal_list(List)
    end;
normal(Other) ->
    Other.

normal_list([Head | Tail]) ->
    case normal(Head) of
        machinery -> normal_list(Tail);
        Normal -> [Normal | normal_list(Tail)]
    end;
normal_list(Tail) ->
    normal(Tail).

normal_text(Text) ->
    lists:foldl(
        fun({What, By}, T) -> re:replace(T, What, By, [global, unicode, {return, list}]) end,
        Text,
        [
            {"<[0-9]+\\.[0-9]+\\.[0-9]+>", "<pid>"},
            {"#Ref<[0-9.]+>", "<ref>"},
            {"weir_server:", "gen_server:"},
            %% Where a term is broken into lines depends on how long its pids and references are.
            {"\n +", ""}
        ]
    ).

machinery() ->
    [
        gen_server, gen, sys, proc_lib, ?MODULE,
        weir_server, weir_server_loop, weir_server_init, weir_server_report, weir_server_client, weir_server_otp,
        weir_server_system
    ].

%% Returns the messages of the caller's mailbox, without the logged events. Messages may arrive meanwhile: the order of
%% weir_kit:messages/0 would not be theirs then.
mailbox() ->
    {messages, Messages} = process_info(self(), messages),
    [Msg || Msg <- Messages, not is_tuple(Msg) orelse element(1, Msg) =/= ?MODULE].

%% Calls the function, and returns its result or its exception.
result(Fun) ->
    try
        Fun()
    catch
        Class:Reason -> {Class, Reason}
    end.

%% Calls a function of a suite in a new node, with the name of another new node.
on_two_nodes(Suite, Function) ->
    Nodes = [First, #{name := Second}] = [weir_kit_nodes:start([]) || _ <- [first, second]],
    try
        ok = weir_kit_nodes:connect(Nodes),
        ok = weir_kit_nodes:call(First, logger, set_primary_config, [level, notice]),
        weir_kit_nodes:call(First, Suite, Function, [Second])
    after
        lists:foreach(fun weir_kit_nodes:kill/1, Nodes)
    end.

%% Keeps the reports, which the scripts cause, away from the terminal.
silence(Config) ->
    case logger:get_handler_config(default) of
        {ok, #{level := Level}} ->
            ok = logger:set_handler_config(default, level, none),
            [{default_level, Level} | Config];
        {error, _} ->
            Config
    end.

unsilence(Config) ->
    case proplists:get_value(default_level, Config) of
        undefined -> ok;
        Level -> logger:set_handler_config(default, level, Level)
    end.
