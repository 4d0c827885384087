%% @doc Attaches to a node that has nothing of Weir, and leaves it as it was.
%%
%% {@link attach/1} starts a process on the node, the guard, and sends it the modules of the agent. The guard loads
%% them, starts one agent, and monitors the process that attached. When that process has detached, ended, or cannot be
%% reached any more (its node was killed, the net is cut), the guard stops the agent, deletes and purges the modules
%% that it loaded, and ends. No process, name, table, or module stays; what stays are atoms, and the modules of OTP that
%% the node loaded meanwhile.
%%
%% There is one guard on a node, by its name (`weir_watch_guard', which is local). It serves all who are attached, so
%% two of them do not take the modules from each other: the last one's end removes them. One who comes while the guard
%% removes them waits until it has, and begins anew.
%%
%% What the guard runs is no module: it is given as forms that OTP's `erl_eval' evaluates, so that it may purge the
%% modules, and its code is the same on every OTP. It purges softly: a process that runs their code is never killed, but
%% for the agent. A purge asks each process of the node whether it runs the code: at 1,000,000 idle processes that took
%% 2.3 s of one core for each module. The node goes on meanwhile.
%%
%% A node that has modules of these names is refused, unless they are the same ones (by MD5): then these are used, and
%% stay. Where the node already runs weir_watch, its agent serves, and there is no guard.
%%
%% Compiled code loads on the OTP that it was compiled on, and some near it: not on an older one, nor, if it is from OTP
%% 25, on 29. So a node of another OTP than the compiler's gets the code as forms (the `debug_info' of our modules),
%% which its own compiler compiles there; where it has none, the compiled modules are tried if the node's OTP is newer.
%%
%% The guard's state is its own. When it is killed, the agent ends with its last subscriber, and the modules stay
%% loaded.
%% @private
-module(weir_watch_remote).

-export([attach/1, detach/1, connect/1, is_name/1, explain/2, carry/1]).

-export_type([handle/0, reason/0]).

-opaque handle() :: {Guard :: pid(), Tag :: reference()} | none.
%% What ends it, for {@link detach/1}.

-type reason() ::
    not_distributed
    | {no_host, string()}
    | {no_epmd, string()}
    | {no_name, [string()]}
    | refused
    | disconnected
    | timeout
    | too_old
    | {other_modules, [module()]}
    | {no_compiler, Release :: integer()}
    | {not_loaded, term()}
    | {no_agent, term()}
    | {failed, term()}.
