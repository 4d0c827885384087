%% @doc All sockets of the node, counted and listed: what {@link weir_socket:info/0} and {@link weir_socket:i/0} do.
%%
%% Sockets are looked at in pieces, in the caller, while they go on ({@link weir_socket_nif:survey/2}): so the figures
%% are not of one moment. Nothing is kept for it while nobody asks.
%% @private
-module(weir_socket_overview).

-export([info/0, print/1, all/0]).

-export_type([overview/0, owner/0]).

%% Of how many owners it tells.
-define(OWNERS, 20).

-type owner() :: #{
    owner := pid() | undefined,
    name := atom() | mfa() | undefined,
    sockets := pos_integer(),
    listeners := non_neg_integer(),
    recv_oct := non_neg_integer(),
    send_oct := non_neg_integer()
}.
%% Without an owner are those that are closed and still have something to write. `name': the registered name, or the
%% function that the process was started with; `undefined' if it is dead by now.

-type overview() :: #{
    backend := epoll | gen_tcp,
    pollsets := pos_integer(),
    sockets := non_neg_integer(),
    listeners := non_neg_integer(),
    connections := non_neg_integer(),
    recv_oct := non_neg_integer(),
    send_oct := non_neg_integer(),
    send_pend := non_neg_integer(),
    buffered := non_neg_integer(),
    by_owner := [owner()],
    sets := [#{set := non_neg_integer(), sockets := non_neg_integer(), poller := pid() | undefined}]
}.

-record(sum, {
    sockets = 0 :: non_neg_integer(),
    listeners = 0 :: non_neg_integer(),
    connections = 0 :: non_neg_integer(),
    recv_oct = 0 :: non_neg_integer(),
    send_oct = 0 :: non_neg_integer(),
    send_pend = 0 :: non_neg_integer(),
    buffered = 0 :: non_neg_integer(),
    %% Sockets, listeners, bytes received and sent.
    owners = #{} :: #{
        pid() | undefined => {pos_integer(), non_neg_integer(), non_neg_integer(), non_neg_integer()}
    }
}).

