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
%%   ended         weir_cluster_monitor: how all intakes, or one, or the           callers
%%                 connection have ended
%%   gone          the member, weir_cluster_monitor: nothing is sent there         callers
%%                 any more
%%   offset        the member: what that node's clock shows more than ours       callers
%%   round trip    the member: how long the last pong took                       info/1
%%   counters      callers                                                       info/1
%%   first         the member: the number that sent(I) begins with               the member
%%   sent(I)       callers: requests sent to intake I, from that number on        callers, the member
%%   handled(I)    the member: of these, as many as intake I has taken up         callers
%% '''
%%
%% == Window ==
%%
%% `sent - handled' is at most the window, for each intake: so many requests of this node may be on their way and in the
%% mailbox there. A caller that finds the window full sends nothing. The request that makes `sent' a multiple of a
%% quarter of the window asks for an acknowledgement, and the intake answers it when it gets to it, with the number
%% that came with it. Mailboxes are in order, so what was sent before has been taken up. A caller that is killed
%% between counting and sending leaves `sent' one too high, and one that should have asked does not ask: both are
%% mended by the next acknowledgement, since numbers and not messages are counted, and by the pings of the member,
%% which ask for one too. Callers that count and send at the same time may send in another order: by so many the
%% window may be exceeded. A node that was gone and is there again has other words, whose numbers begin above those of
%% before: what it was asked then, and answers now, opens no window.
%%
%% == Nothing is sent any more ==
%%
%% A caller counts a request in `sent', reads `gone', and then sends it and counts it among the requests or, if it was
%% not sent, the busy ones. The member writes `gone' before it adds these up: so when the sums are equal, all that
%% callers of this node will ever have sent there is on its way. A caller that is killed in between leaves them unequal
%% for good.
%%
%% == Who is let in ==
%%
%% A node has a share of what it would get, in thousandths. It starts with 0, until its first pong. It is set to 0 by
%% the caller who sees the third time-out, or a later one, in a row without a reply or a pong in between. He has the
%% member ping it at once; so a node whose workers are slow, but that answers, has all again after a round trip, and is
%% left to its load. The member sets it to 0 when four pings in a row had no pong. Of a node that was so silent, or
%% that took longer for a pong than from one ping to the next, each pong doubles the share, from a tenth on.
%% @private
-module(weir_cluster_link).

-export([new/1, is_let_in/2, share/1, set_share/2]).
-export([reserve/3, handled/3, unhandled/2, sent/2, set_gone/1, is_sent/2]).
-export([requested/1, replied/2, answered/1, timed_out/1, load/3, set_load/4, requests/1, offset/1, set_offset/2,
    round_trip/1, set_round_trip/2]).
-export([set_ended/2, how_ended/1, count/2, counters/1]).

-define(SHARE, 1).
-define(TIMEOUTS_IN_A_ROW, 2).
-define(LOAD, 3).
-define(LOAD_UNTIL, 4).
-define(OFFSET, 5).
-define(SINCE, 6).
-define(ENDED, 7).
-define(ROUND_TRIP, 8).
-define(COUNTER(I), (8 + (I))).
-define(GONE, 15).
-define(FIRST, 16).
-define(LINE_WORDS, 8).
-define(SENT(Intake), (((Intake) + 2) * ?LINE_WORDS + 1)).
-define(HANDLED(Intake), (((Intake) + 2) * ?LINE_WORDS + 2)).

-define(MOST_TIMEOUTS, 3).
-define(ALL, 1000).
%% A load that came with a reply is unknown after so long.
-define(LOAD_MS, 1000).

-define(COUNTERS, [requests, refused, failed, timeouts, full, busy]).

-type counter() :: requests | refused | failed | timeouts | full | busy.

%% @doc Nothing is known yet.
-spec new(Intakes :: pos_integer()) -> atomics:atomics_ref().
new(Intakes) ->
    Words = atomics:new((Intakes + 4) * ?LINE_WORDS, [{signed, true}]),
    %% Its clock may show less than 0.
    ok = atomics:put(Words, ?LOAD_UNTIL, erlang:monotonic_time(millisecond) - 1),
    ok = atomics:put(Words, ?ROUND_TRIP, -1),
    %% Above all numbers that the same node, if it was known before, may still answer: no intake is sent a request each
    %% nanosecond.
    First = erlang:monotonic_time(nanosecond),
    ok = atomics:put(Words, ?FIRST, First),
    ok = lists:foreach(fun(Intake) ->
        ok = atomics:put(Words, ?SENT(Intake), First),
        atomics:put(Words, ?HANDLED(Intake), First)
    end, lists:seq(1, Intakes)),
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

%% @doc Counts a request, if the window has room for it. It must be sent then, and counted.
-spec reserve(Intake :: pos_integer(), Window :: pos_integer(), atomics:atomics_ref()) ->
    {ok, pos_integer()} | full | gone.
reserve(Intake, Window, Words) ->
    Sent = atomics:add_get(Words, ?SENT(Intake), 1),
    case Sent - atomics:get(Words, ?HANDLED(Intake)) > Window of
        true -> not_sent(full, Intake, Words);
        false ->
            case atomics:get(Words, ?GONE) of
                0 -> {ok, Sent};
                _ -> not_sent(gone, Intake, Words)
            end
    end.

not_sent(Why, Intake, Words) ->
    ok = atomics:sub(Words, ?SENT(Intake), 1),
    Why.

%% @doc Nothing is sent there any more, but what callers were sending just now.
-spec set_gone(atomics:atomics_ref()) -> ok.
set_gone(Words) -> atomics:put(Words, ?GONE, 1).

%% @doc Whether they have sent it, once the node is gone.
-spec is_sent(Intakes :: pos_integer(), atomics:atomics_ref()) -> boolean().
is_sent(Intakes, Words) ->
    Reserved = lists:sum([sent(Intake, Words) || Intake <- lists:seq(1, Intakes)]),
    Reserved - Intakes * atomics:get(Words, ?FIRST) =:= requests(Words) + atomics:get(Words, ?COUNTER(index(busy))).

%% @doc The intake has taken up all that were sent up to this one.
-spec handled(Intake :: pos_integer(), Sent :: integer(), atomics:atomics_ref()) -> ok.
handled(Intake, Sent, Words) ->
    %% Only the member writes it.
    case atomics:get(Words, ?HANDLED(Intake)) of
        Handled when Handled < Sent -> atomics:put(Words, ?HANDLED(Intake), Sent);
        _ -> ok
    end.

%% @doc How many requests are on their way to an intake or in its mailbox.
-spec unhandled(Intake :: pos_integer(), atomics:atomics_ref()) -> integer().
unhandled(Intake, Words) -> atomics:get(Words, ?SENT(Intake)) - atomics:get(Words, ?HANDLED(Intake)).

%% @doc The number of the last request that was sent to an intake.
-spec sent(Intake :: pos_integer(), atomics:atomics_ref()) -> integer().
sent(Intake, Words) -> atomics:get(Words, ?SENT(Intake)).

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

%% @doc No reply came in time. `left_out': nothing is sent there any more since this one.
-spec timed_out(atomics:atomics_ref()) -> ok | left_out.
timed_out(Words) ->
    ok = count(timeouts, Words),
    case atomics:add_get(Words, ?TIMEOUTS_IN_A_ROW, 1) >= ?MOST_TIMEOUTS andalso atomics:exchange(Words, ?SHARE, 0) of
        Share when is_integer(Share), Share > 0 -> left_out;
        _ -> ok
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

%% @doc All intakes have shut down, or an intake or the connection is lost. Nothing is sent there any more.
-spec set_ended(Reason :: term(), atomics:atomics_ref()) -> ok.
set_ended(Reason, Words) ->
    ok = atomics:put(Words, ?ENDED, case Reason of shutdown -> 1; noconnection -> 2; _ -> 0 end),
    set_gone(Words).

%% @doc How they have ended; `killed' stands for all other reasons.
-spec how_ended(atomics:atomics_ref()) -> shutdown | noconnection | killed.
how_ended(Words) ->
    case atomics:get(Words, ?ENDED) of
        1 -> shutdown;
        2 -> noconnection;
        0 -> killed
    end.

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