%% Why a node cannot be looked at; `explain/2' says it in words.

%% Loading waits for the node's code server, and an end before us for its purge.
-define(TIMEOUT, 60_000).
-define(TRIES, 5).

%% @doc Connects to the node and starts an agent there. What to call then is {@link weir_watch_agent:subscribe/1}. The
%% agent ends when the caller does; it may have ended already when another's end came in between, and then one attaches
%% again.
-spec attach(node()) -> {ok, Agent :: pid(), handle()} | {error, reason()}.
attach(Node) ->
    try
        _ = [throw(Reason) || {error, Reason} <- [connect(Node)]],
        Code = code_for(Node),
        case on(Node, erlang, whereis, [weir_watch_agent]) of
            undefined -> ask(start_guard(Node, Code), Code, ?TRIES);
            Agent -> {ok, Agent, none}
        end
    catch
        throw:Reason -> {error, Reason}
    end.

%% @doc Ends what an attach/1 began. When it returns, nothing is left on the node, unless others are attached to it, it
%% has taken longer than a minute, or it is out of reach: then that is done when the node finds out.
-spec detach(handle()) -> ok.
detach(none) ->
    ok;
detach({Guard, Tag}) ->
    %% An alias: what is late is not left in the caller's mailbox.
    Monitor = monitor(process, Guard, [{alias, demonitor}]),
    Guard ! {detach, Tag, Monitor, Monitor},
    receive
        {Monitor, detached} -> ok;
        {'DOWN', Monitor, process, Guard, _} -> ok
    after ?TIMEOUT -> ok
    end,
    true = demonitor(Monitor, [flush]),
    receive {Monitor, detached} -> ok after 0 -> ok end.

%% ---------------------------------------------------------------- the code

%% The agent's modules for this node, [{Module, File, Beam}]: as we have them, or as its own compiler makes them.
code_for(Node) ->
    Own = [own(Module) || Module <- weir_watch_agent:modules()],
    There = [{Module, Md5} || {Module, _, _} <- Own, Md5 <- md5_there(Node, Module)],
    Release = list_to_integer(on(Node, erlang, system_info, [otp_release])),
    Runs = There =/= [] orelse Release =:= ?OTP_RELEASE,
    case differing(Node, Own, There) of
        [] when Runs ->
            Own;
        Differing ->
            case {compiled_there(Node, Own), Differing} of
                {{ok, Code}, _} -> check(Node, Code, There);
                {none, []} when Release > ?OTP_RELEASE -> Own;
                {none, []} -> throw({no_compiler, Release});
                {none, _} -> throw({other_modules, Differing})
            end
    end.

check(Node, Code, There) ->
    case differing(Node, Code, There) of
        [] -> Code;
        Differing -> throw({other_modules, Differing})
    end.

own(Module) ->
    Beam =
        case persistent_term:get(?MODULE, #{}) of
            #{Module := Carried} ->
                Carried;
            #{} ->
                {Module, Code, _File} = code:get_object_code(Module),
                Code
        end,
    {Module, "sent by weir top", Beam}.

%% @doc The command's modules, as they were compiled when it was made: it has them in no path, and on another OTP runs
%% what that has compiled of them.
-spec carry(#{module() => binary()}) -> ok.
carry(Beams) -> persistent_term:put(?MODULE, Beams).

%% MD5s are the node's: another OTP may make another one of the same file.
differing(Node, Code, There) ->
    [M || {M, Md5} <- There, {Other, _, Beam} <- Code, M =:= Other, on(Node, code, module_md5, [Beam]) =/= Md5].

%% None or one: of the module that is loaded, or would be.
md5_there(Node, Module) ->
    try
        [on(Node, erlang, get_module_info, [Module, md5])]
    catch
        throw:{failed, _} ->
            case on(Node, code, get_object_code, [Module]) of
                {Module, Beam, _} -> [on(Node, code, module_md5, [Beam])];
                error -> []
            end
    end.

%% Which features of the language are on is a part of the MD5, and not of the forms.
compiled_there(Node, Code) ->
    try
        %% Encoded there: OTPs encode atoms differently.
        Meta = on(Node, erlang, term_to_binary, [[{enabled_features, on(Node, erl_features, enabled, [])}]]),
        {ok, [
            begin
                Forms = forms(Beam),
                Options = [{extra_chunks, [{<<"Meta">>, Meta}]}],
                {ok, Module, Compiled} = on(Node, compile, noenv_forms, [Forms, Options]),
                {Module, File, Compiled}
            end
         || {Module, File, Beam} <- Code
        ]}
    catch
        throw:{failed, _} -> none
    end.

%% A release may have stripped them.
forms(Beam) ->
    case beam_lib:chunks(Beam, [abstract_code]) of
        {ok, {_, [{abstract_code, {_, Forms}}]}} -> Forms;
        _ -> throw({failed, no_forms})
    end.

%% What the function returns on the node. Throws why not.
on(Node, Module, Function, Args) ->
    try
        erpc:call(Node, Module, Function, Args, ?TIMEOUT)
    catch
        error:{erpc, noconnection} -> throw(disconnected);
        error:{erpc, timeout} -> throw(timeout);
        error:{erpc, notsup} -> throw(too_old);
        _:Reason -> throw({failed, Reason})
    end.

%% ---------------------------------------------------------------- the guard

%% What the guard evaluates. `Tag' and `Started' are an alias of the one who asks: an answer that comes too late is not
%% left in a mailbox. `Attach' is the message of the one who started it, `Code' the modules. Its own state is the
%% list of those attached, and the agent. It tells by a pid who is the guard, if it is not this process.
-define(GUARD,
    " {attach, _, Started, Md5s} = Attach,"
    " Md5 = fun(M) -> try erlang:get_module_info(M, md5) catch error:badarg -> none end end,"
    " Purge = fun Purge(Modules, Pause) ->"
    "     Left = [M || M <- Modules, not code:soft_purge(M)],"
    "     case Left =:= [] orelse Pause > 30000 of"
    "         true -> ok;"
    "         false -> receive after Pause -> Purge(Left, 2 * Pause) end"
    "     end"
    " end,"
    " Gone = fun(Pid, Limit) ->"
    "     M = monitor(process, Pid),"
    "     receive {'DOWN', M, process, Pid, _} -> ok"
    "     after Limit -> exit(Pid, kill), receive {'DOWN', M, process, Pid, _} -> ok end end"
    " end,"
    " End = fun(Agent, Loaded) ->"
    "     case Agent of"
    "         none -> ok;"
    "         _ -> try proc_lib:stop(Agent, shutdown, 5000) catch _:_ -> ok end, Gone(Agent, 1000)"
    "     end,"
    "     Purge([M || {M, Was} <- Loaded, Md5(M) =:= Was, code:delete(M)], 100)"
    " end,"
    " Start = fun(none) -> try weir_watch_agent:start() catch _:Why -> {error, Why} end; (Agent) -> {ok, Agent} end,"
    " Serve = fun Serve(Attached, Agent, Loaded) ->"
    "     Without = fun([], A) -> End(A, Loaded); (Others, A) -> Serve(Others, A, Loaded) end,"
    "     receive"
    "         {attach, Pid, Tag, Md5s} ->"
    "             case Start(Agent) of"
    "                 {ok, A} ->"
    "                     Agent =:= A orelse monitor(process, A),"
    "                     Tag ! {Tag, {ok, A}},"
    "                     Serve([{Tag, monitor(process, Pid)} | Attached], A, Loaded);"
    "                 {error, Why} -> Tag ! {Tag, {error, {no_agent, Why}}}, Without(Attached, none)"
    "             end;"
    "         {attach, _, Tag, Others} ->"
    "             Tag ! {Tag, {error, {other_modules, [M || {M, _} <- Others -- Md5s]}}},"
    "             Serve(Attached, Agent, Loaded);"
    "         {detach, Tag, Pid, Request} ->"
    "             case lists:keytake(Tag, 1, Attached) of"
    "                 {value, {_, Monitor}, []} -> demonitor(Monitor), End(Agent, Loaded);"
    "                 {value, {_, Monitor}, Others} ->"
    "                     demonitor(Monitor), Pid ! {Request, detached}, Serve(Others, Agent, Loaded);"
    "                 false -> Pid ! {Request, detached}, Serve(Attached, Agent, Loaded)"
    "             end;"
    "         {'DOWN', _, process, Agent, _} -> Serve(Attached, none, Loaded);"
    "         {'DOWN', Monitor, process, _, _} -> Without(lists:keydelete(Monitor, 2, Attached), Agent);"
    "         _ -> Serve(Attached, Agent, Loaded)"
    "     end"
    " end,"
    " try register(weir_watch_guard, self()) of"
    "     true ->"
    "         group_leader(case whereis(user) of undefined -> whereis(init); User -> User end, self()),"
    "         New = [Each || {M, _, _} = Each <- Code, Md5(M) =:= none, code:which(M) =:= non_existing],"
    "         case code:atomic_load(New) of"
    "             ok -> self() ! Attach, Serve([], none, [{M, Md5(M)} || {M, _, _} <- New]);"
    "             {error, Refused} -> Started ! {Started, {error, {not_loaded, Refused}}}"
    "         end"
    " catch error:badarg -> Started ! {Started, whereis(weir_watch_guard)}"
    " end."
).