%% @doc See {@link weir_socket:info/0}.
-spec info() -> overview().
info() ->
    {Sets, Sum} = lists:mapfoldl(fun of_set/2, #sum{}, sets()),
    #{
        backend => weir_socket:backend(),
        pollsets => length(Sets),
        sockets => Sum#sum.sockets,
        listeners => Sum#sum.listeners,
        connections => Sum#sum.connections,
        recv_oct => Sum#sum.recv_oct,
        send_oct => Sum#sum.send_oct,
        send_pend => Sum#sum.send_pend,
        buffered => Sum#sum.buffered,
        by_owner => by_owner(Sum#sum.owners),
        sets => Sets
    }.

sets() -> lists:seq(0, weir_socket_nif:pollsets() - 1).

of_set(Set, Before) ->
    Sum = survey(Set, 0, Before),
    #{poller := Poller} = weir_socket_nif:pollset_info(Set),
    {#{set => Set, sockets => Sum#sum.sockets - Before#sum.sockets, poller => Poller}, Sum}.

survey(_Set, done, Sum) ->
    Sum;
survey(Set, From, Sum) ->
    {Figures, Next} = weir_socket_nif:survey(Set, From),
    survey(Set, Next, lists:foldl(fun add/2, Sum, Figures)).

add({Owner, State, Received, Sent, Queued, Buffered}, #sum{owners = Owners} = Sum) ->
    Listener = one_if(State =:= listening),
    {N, Listeners, AllReceived, AllSent} = maps:get(Owner, Owners, {0, 0, 0, 0}),
    Sum#sum{
        sockets = Sum#sum.sockets + 1,
        listeners = Sum#sum.listeners + Listener,
        connections = Sum#sum.connections + one_if(State =:= connected orelse State =:= flushing),
        recv_oct = Sum#sum.recv_oct + Received,
        send_oct = Sum#sum.send_oct + Sent,
        send_pend = Sum#sum.send_pend + Queued,
        buffered = Sum#sum.buffered + Buffered,
        owners = Owners#{Owner => {N + 1, Listeners + Listener, AllReceived + Received, AllSent + Sent}}
    }.

one_if(true) -> 1;
one_if(false) -> 0.

by_owner(Owners) ->
    Sorted = lists:sort([{N, Received + Sent, Owner} || {Owner, {N, _, Received, Sent}} <- maps:to_list(Owners)]),
    [of_owner(Owner, maps:get(Owner, Owners)) || {_, _, Owner} <- lists:sublist(lists:reverse(Sorted), ?OWNERS)].

of_owner(Owner, {N, Listeners, Received, Sent}) ->
    #{
        owner => Owner,
        name => name(Owner),
        sockets => N,
        listeners => Listeners,
        recv_oct => Received,
        send_oct => Sent
    }.

name(undefined) ->
    undefined;
name(Pid) ->
    case process_info(Pid, [registered_name, initial_call]) of
        [{registered_name, []}, {initial_call, {proc_lib, init_p, _}}] -> proc_lib:translate_initial_call(Pid);
        [{registered_name, []}, {initial_call, Call}] -> Call;
        [{registered_name, Name}, _] -> Name;
        undefined -> undefined
    end.

%% @doc The sockets of all sets. One that is open all the time is among them; others may be.
-spec all() -> [weir_socket_nif:sock()].
all() -> members(sets(), 0, infinity).

%% @doc See {@link weir_socket:i/1}.
-spec print(Lines :: non_neg_integer() | infinity) -> ok.
print(Lines) -> print(weir_socket:backend(), Lines).

print(gen_tcp, _Lines) ->
    inet:i(tcp);
print(epoll, Lines) ->
    All = lists:sum([maps:get(sockets, weir_socket_nif:pollset_info(Set)) || Set <- sets()]),
    Rows = [Row || Sock <- members(sets(), 0, Lines), Row <- row(Sock)],
    Header = ["Owner", "Recv", "Sent", "Local Address", "Foreign Address", "State"],
    Table = [Header | Rows],
    Widths = [lists:max([length(lists:nth(N, Row)) || Row <- Table]) || N <- lists:seq(1, length(Header))],
    io:put_chars([line(Widths, Row) || Row <- Table]),
    left_out(max(0, All - length(Rows))).

left_out(0) -> ok;
left_out(N) -> io:format("and ~b more~n", [N]).

line(Widths, Row) -> [string:trim(lists:zipwith(fun padded/2, Widths, Row), trailing), $\n].

padded(Width, Text) -> string:pad(Text, Width + 1).

members([], _From, _Most) -> [];
members(_Sets, _From, 0) -> [];
members([_ | Sets], done, Most) -> members(Sets, 0, Most);
members([Set | _] = Sets, From, Most) ->
    {Socks, Next} = weir_socket_nif:members(Set, From, min(Most, 500)),
    Socks ++ members(Sets, Next, less(Most, length(Socks))).

less(infinity, _) -> infinity;
less(Most, N) -> Most - N.

%% Nothing of one that has been closed meanwhile.
row(Sock) ->
    case weir_socket_nif:info(Sock) of
        #{state := closed} ->
            [];
        #{state := State, owner := Owner, counters := #{recv_oct := Received, send_oct := Sent}} ->
            [
                [
                    owner(Owner), integer_to_list(Received), integer_to_list(Sent),
                    address(weir_socket_nif:sockname(Sock)), address(weir_socket_nif:peername(Sock)),
                    atom_to_list(State)
                ]
            ]
    end.

owner(undefined) -> "-";
owner(Owner) -> pid_to_list(Owner).

address({ok, {local, Path}}) -> lists:flatten(io_lib:format("local:~ts", [Path]));
address({ok, {inet, Ip, Port}}) -> inet:ntoa(Ip) ++ ":" ++ port(Port);
address({ok, {inet6, Ip, Port, _Flow, _Scope}}) -> "[" ++ inet:ntoa(Ip) ++ "]:" ++ port(Port);
address({error, _}) -> "*:*".

port(0) -> "*";
port(Port) -> integer_to_list(Port).
