%% @doc What this node knows of another one that serves a pool: words that callers read and write without asking
%% anybody.
%%
%% ```
%%   word          written by                                                    read by
%%   share         the member here; a caller sets it to 0                        callers
%%   time-outs     callers, the member: how many since the last reply or pong    callers
%%   load, until   the member and callers, as it comes with every reply, and      callers
%%                 until when it is known
%%   since         callers: requests sent since then                             callers
%%   ended         weir_cluster_monitor: the node has shut down in order         callers
%%   offset        the member: what that node's clock shows more than ours       callers
%%   round trip    the member: how long the last pong took                       info/1
%%   counters      callers                                                       info/1
%%   sent(I)       callers: requests sent to inbox I, from some number on        callers, the member
%%   handled(I)    the member: of these, as many as inbox I has taken up         callers
%% '''
%%
%% == Window ==
%%
%% `sent - handled' is at most the window, for each inbox: so many requests of this node may be on their way and in the
%% mailbox there. A caller that finds the window full sends nothing. The request that makes `sent' a multiple of a
%% quarter of the window asks for an acknowledgement, and the inbox answers it when it gets to it, with the number
%% that came with it. Mailboxes are in order, so what was sent before has been taken up. A caller that is killed
%% between counting and sending leaves `sent' one too high, and one that should have asked does not ask: both are
%% mended by the next acknowledgement, since numbers and not messages are counted, and by the pings of the member,
%% which ask for one too. Callers that count and send at the same time may send in another order: by so many the
%% window may be exceeded. A node that was gone and is there again has other words, whose numbers begin above those of
%% before: what it was asked then, and answers now, opens no window.
%%
%% == Who is let in ==
%%
%% A node has a share of what it would get, in thousandths. It starts with 0, until its first pong. It is set to 0 by
%% the caller who sees the third time-out, or a later one, in a row without a reply or a pong in between, or by the
%% member when four pings in a row had no pong; each pong then doubles it, from a tenth on. So a node whose workers are
%% slow, but that answers, is left to its load.
%% @private
-module(weir_cluster_link).

-export([new/1, is_let_in/2, share/1, set_share/2]).
-export([reserve/3, handled/3, unhandled/2, sent/2]).
-export([requested/1, replied/2, answered/1, timed_out/1, load/3, set_load/4, requests/1, offset/1, set_offset/2,
    round_trip/1, set_round_trip/2]).
-export([set_ended/1, has_ended/1, count/2, counters/1]).

-define(SHARE, 1).
-define(TIMEOUTS_IN_A_ROW, 2).
-define(LOAD, 3).
-define(LOAD_UNTIL, 4).
-define(OFFSET, 5).
-define(SINCE, 6).
-define(ENDED, 7).
-define(ROUND_TRIP, 8).
-define(COUNTER(I), (8 + (I))).
-define(LINE_WORDS, 8).
-define(SENT(Inbox), (((Inbox) + 2) * ?LINE_WORDS + 1)).
-define(HANDLED(Inbox), (((Inbox) + 2) * ?LINE_WORDS + 2)).

-define(MOST_TIMEOUTS, 3).
-define(ALL, 1000).
%% A load that came with a reply is unknown after so long.
-define(LOAD_MS, 1000).

-define(COUNTERS, [requests, refused, failed, timeouts, full, busy]).

-type counter() :: requests | refused | failed | timeouts | full | busy.

%% @doc Nothing is known yet.
-spec new(Inboxes :: pos_integer()) -> atomics:atomics_ref().
new(Inboxes) ->
    Words = atomics:new((Inboxes + 4) * ?LINE_WORDS, [{signed, true}]),
    %% Its clock may show less than 0.
    ok = atomics:put(Words, ?LOAD_UNTIL, erlang:monotonic_time(millisecond) - 1),
    ok = atomics:put(Words, ?ROUND_TRIP, -1),
    %% Above all numbers that the same node, if it was known before, may still answer: no inbox is sent a request each
    %% nanosecond.
    First = erlang:monotonic_time(nanosecond),
    ok = lists:foreach(fun(Inbox) ->
        ok = atomics:put(Words, ?SENT(Inbox), First),
        atomics:put(Words, ?HANDLED(Inbox), First)
    end, lists:seq(1, Inboxes)),
    Words.

%% @doc Whether the node is let in, for a number that is drawn at random.
-spec is_let_in(non_neg_integer(), atomics:atomics_ref()) -> boolean().
is_let_in(Random, Words) -> Random rem ?ALL < atomics:get(Words, ?SHARE).

%% @doc Its share, in thousandths.
-spec share(atomics:atomics_ref()) -> 0..?ALL.
share(Words) -> atomics:get(Words, ?SHARE).

%% @doc Sets its share.
-spec set_share(0..?ALL, atomics:atomics_ref()) -> ok.
set_share(Share, Words) -> atomics:put(Words, ?SHARE, Share).

%% @doc Counts a request, if the window has room for it.
-spec reserve(Inbox :: pos_integer(), Window :: pos_integer(), atomics:atomics_ref()) -> {ok, pos_integer()} | full.
reserve(Inbox, Window, Words) ->
    Sent = atomics:add_get(Words, ?SENT(Inbox), 1),
    case Sent - atomics:get(Words, ?HANDLED(Inbox)) > Window of
        true ->
            ok = atomics:sub(Words, ?SENT(Inbox), 1),
            full;
        false ->
            {ok, Sent}
    end.

