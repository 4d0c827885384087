%% @doc The process that learns of a suspect by tracing what nothing else tells: how many messages it handles in a
%% second; which functions send to it, in which processes, and messages of what kind; and which ets tables it uses. It
%% does so in a trace session of its own. There is none before OTP 27, where all who trace share the one that there is:
%% that is not taken from anybody, and this process is not started.
%%
%% Nothing of the suspect is locked or asked. To set a trace flag of it, as tracing what it receives would need, takes
%% its lock, and a scheduler would stand still until a suspect in a long collection or in native code lets go of it. A
%% meta breakpoint needs no flag: its match specification runs in each process that calls the function, and knows the
%% suspect by what it is called with or in. What it finds it counts in the node's trace control word, the one thing that
%% it can write. So one process of the node does this at a time, the one that has this module's name; it begins at
%% ?MARK, and ends at 0. Where the word is somebody else's it learns nothing.
%%
%% To count, no trace message is sent, and nothing copied. To learn who sends and which tables, each fifteenth call
%% sends one, at most ?SAMPLES: they hold what the call was given, a message or an object, which the call itself copies
%% as well. Those of a suspect whose messages together are too large for this process end it, and it is not asked again
%% about that one. What is told of a message is its kind.
%%
%% A breakpoint takes each call in the node 0.15 microseconds, and one that counts 0.6. To set or remove it takes as
%% long as it takes all schedulers to have a turn, so this process may wait for one that is in native code. It ends with
%% the agent, however that ends, and gives the word back; its session ends with it, and takes its breakpoints along.
%% @private
-module(weir_watch_trace).

-export([is_possible/0, callbacks/1, start_link/0, stop/1, ask/3]).
-export([init/1, loop/2]).

-export_type([question/0, found/0]).

