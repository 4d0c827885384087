%% @doc The process that looks at one suspect closely: a dozen times a second where it is, once a second what it has,
%% once who it is. Each of these questions is a signal to the suspect, which answers when it has a turn; so this
%% process may wait for as long as the suspect likes, and the agent, which waits for nobody, takes that silence for a
%% fact about the suspect. The agent kills this process when it has lost interest. It copies no mailbox of more than
%% ?FEW messages, and no dictionary of a large process. Nor does it ask for `total_heap_size' or `memory' where the
%% mailbox is long: the runtime goes through all of it for that, ten milliseconds for a million messages and more, in
%% which the suspect does nothing.
%%
%% It tells the agent `{who, Looker, Who}' once, `{state, Looker, State}' a dozen times a second and `{looked, Looker,
%% Look}' each second, and dies with the agent or the suspect.
%% @private
-module(weir_watch_look).

-export([start_link/2, bounded/0, kind/1]).
-export([init/3, tell/5]).

-export_type([look/0, sample/0, lists/0]).

-define(SAMPLES, 12).
-define(FIRST_SAMPLES, 4).
-define(EVERY_MS, 80).
%% A look at one who is slow to answer has fewer samples.
-define(LOOK_MS, 1300).
%% Messages that are copied to see of what kind they are; the heap up to which that and the dictionary are with each
%% look, in words, and up to which the dictionary is once, to know who it is; and the messages up to which it is asked
%% how large all of it is.
-define(FEW, 100).
-define(SMALL_HEAP, 1_000_000).
-define(HEAP_OF_WHO, 2_000_000).
-define(SHORT, 1000).
-define(LONG_LIST, 1000).
-define(ANCESTORS, 10).
%% Words that one who asks may have.
-define(MOST_WORDS, 8_000_000).
%% What is told as the cost of a question that waited for its answer: what it takes without waiting.
-define(QUESTION_US, 10).
-define(MOST_US, 100).
%% Its state can be read from outside unless it runs, and it runs for a millisecond or so without a break.
-define(KEPT_US, 20_000).

-type sample() :: {State :: atom(), [weir_watch:call()]}.
-type look() :: #{
    samples := [sample()],
    %% The share of these before which it ran for so long without a break.
    kept := float(),
    heap := non_neg_integer(),
    drained := non_neg_integer(),
    %% Since it was started, of a weir_server.
    handled := non_neg_integer() | undefined,
    monitors := [pid()],
    %% Whom it called when it was first found in a call; `undefined': nobody can tell, `unknown': it was in none.
    callee := pid() | undefined | unknown,
    ports := [port()],
    messages := [binary()],
    distribution := boolean(),
    us := non_neg_integer()
}.

-type lists() :: #{links | monitors | dictionary => list()}.
%% What may be long, and is not asked for any more, with what it was.

%% @doc Starts it for the calling agent. It is linked to the agent. `none': it asks for nothing that may be long.
-spec start_link(pid(), all | none) -> pid().
start_link(Pid, Asked) ->
    Lists = case Asked of all -> #{}; none -> #{links => [], monitors => [], dictionary => []} end,
    spawn_opt(?MODULE, init, [self(), Pid, Lists], [link, {priority, high}, bounded()]).

%% @doc For `spawn_opt': what a process may take that asks others, whose answers may be long.
-spec bounded() -> {max_heap_size, map()}.
bounded() -> {max_heap_size, #{size => ?MOST_WORDS, kill => true, error_logger => false}}.

%% @private
-spec init(pid(), pid(), lists()) -> ok.
init(Agent, Pid, Lists) ->
    _ = told_state(Agent, Pid),
    tell(Agent, Pid, ?FIRST_SAMPLES, Lists, told_who(Agent, Pid, Lists)).

%% @private Called by its full name, so that it comes into the code of another version. `Lists' are those that were
%% long, and are not asked for again, since the suspect makes all of them; `Known': who it is.
-spec tell(pid(), pid(), pos_integer(), lists(), Known :: boolean()) -> ok.
tell(Agent, Pid, Number, Lists, Known) ->
    Begin = erlang:monotonic_time(microsecond),
    Facts = facts(Pid, Lists),
    Took = erlang:monotonic_time(microsecond) - Begin,
    case Facts of
        undefined ->
            ok;
        {Look, Long} ->
            Until = erlang:monotonic_time(millisecond) + ?LOOK_MS,
            Unknown = case Long of #{monitors := _} -> undefined; #{} -> unknown end,
            {Samples, Called, Kept, Us} = sampled(Agent, Pid, Number, Until, {[], Unknown, 0, 0}),
            Agent ! {looked, self(), Look#{samples => Samples, callee => Called,
                kept => Kept / max(1, length(Samples)), us => Us + min(Took, ?MOST_US)}},
            ?MODULE:tell(Agent, Pid, ?SAMPLES, Long, Known orelse told_who(Agent, Pid, Long))
    end.

