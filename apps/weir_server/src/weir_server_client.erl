%% @doc What a client of a weir_server can ask for beyond what gen_server's clients can.
%%
%% On the wire it is ordinary calls, and for with_state/2 one with a label of its own: `{'$weir_with_state', From,
%% Fun}', whose answer is given when the request's turn comes: `{ok, Fun(State)}', or `{raised, Class, Reason,
%% Stacktrace}'. A gen_server takes that for an info: the caller waits in vain. info/1 reads what the server has
%% published (weir_server_stats); one that waits for a message has not published all, and is sent `{'$weir_publish',
%% From, now}'.
%% @private
-module(weir_server_client).

-export([mcall/1, with_state/2, info/1]).

-export_type([info/0]).

-include("weir_server_message.hrl").

%% How long info/1 waits for a server that waits itself, and for another node, milliseconds.
-define(SOON_MS, 50).
-define(THERE_MS, 5000).

-type counts() :: #{calls := non_neg_integer(), casts := non_neg_integer(), infos := non_neg_integer()}.

-type info() :: #{
    mailbox := non_neg_integer(),
    drained := non_neg_integer(),
    waiting := non_neg_integer(),
    max_queue := pos_integer() | infinity,
    handled := counts(),
    dropped := counts(),
    shed := #{casts := non_neg_integer(), infos := non_neg_integer()},
    batches := non_neg_integer(),
    largest_batch := non_neg_integer(),
    drains := non_neg_integer(),
    longest_wait_us := non_neg_integer()
}.
%% `mailbox': messages in the mailbox now; `drained': in the private queue now; `waiting': their sum. `handled':
%% messages that callbacks have been given since the start, by kind. `dropped': refused or dropped because of
%% `max_queue', by kind. `shed': dropped because `prioritise_cast/3' or `prioritise_info/3' said so. `batches': calls of
%% `handle_batch/2'; `largest_batch': messages in the largest of them. `drains': how often the mailbox was drained.
%% `longest_wait_us': the longest time, in microseconds, that a message was seen to wait in the private queue.

%% @doc See {@link weir_server:mcall/1}.
%%
%% All requests are sent before the first answer is waited for. An answer, or the news that there will be none, comes
%% for each of them sooner or later unless a server neither answers nor dies, so nothing is left in the mailbox.
-spec mcall([{weir_server:server_ref(), Request :: term()}]) ->
    {[{weir_server:server_ref(), Reply :: term()}], [{weir_server:server_ref(), Reason :: term()}]}.
mcall(Requests) ->
    Sent = [{Server, send(Server, Request)} || {Server, Request} <- checked(Requests, [])],
    Answers = [{Server, answer(Id)} || {Server, Id} <- Sent],
    {
        [{Server, Reply} || {Server, {reply, Reply}} <- Answers],
        [{Server, Reason} || {Server, {error, Reason}} <- Answers]
    }.

%% A mistake in the list is found before anything is sent.
checked([{Server, _} = Request | Requests], Checked) ->
    is_server_ref(Server) orelse error(badarg),
    checked(Requests, [Request | Checked]);
checked([], Checked) ->
    lists:reverse(Checked);
checked(_, _) ->
    error(badarg).

is_server_ref({global, _}) -> true;
is_server_ref({via, Mod, _}) -> is_atom(Mod);
is_server_ref({Name, Node}) -> is_atom(Name) andalso is_atom(Node);
is_server_ref(Server) -> is_pid(Server) orelse is_atom(Server).

send(Server, Request) ->
    case whereis_server(Server) =:= self() of
        true -> calling_self;
        false -> gen_server:send_request(Server, Request)
    end.

whereis_server({global, Name}) -> global:whereis_name(Name);
whereis_server({via, Mod, Name}) -> Mod:whereis_name(Name);
whereis_server({Name, Node}) when Node =:= node() -> whereis(Name);
whereis_server(Name) when is_atom(Name) -> whereis(Name);
whereis_server(PidOrRemote) -> PidOrRemote.

answer(calling_self) ->
    {error, calling_self};
answer(Id) ->
    case gen_server:receive_response(Id, infinity) of
        {reply, _} = Reply -> Reply;
        {error, {noconnection, Server}} -> {error, {nodedown, node_of(Server)}};
        {error, {Reason, _}} -> {error, Reason}
    end.

node_of({_Name, Node}) -> Node;
node_of(Pid) -> node(Pid).

%% @doc See {@link weir_server:with_state/2}.
-spec with_state(weir_server:server_ref(), fun((State :: term()) -> Result)) -> Result | {error, {overload, map()}}.
with_state(Server, Fun) ->
    case call(Server, ?WITH_STATE_LABEL, Fun, infinity, {weir_server, with_state, [Server, Fun]}) of
        {ok, Result} -> Result;
        {error, {overload, _}} = Refused -> Refused;
        {raised, Class, Raised, Stacktrace} -> erlang:raise(Class, Raised, Stacktrace)
    end.

%% @doc See {@link weir_server:info/1}.
-spec info(weir_server:server_ref()) -> {ok, info()} | {error, noproc | not_weir_server | {nodedown, node()}}.
info(Server) ->
    case whereis_server(Server) of
        undefined -> {error, noproc};
        Pid when is_pid(Pid), node(Pid) =:= node() ->
            ok = have_published(process_info(Pid, [status, current_function, message_queue_len]), Pid),
            weir_server_stats:info(Pid);
        Remote -> info_there(Remote)
    end.

%% A server in weir_server_loop:wait/4 answers at once. A server that has left it has published meanwhile, or handles a
%% message. A server that waits with a time-out is in another function and has published: a request would start its
%% time-out anew.
have_published([{status, waiting}, {current_function, {weir_server_loop, wait, _}}, {message_queue_len, 0}], Pid) ->
    try
        {ok, ok} = gen:call(Pid, ?PUBLISH_LABEL, now, ?SOON_MS),
        ok
    catch
        exit:_BusyOrDead -> ok
    end;
have_published(_Otherwise, _Pid) ->
    ok.

info_there(Remote) ->
    {Node, There} =
        case Remote of
            {Name, N} -> {N, Name};
            Pid -> {node(Pid), Pid}
        end,
    try
        erpc:call(Node, ?MODULE, info, [There], ?THERE_MS)
    catch
        error:{erpc, _} -> {error, {nodedown, Node}};
        error:{exception, undef, [{?MODULE, info, _, _} | _]} -> {error, {nodedown, Node}}
    end.

call(Server, Label, Request, Timeout, MFA) ->
    try gen:call(Server, Label, Request, Timeout) of
        {ok, Reply} -> Reply
    catch
        exit:Reason -> exit({Reason, MFA})
    end.
