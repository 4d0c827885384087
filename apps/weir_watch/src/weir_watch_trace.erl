%% @doc The process that learns of a suspect by tracing what nothing else tells: how many messages it handles in a
%% second; which functions send to it, in which processes, and messages of what kind; and which ets tables it uses. It
%% does so in a trace session of its own. There is none before OTP 27, where all who trace share the one that there is:
%% that is not taken from anybody, and this process is not started.
%%
%% Nothing of the suspect is locked or asked. To set a trace flag of it, as tracing what it receives would need, takes
%% its lock, and a scheduler would stand still until a suspect in a long collection or in native code lets go of it. A
%% meta breakpoint needs no flag: its match specification runs in each process that calls the function, and knows the
%% suspect by what it is called with or in. What it finds it counts in the node's trace control word, the one thing that
%% it can write. So one process of the node does this at a time, the one that has this module's name. The word is
%% ```
%%   0 -> closed -- all breakpoints are set --> open: ?MARK + 256 * count --> closed -- all are removed --> 0
%% '''
%% where closed is more than may be counted. Its lower eight bits stay 0, for those who let their own tracing depend on
%% them. Where it is not marked it is somebody else's: nothing is learned, and it is left alone, also by one who finds
%% that out while it traces.
%%
%% To count, no trace message is sent, and nothing copied. To learn who sends and which tables, each seventeenth call
%% sends one, at most ?SAMPLES: they hold what the call was given, such as the message. Those of a suspect whose
%% messages are too large for this process end it, before it answers, and the suspect is not asked about again. What is
%% told of a message is its kind.
%%
%% A breakpoint takes each call in the node 0.1 microseconds, and one that counts 0.15. To set or remove it takes as
%% long as it takes all schedulers to have a turn, so this process may wait for one that is in native code; and the name
%% of a table it has when whoever writes to the table lets it. It ends with the agent, however that ends, and gives the
%% word back; its session ends with it, and takes its breakpoints along.
%% @private
-module(weir_watch_trace).

-export([is_possible/0, callbacks/1, start_link/0, stop/1, ask/3, give_back/0]).
-export([init/1, loop/2]).

-export_type([question/0, found/0]).

%% It is counted for so long, in steps, or until it is enough to know.
-define(COUNT_MS, 1000).
-define(STEP_MS, 20).
-define(ENOUGH, 20_000).
%% For how long it waits for samples, and how many are enough. Which calls are samples: a prime number, since one call
%% may send by calling a second and a third that are traced, too.
-define(SAMPLE_MS, 200).
-define(SAMPLES, 16).
-define(EACH, 17).
%% The upper eight bits say that it is the count of a process of this module, which may have been killed.
-define(MARK, 16#57000000).
-define(MARKED, 16#ff000000).
-define(ONE, 16#100).
%% So many are counted at most, and what is more than that.
-define(MOST, 16#fffe).
-define(CLOSED, (?MARK + ?ONE * 16#ffff)).

-type question() :: {handled, [mfa()]} | {sent, [pid() | atom() | {atom(), node()}]} | tables.
%% How often it enters these functions of a module in a second; who sends to it by its pid and name; which tables it
%% uses.
-type found() :: #{
    handled => non_neg_integer() | undefined,
    sent => [{Sender :: pid(), weir_watch:call() | undefined, Kind :: binary()}],
    tables => [atom()]
}.
%% The function is the one that called OTP to send; `undefined' where that is not known.

%% @doc Returns whether the runtime has trace sessions, which OTP 27 brought. Loads the module `trace' if the module is
%% there. Does not ask the code server where it would search in vain: the server may be busy.
-spec is_possible() -> boolean().
is_possible() ->
    list_to_integer(erlang:system_info(otp_release)) >= 27 andalso
        code:ensure_loaded(trace()) =:= {module, trace()} andalso
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

%% @doc Ends it, for the agent, which is the caller. It gives back the word before.
-spec stop(pid()) -> ok.
stop(Tracer) ->
    true = exit(Tracer, shutdown),
    ok.

%% @doc Asks about a process. The answer, some seconds later, is `{traced, Tracer, Pid, Found, Bytes}'; `Found' is empty
%% where nothing could be traced, and `Bytes' is what the tracer takes.
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
            Found = alone(fun() -> found(Agent, Session, Pid, Questions) end),
            %% What large messages have left. If that is too much it ends here.
            true = erlang:garbage_collect(),
            {total_heap_size, Words} = process_info(self(), total_heap_size),
            Agent ! {traced, self(), Pid, Found, Words * erlang:system_info(wordsize)},
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
    case is_free() of
        true -> maps:from_list([answer(Question, Pid, Session, Agent) || Question <- Questions]);
        false -> #{}
    end.

answer({handled, Functions}, Pid, Session, Agent) ->
    Specs = [{Function, handled_by(Pid, Function)} || Function <- Functions],
    {handled, traced(Session, Specs, fun() -> counted(erlang:monotonic_time(microsecond), Agent) end)};
answer({sent, Names}, _Pid, Session, Agent) ->
    Says = fun
        (Sender, {Module, _, [To | _]} = Call, From) when Module =/= ets ->
            [{Sender, caller(From), kind(Call)} || lists:member(To, Names)];
        (_, _, _) -> []
    end,
    {sent, sampled(Session, [{Function, sent_to(Names, Function)} || Function <- sending()], Says, Agent)};
answer(tables, Pid, Session, Agent) ->
    Says = fun
        (User, {ets, _, _}, Table) when User =:= Pid -> [Table];
        (_, _, _) -> []
    end,
    Specs = [{Function, used_by(Pid, Function)} || Function <- using_tables()],
    {tables, named(sampled(Session, Specs, Says, Agent))}.

%% Those that are there. For the name of one without, its lock is taken, so once for each.
named(Tables) ->
    Names = maps:from_list([{Table, ets:info(Table, name)} || Table <- lists:usort(Tables), not is_atom(Table)]),
    [Name || Table <- Tables, Name <- [maps:get(Table, Names, Table)], Name =/= undefined].

%% What `Find' returns while there are breakpoints with these match specifications, all of them; `undefined' if there
%% are none, if the word is or became somebody else's, or if new code was loaded, which has no breakpoints.
traced(Session, Specs, Find) ->
    case is_free() of
        true -> find(Session, Specs, Find);
        false -> undefined
    end.