%% Of several that are started at once, the first to have the name is the guard, and the others only say so.
start_guard(Node, Code) ->
    {ok, Tokens, _} = erl_scan:string(?GUARD),
    {ok, Forms} = erl_parse:parse_exprs(Tokens),
    Md5s = [{Module, on(Node, code, module_md5, [Beam])} || {Module, _, Beam} <- Code],
    Attach = {attach, self(), alias(), Md5s},
    Guard = spawn(Node, erl_eval, exprs, [Forms, [{'Attach', Attach}, {'Code', Code}]]),
    {Guard, Attach}.

%% Waits for what the guard says; another one that has ended meanwhile is followed by a new one.
ask({Guard, {attach, _, Tag, _} = Attach}, Code, Tries) ->
    Monitor = monitor(process, Guard),
    Result =
        receive
            {Tag, Answer} -> Answer;
            {'DOWN', Monitor, process, Guard, noconnection} -> {error, disconnected};
            {'DOWN', Monitor, process, Guard, Reason} when Tries =:= 0 -> {error, {no_agent, Reason}};
            {'DOWN', Monitor, process, Guard, _} -> undefined
        after ?TIMEOUT ->
            Guard ! {detach, Tag, Tag, Tag},
            {error, timeout}
        end,
    true = demonitor(Monitor, [flush]),
    case Result of
        Other when is_pid(Other) ->
            Other ! Attach,
            ask({Other, Attach}, Code, Tries);
        _ ->
            _ = unalias(Tag),
            receive {Tag, _} -> ok after 0 -> ok end,
            case Result of
                {ok, Agent} -> {ok, Agent, {Guard, Tag}};
                {error, _} -> Result;
                undefined -> ask(start_guard(node(Guard), Code), Code, Tries - 1)
            end
    end.