%% The agent is told first what the suspect's state is, so that it knows in which one it has stopped to answer.
sampled(_Agent, _Pid, 0, _Until, Acc) ->
    Acc;
sampled(Agent, Pid, N, Until, {Samples, Before, Kept, Us}) ->
    Begin = erlang:monotonic_time(microsecond),
    Seen = told_state(Agent, Pid),
    Outside = erlang:monotonic_time(microsecond) - Begin,
    Sample =
        case Seen of
            [{_, State} | _] ->
                case process_info(Pid, [current_function, current_stacktrace]) of
                    [{_, Function}, {_, Stack}] -> [{State, calls(Function, Stack)}];
                    undefined -> []
                end;
            undefined ->
                []
        end,
    Called = called(Pid, Sample, Before),
    Took = erlang:monotonic_time(microsecond) - Begin,
    receive
    after ?EVERY_MS ->
        Keeps = if Outside >= ?KEPT_US -> 1; true -> 0 end,
        Left = case erlang:monotonic_time(millisecond) of Now when Now >= Until -> 0; _ -> N - 1 end,
        sampled(Agent, Pid, Left, Until, {Sample ++ Samples, Called, Kept + Keeps, Us + min(Took, ?QUESTION_US)})
    end.

%% Asked once in a look, of one that is in a call: at other moments it may monitor one for whom it does not wait.
called(Pid, [{waiting, [Function | _]}], unknown) ->
    case weir_watch_ask:is_call(Function) andalso weir_watch_ask:called(Pid) of
        {ok, Callee} -> Callee;
        error -> undefined;
        _ -> unknown
    end;
called(_Pid, _Sample, Known) ->
    Known.

told_state(Agent, Pid) ->
    case process_info(Pid, [status, message_queue_len, reductions]) of
        [{_, State}, {_, Queue}, {_, Reductions}] = Seen ->
            Agent ! {state, self(), {State, Queue, Reductions}},
            Seen;
        undefined ->
            undefined
    end.

calls(Function, Stack) ->
    case [{M, F, if is_list(A) -> length(A); true -> A end} || {M, F, A, _} <- Stack] of
        [Function | _] = Calls -> Calls;
        Calls when is_tuple(Function) -> [Function | Calls];
        Calls -> Calls
    end.

facts(Pid, Lists) ->
    case process_info(Pid, [status, message_queue_len]) of
        [{_, State}, {_, Queue}] ->
            Words = heap(Pid, Queue),
            Small = Words < ?SMALL_HEAP andalso not is_map_key(dictionary, Lists),
            Links = list(Pid, links, Lists),
            %% Only of one that waits: a manager of many workers monitors each of them.
            Monitors = case State of waiting -> list(Pid, monitors, Lists); _ -> [] end,
            {Drained, Handled} = published(Pid, Small),
            Look = #{
                heap => Words * erlang:system_info(wordsize),
                ports => lists:sublist([Port || Port <- Links, is_port(Port)], 10),
                drained => Drained,
                handled => Handled,
                monitors => lists:sublist(weir_watch_ask:monitored(Monitors), ?LONG_LIST),
                messages => messages(Pid, Queue, Small),
                distribution => State =:= suspended andalso is_distribution_busy()
            },
            {Look, maps:merge(Lists, maps:filter(fun(_, List) -> length(List) > ?LONG_LIST end, #{
                links => Links, monitors => Monitors
            }))};
        undefined ->
            undefined
    end.

%% In words. Of one with a long mailbox it is the youngest part: the messages are a part of the whole.
heap(Pid, Queue) ->
    case process_info(Pid, if Queue =< ?SHORT -> total_heap_size; true -> heap_size end) of
        {_, Words} -> Words;
        undefined -> 0
    end.

list(Pid, Item, Lists) ->
    case Lists of
        #{Item := Long} -> Long;
        #{} ->
            case process_info(Pid, Item) of
                {Item, List} -> List;
                undefined -> []
            end
    end.

is_distribution_busy() ->
    lists:any(
        fun({_Node, Port}) -> is_port(Port) andalso erlang:port_info(Port, queue_size) > {queue_size, 0} end,
        erlang:system_info(dist_ctrl)
    ).

%% What a weir_server says of itself: how many messages it has drained, and handled.
published(Pid, Small) ->
    case dictionary(Pid, '$weir_server', Small) of
        Published when is_tuple(Published), is_integer(element(1, Published)) ->
            Stats = weir_server_stats,
            try
                Stats:published(Published)
            catch
                %% Another version of it.
                error:_ -> {element(1, Published), undefined}
            end;
        _ ->
            {0, undefined}
    end.