%% @doc The inbox has taken up all that were sent up to this one.
-spec handled(Inbox :: pos_integer(), Sent :: integer(), atomics:atomics_ref()) -> ok.
handled(Inbox, Sent, Words) ->
    %% Only the member writes it.
    case atomics:get(Words, ?HANDLED(Inbox)) of
        Handled when Handled < Sent -> atomics:put(Words, ?HANDLED(Inbox), Sent);
        _ -> ok
    end.

%% @doc How many requests are on their way to an inbox or in its mailbox.
-spec unhandled(Inbox :: pos_integer(), atomics:atomics_ref()) -> integer().
unhandled(Inbox, Words) -> atomics:get(Words, ?SENT(Inbox)) - atomics:get(Words, ?HANDLED(Inbox)).

%% @doc The number of the last request that was sent to an inbox.
-spec sent(Inbox :: pos_integer(), atomics:atomics_ref()) -> integer().
sent(Inbox, Words) -> atomics:get(Words, ?SENT(Inbox)).

%% @doc A reply came, and with it the load there, in thousandths of a call for each worker.
-spec replied(Load :: integer(), atomics:atomics_ref()) -> ok.
replied(Load, Words) ->
    ok = answered(Words),
    set_load(Load, 0, erlang:monotonic_time(millisecond) + ?LOAD_MS, Words).

%% @doc An answer came.
-spec answered(atomics:atomics_ref()) -> ok.
answered(Words) ->
    case atomics:get(Words, ?TIMEOUTS_IN_A_ROW) of
        0 -> ok;
        _ -> atomics:put(Words, ?TIMEOUTS_IN_A_ROW, 0)
    end.

%% @doc No reply came in time.
-spec timed_out(atomics:atomics_ref()) -> ok.
timed_out(Words) ->
    count(timeouts, Words),
    case atomics:add_get(Words, ?TIMEOUTS_IN_A_ROW, 1) >= ?MOST_TIMEOUTS of
        true -> set_share(0, Words);
        false -> ok
    end.

%% @doc The load there is this, in thousandths, until then, and it does not know of so many requests.
-spec set_load(integer(), Since :: integer(), UntilMs :: integer(), atomics:atomics_ref()) -> ok.
set_load(Load, Since, Until, Words) ->
    ok = atomics:put(Words, ?LOAD, Load),
    ok = atomics:put(Words, ?SINCE, Since),
    atomics:put(Words, ?LOAD_UNTIL, Until).

%% @doc Calls for each worker there, by what was last heard and what was sent since; so that many who choose at the same
%% time do not all choose the same node.
-spec load(NowMs :: integer(), Weight :: pos_integer(), atomics:atomics_ref()) -> float() | unknown.
load(Now, Weight, Words) ->
    case Now =< atomics:get(Words, ?LOAD_UNTIL) of
        true -> atomics:get(Words, ?LOAD) / 1000 + atomics:get(Words, ?SINCE) / Weight;
        false -> unknown
    end.

%% @doc How many requests were sent.
-spec requests(atomics:atomics_ref()) -> non_neg_integer().
requests(Words) -> atomics:get(Words, ?COUNTER(index(requests))).

%% @doc A request was sent.
-spec requested(atomics:atomics_ref()) -> ok.
requested(Words) ->
    ok = atomics:add(Words, ?SINCE, 1),
    count(requests, Words).

%% @doc What the clock there (monotonic, milliseconds) shows more than ours.
-spec offset(atomics:atomics_ref()) -> integer().
offset(Words) -> atomics:get(Words, ?OFFSET).

%% @doc Writes what the clock there shows more than ours.
-spec set_offset(integer(), atomics:atomics_ref()) -> ok.
set_offset(Offset, Words) -> atomics:put(Words, ?OFFSET, Offset).

%% @doc Milliseconds from the last ping that was answered to its pong, the time in the mailbox there among them.
-spec round_trip(atomics:atomics_ref()) -> non_neg_integer() | unknown.
round_trip(Words) ->
    case atomics:get(Words, ?ROUND_TRIP) of
        -1 -> unknown;
        Ms -> Ms
    end.

%% @doc Writes how long the last pong took.
-spec set_round_trip(Ms :: non_neg_integer(), atomics:atomics_ref()) -> ok.
set_round_trip(Ms, Words) -> atomics:put(Words, ?ROUND_TRIP, Ms).

%% @doc All inboxes have shut down.
-spec set_ended(atomics:atomics_ref()) -> ok.
set_ended(Words) -> atomics:put(Words, ?ENDED, 1).

%% @doc Whether they have.
-spec has_ended(atomics:atomics_ref()) -> boolean().
has_ended(Words) -> atomics:get(Words, ?ENDED) =:= 1.

%% @doc Adds one to a counter.
-spec count(counter(), atomics:atomics_ref()) -> ok.
count(Counter, Words) -> atomics:add(Words, ?COUNTER(index(Counter)), 1).

index(requests) -> 1;
index(refused) -> 2;
index(failed) -> 3;
index(timeouts) -> 4;
index(full) -> 5;
index(busy) -> 6.

%% @doc All counters; weir_cluster:info/1 tells what they count.
-spec counters(atomics:atomics_ref()) -> #{counter() => non_neg_integer()}.
counters(Words) ->
    maps:from_list([{Counter, atomics:get(Words, ?COUNTER(index(Counter)))} || Counter <- ?COUNTERS]).