%% For so long, and where there are fewer, for so much longer.
-define(TRACE_MS, 200).
-define(FEW, 100).
-define(MORE_MS, 1800).
-define(SAMPLES, 16).
%% An odd number: one call of another may send by calling a second one that is traced.
-define(EACH, 15).
%% The upper eight bits say that it is the count of a process of this module, which may have been killed.
-define(MARK, 16#57000000).
-define(MARKED, 16#ff000000).

-type question() :: {handled, [mfa()]} | {sent, [pid() | atom()]} | tables.
%% How often it enters these functions in a second; who sends to it by its pid and names; which tables it uses.
-type found() :: #{
    handled => non_neg_integer() | undefined,
    sent => [{Sender :: pid(), weir_watch:call() | undefined, Kind :: binary()}],
    tables => [atom()]
}.
%% The function is the one that called OTP to send; `undefined' where that is not known.

%% @doc Whether the runtime has trace sessions. The module `trace' is loaded if it is there.
-spec is_possible() -> boolean().
is_possible() ->
    _ = code:ensure_loaded(trace()),
    erlang:function_exported(trace(), session_create, 3).

%% @doc The callbacks that a behaviour calls with a message; none of a behaviour whose callbacks are not known.
-spec callbacks(Behaviour :: atom()) -> [{atom(), arity()}].
callbacks(Behaviour) when Behaviour =:= gen_server; Behaviour =:= gen_server2 ->
    [{handle_call, 3}, {handle_cast, 2}, {handle_info, 2}];
callbacks(gen_statem) ->
    [{handle_event, 4}];
callbacks(_Behaviour) ->
    [].

%% What sends to its first argument.
sending() ->
    Generic = [
        {Module, Function, Arity}
     || Module <- [gen_server, gen_statem, 'Elixir.GenServer'], {Function, Arity} <- [{cast, 2}, {call, 2}, {call, 3}]
    ],
    Generic ++ [{gen_event, notify, 2}, {erlang, send, 2}, {erlang, send, 3}].

%% What takes a table first.
using_tables() ->
    [
        {ets, Function, Arity}
     || {Function, Arity} <- [
            {insert, 2}, {insert_new, 2}, {lookup, 2}, {lookup_element, 3}, {member, 2}, {update_counter, 3},
            {update_counter, 4}, {update_element, 3}, {take, 2}, {delete, 2}
        ]
    ].

%% @doc Starts it for the calling agent.
-spec start_link() -> pid().
start_link() -> spawn_opt(?MODULE, init, [self()], [link, {priority, high}, weir_watch_look:bounded()]).

%% @doc Ends it: as an exit of the agent, which is what it is sent by its caller.
-spec stop(pid()) -> ok.
stop(Tracer) ->
    true = exit(Tracer, shutdown),
    ok.

%% @doc Asks about a process. The answer, some seconds later, is `{traced, Tracer, Pid, Found}'; `Found' is empty where
%% nothing could be traced.
-spec ask(pid(), pid(), [question()]) -> ok.
ask(Tracer, Pid, Questions) ->
    Tracer ! {ask, Pid, Questions},
    ok.

%% @private
-spec init(pid()) -> no_return().
init(Agent) ->
    _ = process_flag(trap_exit, true),
    Trace = trace(),
    loop(Agent, Trace:session_create(?MODULE, self(), [])).

%% @private Called by its full name, so that it comes into the code of another version.
-spec loop(pid(), Session :: term()) -> no_return().
loop(Agent, Session) ->
    receive
        {ask, Pid, Questions} ->
            Agent ! {traced, self(), Pid, alone(fun() -> found(Agent, Session, Pid, Questions) end)},
            ?MODULE:loop(Agent, Session);
        {'EXIT', Agent, Reason} ->
            exit(Reason);
        %% Somebody's, or a trace message that comes late.
        _ ->
            ?MODULE:loop(Agent, Session)
    end.

%% While no other process of the node does this.
alone(Find) ->
    try register(?MODULE, self()) of
        true ->
            try
                Find()
            after
                true = unregister(?MODULE)
            end
    catch
        error:badarg -> #{}
    end.

found(Agent, Session, Pid, Questions) ->
    Word = erlang:system_info(trace_control_word),
    case Word =:= 0 orelse Word band ?MARKED =:= ?MARK of
        true -> maps:from_list([answer(Question, Pid, Session, Agent) || Question <- Questions]);
        false -> #{}
    end.

answer({handled, Functions}, Pid, Session, Agent) ->
    {handled, traced(Session, [{Function, handled_by(Pid)} || Function <- Functions], fun(Number) ->
        counted(Number, Agent)
    end)};
answer({sent, Names}, _Pid, Session, Agent) ->
    Says = fun
        (Sender, {_, _, [To | _]} = Call, From) -> [{Sender, caller(From), kind(Call)} || lists:member(To, Names)]
    end,
    {sent, traced(Session, [{Function, sent_to(Names, Function)} || Function <- sending()], fun(_) ->
        sampled(Says, Agent)
    end)};
answer(tables, Pid, Session, Agent) ->
    Says = fun
        (User, _Call, Table) when User =:= Pid -> [Name || Name <- [ets:info(Table, name)], Name =/= undefined];
        (_Other, _Call, _Table) -> []
    end,
    {tables, traced(Session, [{Function, used_by(Pid, Function)} || Function <- using_tables()], fun(_) ->
        sampled(Says, Agent)
    end)}.

%% What `Find' returns while there are breakpoints with these match specifications. It is told how many there are.
traced(Session, Specs, Find) ->
    _ = erlang:system_flag(trace_control_word, ?MARK),
    try
        Find(lists:sum([set(Session, Function, Spec) || {Function, Spec} <- Specs]))
    after
        _ = [set(Session, Function, false) || {Function, _} <- Specs],
        _ = erlang:system_flag(trace_control_word, 0)
    end.

counted(0, _Agent) ->
    undefined;
counted(_Functions, Agent) ->
    Begin = erlang:monotonic_time(microsecond),
    Before = erlang:system_info(trace_control_word),
    ok = sleep(?TRACE_MS, Agent),
    ok = case erlang:system_info(trace_control_word) < Before + ?FEW of true -> sleep(?MORE_MS, Agent); false -> ok end,
    case erlang:system_info(trace_control_word) - Before of
        Count when Count >= 0 -> round(Count * 1_000_000 / (erlang:monotonic_time(microsecond) - Begin));
        %% Somebody has taken the word.
        _ -> undefined
    end.

sleep(Ms, Agent) ->
    receive
        {'EXIT', Agent, Reason} -> exit(Reason)
    after Ms -> ok
    end.

%% What `Says' tells of each sample. One that comes late may be of another suspect.
sampled(Says, Agent) -> samples(Says, ?SAMPLES, Agent, erlang:monotonic_time(millisecond) + ?TRACE_MS).

samples(_Says, 0, _Agent, _Until) ->
    [];
samples(Says, N, Agent, Until) ->
    receive
        {trace_ts, Caller, call, Call, Told, _} -> Says(Caller, Call, Told) ++ samples(Says, N - 1, Agent, Until);
        {'EXIT', Agent, Reason} -> exit(Reason)
    after max(0, Until - erlang:monotonic_time(millisecond)) -> []
    end.

%% ---------------------------------------------------------------- match specifications

handled_by(Pid) -> [{'_', [is_self(Pid)], [count(), {message, false}]}].

sent_to(Names, {_, _, Arity}) ->
    lists:append([each([Name | lists:duplicate(Arity - 1, '_')], [], {caller}) || Name <- Names]).

%% Of several objects at once nobody knows how much there is to copy.
used_by(Pid, {_, _, Arity}) ->
    each(['$1', '$2' | lists:duplicate(Arity - 2, '_')], [is_self(Pid), {'not', {is_list, '$2'}}], '$1').

%% Each fifteenth sends a message, the others are counted, and all after the last sample are let alone.
each(Head, Guards, Told) ->
    Count = {'-', {get_tcw}, ?MARK},
    Wanted = {'<', Count, ?EACH * ?SAMPLES},
    [
        {Head, Guards ++ [Wanted, {'=:=', {'rem', Count, ?EACH}, 0}], [count(), {message, Told}]},
        {Head, Guards ++ [Wanted], [count(), {message, false}]}
    ].

is_self(Pid) -> {'=:=', {self}, {const, Pid}}.

count() -> {set_tcw, {'+', {get_tcw}, 1}}.

%% How many functions it is, none or one.
set(Session, Function, Spec) ->
    Trace = trace(),
    Trace:function(Session, Function, Spec, [meta]).

%% The module, which older runtimes do not have.
trace() -> trace.

%% ---------------------------------------------------------------- what a call says

caller({Module, _, _} = Function) ->
    case lists:member(Module, [gen, gen_server, gen_statem, gen_event, 'Elixir.GenServer']) of
        true -> undefined;
        false -> Function
    end;
caller(_) ->
    undefined.

kind({gen_event, notify, [_, Event]}) -> weir_watch_look:kind({notify, Event});
kind({_, cast, [_, Request]}) -> weir_watch_look:kind({'$gen_cast', Request});
kind({_, call, [_, Request | _]}) -> weir_watch_look:kind({'$gen_call', from, Request});
kind({erlang, send, [_, Message | _]}) -> weir_watch_look:kind(Message).
