%% @doc The requests of a weir_server's client that gen_server does not have.
%%
%% mcall/1 sends calls. with_state/2 sends a request of its own, which the server answers in the order of messages:
%% `{ok, Fun(State)}' or `{raised, Class, Reason, Stacktrace}'. A gen_server takes that request for an info, and the
%% caller waits in vain. info/1 reads the counts that the server has published (weir_server_stats). A server that waits
%% for a message has not published all counts, so info/1 sends it a request to publish.
%% @private
-module(weir_server_client).

-export([mcall/1, with_state/2, info/1]).

-export_type([info/0]).

-include("weir_server_message.hrl").

%% Milliseconds that info/1 waits for a server which waits for a message, and for another node.
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
%% The counts of a server. Numbers of messages now: `mailbox', in the mailbox; `drained', in the private queue;
%% `waiting', their sum. Numbers of messages since the start, by kind: `handled' by callbacks; `dropped' because of
%% `max_queue', refused calls included; `shed' because `prioritise_cast/3' or `prioritise_info/3' returned `drop'.
%% `batches' is the number of calls of `handle_batch/2', and `largest_batch' the number of messages in the largest
%% batch. `drains' is how often the server has drained its mailbox. `longest_wait_us' is the longest time, in
%% microseconds, that a message has waited in the private queue.

%% @doc See {@link weir_server:mcall/1}.
%%
%% Sends all requests before it waits for the first answer. Waits until each server has answered or died, so the mailbox
%% has no answer left afterwards.
-spec mcall([{weir_server:server_ref(), Request :: term()}]) ->
    {[{weir_server:server_ref(), Reply :: term()}], [{weir_server:server_ref(), Reason :: term()}]}.
mcall(Requests) ->
    Sent = [{Server, send(Server, Request)} || {Server, Request} <- checked(Requests, [])],
    Answers = [{Server, answer(Id)} || {Server, Id} <- Sent],
    {
        [{Server, Reply} || {Server, {reply, Reply}} <- Answers],
        [{Server, Reason} || {Server, {error, Reason}} <- Answers]
    }.

%% Finds a mistake in the list before a request is sent.
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

%% Has a server publish its counts that waits in weir_server_loop:wait/4: such a server answers at once. A server that
%% has left this function meanwhile has published, or handles a message. A server that waits with a time-out is in
%% another function and has published. A request would start its time-out anew.
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