%% ---------------------------------------------------------------- the connection

%% @doc Whether a node may have that name: `name@host', of which neither is empty.
-spec is_name(term()) -> boolean().
is_name(Node) ->
    is_atom(Node) andalso
        case string:split(atom_to_list(Node), "@", all) of
            [[_ | _], [_ | _]] -> true;
            _ -> false
        end.

%% @doc Connects to the node, as a hidden one if this node was started so, or says why that cannot be.
-spec connect(node()) -> ok | {error, reason()}.
connect(Node) when Node =:= node() ->
    ok;
connect(Node) ->
    case net_kernel:connect_node(Node) of
        true -> ok;
        ignored -> {error, not_distributed};
        false -> {error, unconnected(Node)}
    end.

%% The host, epmd, the name, and the node itself, in this order, could each be the reason.
unconnected(Node) ->
    [Name, Host] = string:split(atom_to_list(Node), "@"),
    case erl_epmd:names(Host) of
        {error, address} ->
            case inet:gethostbyname(Host) of
                {ok, _} -> {no_epmd, Host};
                {error, _} -> {no_host, Host}
            end;
        {error, Reason} when Reason =:= nxdomain; Reason =:= einval ->
            {no_host, Host};
        {error, _} ->
            {no_epmd, Host};
        {ok, Names} ->
            case lists:keymember(Name, 1, Names) of
                true -> refused;
                false -> {no_name, [Other || {Other, _Port} <- Names]}
            end
    end.

%% @doc What the reason means, and what to do about it, as one or two sentences about the node.
-spec explain(node(), reason()) -> iodata().
explain(Node, Reason) -> io_lib:format("~ts: ~ts", [Node, explain(Reason)]).

explain(not_distributed) ->
    "this node is not distributed, so it can reach no other. Start it with -sname or -name.";
explain({no_host, Host}) ->
    io_lib:format("the host ~ts is not known here. Is it the name with which the node was started?", [Host]);
explain({no_epmd, Host}) ->
    io_lib:format(
        "epmd does not answer on ~ts (port 4369), so no distributed node runs there, or a firewall is in between. "
        "Is the node running, with -sname or -name?",
        [Host]
    );
explain({no_name, []}) ->
    "no node has that name there, nor any other. Is it running, with -sname or -name?";
explain({no_name, Names}) ->
    io_lib:format("no node has that name there. These run: ~ts.", [lists:join(", ", Names)]);
explain(refused) ->
    "it runs, but did not let us in: the cookie is another (give it with --cookie, or in ~/.erlang.cookie), "
    "the node has a long name and was given by its short one or the other way round, or a firewall closes its port.";
explain(disconnected) ->
    "the connection was lost.";
explain(timeout) ->
    "it is connected, and did not answer within a minute.";
explain(too_old) ->
    "it runs an OTP older than 25, which is the oldest that weir can look at.";
explain({other_modules, Modules}) ->
    io_lib:format(
        "it has another version of ~ts, which this weir does not replace. "
        "Use the weir of that version, or weir_watch:top() in a shell of that node.",
        [lists:join(", ", [atom_to_list(Module) || Module <- Modules])]
    );
explain({no_compiler, Release}) ->
    io_lib:format(
        "it runs OTP ~b, which does not load code compiled by OTP ~b as this weir was, and has no compiler. "
        "Build weir on OTP ~b.",
        [Release, ?OTP_RELEASE, Release]
    );
explain({not_loaded, Reason}) ->
    io_lib:format("it did not load the code of the agent: ~0tp", [Reason], [{chars_limit, 500}]);
explain({failed, Reason}) ->
    io_lib:format("it did not answer as a node does: ~0tp", [Reason], [{chars_limit, 500}]);
explain({no_agent, Reason}) ->
    io_lib:format("the agent could not be started there: ~0tp", [Reason], [{chars_limit, 500}]).