%% An entry of the dictionary of a process, or `undefined'. Runtimes before 26.2 tell only the whole dictionary, so
%% there that of a process with a large heap stays untold.
dictionary(Pid, Key, Small) ->
    %% Through apply/3, since older runtimes do not declare it.
    try apply(erlang, process_info, [Pid, {dictionary, Key}]) of
        {{dictionary, Key}, Value} -> Value;
        undefined -> undefined
    catch
        error:badarg when Small ->
            case process_info(Pid, dictionary) of
                {dictionary, Entries} -> proplists:get_value(Key, Entries);
                undefined -> undefined
            end;
        error:badarg ->
            undefined
    end.

%% What is kept off the heap is a part of `memory' alone.
messages(Pid, Queue, true) when Queue > 0, Queue =< ?FEW ->
    Most = ?SMALL_HEAP * erlang:system_info(wordsize),
    case process_info(Pid, [message_queue_len, memory]) of
        [{_, Still}, {_, Bytes}] when Still =< ?FEW, Bytes < Most ->
            case process_info(Pid, messages) of
                {messages, Messages} -> [kind(Message) || Message <- lists:sublist(Messages, ?FEW)];
                undefined -> []
            end;
        _ ->
            []
    end;
messages(_Pid, _Queue, _Small) ->
    [].

%% @doc The shape of a message, never what it holds: the atoms at its head, and of what size it is.
-spec kind(term()) -> binary().
kind({'$gen_call', _, Request}) -> <<"call ", (shape(Request))/binary>>;
kind({'$gen_cast', Request}) -> <<"cast ", (shape(Request))/binary>>;
kind({system, _, _}) -> <<"system message">>;
kind({notify, Event}) -> <<"event ", (shape(Event))/binary>>;
kind({log, Level, _, _, _}) when is_atom(Level) -> <<"log ", (text(Level))/binary>>;
kind(Message) -> shape(Message).

shape(Term) when is_atom(Term) -> text(Term);
shape(Term) when is_tuple(Term), tuple_size(Term) > 0, is_atom(element(1, Term)) ->
    <<"{", (text(element(1, Term)))/binary, (binary:copy(<<",_">>, min(9, tuple_size(Term) - 1)))/binary, "}">>;
shape(Term) when is_tuple(Term) -> <<"tuple">>;
shape(Term) when is_binary(Term) -> <<"binary">>;
shape(Term) when is_map(Term) -> <<"map">>;
shape(Term) when is_list(Term) -> <<"list">>;
shape(Term) when is_pid(Term) -> <<"pid">>;
shape(Term) when is_reference(Term) -> <<"reference">>;
shape(Term) when is_number(Term) -> <<"number">>;
shape(_) -> <<"term">>.

text(Term) -> unicode:characters_to_binary(io_lib:format("~0tp", [Term])).

%% ---------------------------------------------------------------- who it is

%% Whether all of it is known now. Of one with a large heap its module may not be, and is asked for again with each
%% look: a heap that has grown with a burst of messages gets smaller.
told_who(Agent, Pid, Lists) ->
    case process_info(Pid, [registered_name, initial_call, message_queue_len]) of
        [{_, Name}, {_, Initial}, {_, Queue}] ->
            Small = heap(Pid, Queue) < ?HEAP_OF_WHO andalso not is_map_key(dictionary, Lists),
            Module =
                case dictionary(Pid, '$initial_call', Small) of
                    {M, _, _} -> M;
                    %% One that was started with a fun began in erlang:apply/2, whatever it runs.
                    _ when is_tuple(Initial), element(1, Initial) =/= proc_lib, element(1, Initial) =/= erlang ->
                        element(1, Initial);
                    _ -> undefined
                end,
            Who = #{
                name => if is_atom(Name), Name =/= [] -> Name; true -> undefined end,
                label => label(dictionary(Pid, '$process_label', Small)),
                module => Module,
                ancestors => ancestors(dictionary(Pid, '$ancestors', Small)),
                application =>
                    case application:get_application(Pid) of
                        {ok, Application} -> Application;
                        undefined -> application_of(Module)
                    end
            },
            Agent ! {who, self(), Who},
            Small orelse Module =/= undefined;
        undefined ->
            true
    end.

ancestors([_ | _] = All) -> [Each || Each <- lists:sublist(All, ?ANCESTORS), is_pid(Each) orelse is_atom(Each)];
ancestors(_) -> [].

%% The leader of an application's processes is its master, which is itself none of them.
application_of(undefined) -> undefined;
application_of(Module) ->
    case application:get_application(Module) of
        {ok, Application} -> Application;
        undefined -> undefined
    end.

label(undefined) -> undefined;
label(Label) -> text_of(unicode:characters_to_binary(io_lib:format("~0tP", [Label, 10]))).

text_of(Text) when byte_size(Text) > 60 -> <<(binary:part(Text, 0, 57))/binary, "...">>;
text_of(Text) -> Text.