find(Session, Specs, Find) ->
    _ = erlang:system_flag(trace_control_word, ?CLOSED),
    try
        case [Function || {Function, Spec} <- Specs, set(Session, Function, Spec) =:= 1] of
            [] ->
                undefined;
            Set ->
                ok = change_to(?MARK),
                Found = Find(),
                case is_ours() andalso lists:all(fun(Function) -> is_set(Session, Function) end, Set) of
                    true -> Found;
                    false -> undefined
                end
        end
    after
        ok = change_to(?CLOSED),
        _ = [set(Session, Function, false) || {Function, _} <- Specs],
        ok = change_to(0),
        ok = forget_samples()
    end.

is_free() -> erlang:system_info(trace_control_word) =:= 0 orelse is_ours().

is_ours() -> erlang:system_info(trace_control_word) band ?MARKED =:= ?MARK.

change_to(Word) ->
    _ = [erlang:system_flag(trace_control_word, Word) || is_ours()],
    ok.

%% @doc After the death of a tracer: the word is nobody's, unless another one has taken it.
-spec give_back() -> ok.
give_back() ->
    case whereis(?MODULE) of
        undefined -> change_to(0);
        _ -> ok
    end.

counted(Begin, Agent) ->
    ok = sleep(?STEP_MS, Agent),
    Us = erlang:monotonic_time(microsecond) - Begin,
    case (erlang:system_info(trace_control_word) - ?MARK) div ?ONE of
        Count when Count >= ?MOST -> undefined;
        Count when Count >= ?ENOUGH; Us >= 1000 * ?COUNT_MS -> round(Count * 1_000_000 / Us);
        _ -> counted(Begin, Agent)
    end.

sleep(Ms, Agent) ->
    receive
        {'EXIT', Agent, Reason} -> exit(Reason)
    after Ms -> ok
    end.

%% What `Says' tells of each sample.
sampled(Session, Specs, Says, Agent) ->
    Find = fun() -> samples(Says, ?SAMPLES, Agent, erlang:monotonic_time(millisecond) + ?SAMPLE_MS) end,
    case traced(Session, Specs, Find) of
        undefined -> [];
        Samples -> Samples
    end.

samples(_Says, 0, _Agent, _Until) ->
    [];
samples(Says, N, Agent, Until) ->
    receive
        {trace_ts, Caller, call, Call, Told, _} -> Says(Caller, Call, Told) ++ samples(Says, N - 1, Agent, Until);
        {'EXIT', Agent, Reason} -> exit(Reason)
    after max(0, Until - erlang:monotonic_time(millisecond)) -> []
    end.

forget_samples() ->
    receive
        {trace_ts, _, call, _, _, _} -> forget_samples()
    after 0 -> ok
    end.

%% ---------------------------------------------------------------- match specifications

%% Of a gen_statem's events those that are messages.
handled_by(Pid, {_, handle_event, 4}) ->
    lists:append([counts([Type, '_', '_', '_'], [is_self(Pid)]) || Type <- [cast, info, {call, '_'}]]);
handled_by(Pid, _Function) ->
    counts('_', [is_self(Pid)]).

sent_to(Names, {_, _, Arity}) ->
    lists:append([each([Name | lists:duplicate(Arity - 1, '_')], [], {caller}) || Name <- Names]).

%% Of several objects at once nobody knows how much there is to copy.
used_by(Pid, {_, Function, 2}) when Function =:= insert; Function =:= insert_new ->
    each(['$1', '$2'], [is_self(Pid), {is_tuple, '$2'}], '$1');
used_by(Pid, {_, _, Arity}) ->
    each(['$1' | lists:duplicate(Arity - 1, '_')], [is_self(Pid)], '$1').

%% No trace message is sent.
counts(Head, Guards) -> [{Head, Guards ++ is_open(?MOST), [count(), {message, false}]}].

%% One of so many sends a message, until there are enough.
each(Head, Guards, Told) ->
    Open = is_open(?EACH * ?SAMPLES),
    [
        {Head, Guards ++ Open ++ [{'=:=', {'rem', number(), ?EACH}, 0}], [count(), {message, Told}]},
        {Head, Guards ++ Open, [count(), {message, false}]}
    ].

%% The word is ours, and so many are not counted yet.
is_open(Most) -> [{'=:=', {'band', {get_tcw}, ?MARKED}, ?MARK}, {'<', number(), Most}].

number() -> {'div', {'-', {get_tcw}, ?MARK}, ?ONE}.

is_self(Pid) -> {'=:=', {self}, {const, Pid}}.

count() -> {set_tcw, {'+', {get_tcw}, ?ONE}}.

%% How many functions it is, none or one.
set(Session, Function, Spec) ->
    Trace = trace(),
    Trace:function(Session, Function, Spec, [meta]).

is_set(Session, Function) ->
    Trace = trace(),
    {meta, Tracer} = Trace:info(Session, Function, meta),
    is_pid(Tracer).

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
