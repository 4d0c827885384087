%% @doc From the call of a start function to the loop: the new process, `init/1', and each of its returns.
%%
%% ```
%%   started by gen          init/1 returned            the starter is answered
%%   named ----------------> {ok, ...} ---------------> {ok, Pid} ----------> weir_server_loop
%%     |                     {stop, Reason}, an exception,
%%     |                     a wrong return ----------> {error, Reason} ----> exit
%%     |                     {error, Reason} ---------> {error, Reason} ----> exit, normal
%%     |                     ignore ------------------> ignore -------------> exit, normal
%%     '-- named otherwise: gen answers {error, {already_started, Pid}}
%% '''
%% A process that fails gives up its name before the starter gets the answer. Otherwise a second start at once could
%% return `already_started'. A process that is killed at any step leaves nothing behind: its name goes with the process,
%% and proc_lib tells the starter by a link or a monitor.
%% @private
-module(weir_server_init).

-export([start/4, start/5, init_it/6, enter_loop/5]).

-include("weir_server.hrl").

-type linkage() :: nolink | link | monitor.

%% @doc Starts a server. The options may have its name. Finds wrong options before a process is spawned.
-spec start(linkage(), module(), Args :: term(), weir_server:options()) -> term().
start(Linkage, Mod, Args, Options) when is_atom(Mod) ->
    case take_name(Options) of
        {nil, Rest} -> checked(Rest, fun(List) -> gen:start(weir_server, Linkage, Mod, Args, List) end);
        {Name, Rest} when is_atom(Name) -> start(Linkage, {local, Name}, Mod, Args, Rest);
        {Name, Rest} ->
            case is_name(Name) of
                true -> start(Linkage, Name, Mod, Args, Rest);
                false -> {error, {bad_option, name, Name}}
            end
    end;
start(Linkage, Mod, Args, Options) ->
    error(badarg, [Linkage, Mod, Args, Options]).

%% @doc Starts a server with a name.
-spec start(linkage(), weir_server:server_name(), module(), Args :: term(), weir_server:options()) -> term().
start(Linkage, Name, Mod, Args, Options) when is_atom(Mod) ->
    is_name(Name) orelse error(badarg, [Linkage, Name, Mod, Args, Options]),
    checked(Options, fun(List) -> gen:start(weir_server, Linkage, Name, Mod, Args, List) end);
start(Linkage, Name, Mod, Args, Options) ->
    error(badarg, [Linkage, Name, Mod, Args, Options]).

%% gen uses the options that it knows, and passes all options to init_it/6.
checked(Options, Start) ->
    case weir_server_opts:parse(Options) of
        %% `started' keeps these calls from being the last ones. With this module on its stack, the process keeps the
        %% code from being purged, and with the code the function.
        {ok, _, _} when is_map(Options) -> started(Start(maps:to_list(Options)));
        {ok, _, _} -> started(Start(Options));
        {error, _} = Error -> Error
    end.

take_name(#{name := Name} = Options) ->
    {Name, maps:remove(name, Options)};
take_name(Options) when is_list(Options) ->
    case lists:keyfind(name, 1, Options) of
        {name, Name} -> {Name, lists:keydelete(name, 1, Options)};
        _ -> {nil, Options}
    end;
take_name(Options) ->
    {nil, Options}.

started(Result) -> Result.

is_name({local, Name}) -> is_atom(Name);
is_name({global, _}) -> true;
is_name({via, Mod, _}) -> is_atom(Mod);
is_name(_) -> false.

%% @doc Runs in the new process. Called by gen, with the options of {@link weir_server:start_link/3}.
-spec init_it(pid(), self | pid(), Name, module(), Args :: term(), weir_server:options()) -> no_return() when
    Name :: weir_server:server_name() | pid().
init_it(Starter, self, Name, Mod, Args, Options) ->
    init_it(Starter, self(), Name, Mod, Args, Options);
init_it(Starter, Parent, Name, Mod, Args, Options) ->
    case weir_server_opts:parse(Options) of
        {ok, Gen, Conf} ->
            Shown = gen:name(Name),
            Debug = gen:debug_options(Shown, Gen),
            case init(Mod, Args, Conf) of
                {ok, State, Action, LoopMod, LoopConf} ->
                    ok = publish_first(LoopConf),
                    proc_lib:init_ack(Starter, {ok, self()}),
                    HibernateAfter = gen:hibernate_after(Gen),
                    weir_server_loop:enter(Parent, Shown, LoopMod, HibernateAfter, LoopConf, State, Action, Debug);
                {fail, Answer, Ending} ->
                    gen:unregister_name(Name),
                    weir_server_otp:fail_start(Starter, Answer, Ending)
            end;
        {error, Reason} = Error ->
            gen:unregister_name(Name),
            weir_server_otp:fail_start(Starter, Error, {exit, Reason})
    end.

%% Publishes before the starter gets the answer, so that the starter's weir_server:info/1 finds a weir_server.
publish_first(#conf{max_queue = Max}) -> weir_server_stats:publish(0, {0, 0, 0}, weir_server_stats:new(Max)).

init(Mod, Args, Conf) ->
    case ?CALLED(Mod:init(Args)) of
        {returned, Returned} ->
            returned(Returned, Mod, Conf);
        {raised, Class, Reason, Stacktrace} ->
            {fail, {error, weir_server_report:exit_reason(Class, Reason, Stacktrace)}, {Class, Reason, Stacktrace}}
    end.

returned({ok, State}, Mod, Conf) ->
    {ok, State, infinity, Mod, Conf};
returned({ok, State, Action} = Returned, Mod, Conf) ->
    accept(weir_server_action:is_action(Action), Returned, {ok, State, Action, Mod, Conf});
returned({ok, State, Action, Backoff} = Returned, Mod, Conf) ->
    Valid = weir_server_action:is_action(Action) andalso weir_server_opts:is_backoff(Backoff),
    accept(Valid, Returned, {ok, State, Action, Mod, Conf#conf{backoff = Backoff}});
returned({ok, State, Action, undefined, NewMod} = Returned, _Mod, Conf) ->
    Valid = weir_server_action:is_action(Action) andalso is_module(NewMod),
    accept(Valid, Returned, {ok, State, Action, NewMod, Conf});
returned({ok, State, Action, Backoff, NewMod} = Returned, _Mod, Conf) ->
    Valid = weir_server_action:is_action(Action) andalso weir_server_opts:is_backoff(Backoff) andalso is_module(NewMod),
    accept(Valid, Returned, {ok, State, Action, NewMod, Conf#conf{backoff = Backoff}});
returned({stop, Reason}, _, _) ->
    {fail, {error, Reason}, {exit, Reason}};
returned({error, _} = Error, _, _) ->
    {fail, Error, {exit, normal}};
returned(ignore, _, _) ->
    {fail, ignore, {exit, normal}};
returned(Other, _, _) ->
    bad(Other).

accept(true, _Returned, Accepted) -> Accepted;
accept(false, Returned, _Accepted) -> bad(Returned).

bad(Returned) ->
    {fail, {error, {bad_return_value, Returned}}, {exit, {bad_return_value, Returned}}}.

%% Loads the module, since the loop asks which callbacks the module exports.
is_module(Mod) ->
    is_atom(Mod) andalso code:ensure_loaded(Mod) =:= {module, Mod}.

%% @doc Makes the calling process a server: {@link weir_server:enter_loop/5}.
-spec enter_loop(module(), weir_server:options(), State :: term(), Name, weir_server:action()) -> no_return() when
    Name :: weir_server:server_name() | pid().
enter_loop(Mod, Options, State, ServerName, Action) ->
    case weir_server_opts:parse(Options) of
        {ok, Gen, Conf} ->
            Name = gen:get_proc_name(ServerName),
            Parent = gen:get_parent(),
            case weir_server_action:is_action(Action) of
                true ->
                    _ = code:ensure_loaded(Mod),
                    ok = publish_first(Conf),
                    Debug = gen:debug_options(Name, Gen),
                    %% The process has had messages before, and its program has chosen where the runtime keeps them.
                    Own = Conf#conf{queue_data = given},
                    weir_server_loop:enter(Parent, Name, Mod, gen:hibernate_after(Gen), Own, State, Action, Debug);
                false ->
                    gen:unregister_name(ServerName),
                    exit({bad_action, Action})
            end;
        {error, Reason} ->
            error(Reason)
    end.
