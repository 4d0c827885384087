%% @doc How many messages a poll drains, for a server with neither batches, priorities nor a bound.
%%
%% Draining a message costs some 30 ns. The garbage collector adds some 100 ns, since the message is alive when it runs.
%% That is too much for a server whose callbacks take less than 2 us. Such a server is *direct*: it takes messages from
%% the mailbox one by one, as gen_server does.
%%
%% If callbacks take longer, because they work, wait or search the mailbox, draining costs little beside them and keeps
%% receives short. Therefore a poll may take as long as the callbacks since the last poll have taken. A backlog of
%% 100,000 casts is out of the mailbox after 3 ms of callbacks.
%%
%% With the option `drain', {Min, Max}, each poll drains Min messages at least, so the server is never direct. No more
%% than Max drained messages wait. {1, 1} means that nothing is drained. Without the option (`auto') Min is 0. Max is
%% then ?MAX_OFF_HEAP for a server that keeps messages off the heap, since draining moves messages onto it; otherwise
%% Max is infinite.
%%
%% Pure, but for the clock: os:perf_counter/0, which costs a third of erlang:monotonic_time/0.
%% @private
-module(weir_server_pace).

-export([new/1, is_direct/1, never_drains/1, slow/1, after_slow/2, affordable/3]).

-export_type([pace/0]).

-include("weir_server.hrl").

%% Nanoseconds that taking a message from the mailbox costs.
-define(DRAIN_NS, 30).

-define(MAX_OFF_HEAP, 1000).

%% A time longer than any other.
-define(LONG, (1 bsl 56)).

-record(pace, {
    min :: non_neg_integer(),
    max :: pos_integer() | infinity,
    %% The time of the last poll, and the time that the callbacks before it took.
    polled :: integer(),
    took = ?LONG :: non_neg_integer(),
    %% The time that ?POLL slow callbacks take, and ?DRAIN_NS, in the clock's unit.
    slow :: pos_integer(),
    price :: pos_integer()
}).

-opaque pace() :: #pace{}.

%% @doc Returns the pace of the calling process, from its option `drain'.
-spec new(auto | {Min :: pos_integer(), Max :: pos_integer() | infinity}) -> pace().
new(Drain) ->
    {Min, Max} = limits(Drain),
    #pace{
        min = Min,
        max = Max,
        polled = os:perf_counter(),
        slow = ?POLL * slow(1),
        price = max(1, erlang:convert_time_unit(?DRAIN_NS, nanosecond, perf_counter))
    }.

limits({1, 1}) ->
    {0, 1};
limits({Min, Max}) ->
    {Min, Max};
limits(auto) ->
    case process_info(self(), message_queue_data) of
        {message_queue_data, off_heap} -> {0, ?MAX_OFF_HEAP};
        {message_queue_data, on_heap} -> {0, infinity}
    end.

%% @doc Returns the time from which on `Callbacks' callbacks are slow, in the clock's unit.
-spec slow(Callbacks :: pos_integer()) -> pos_integer().
slow(Callbacks) -> erlang:convert_time_unit(Callbacks * ?SLOW_CALLBACK_NS, nanosecond, perf_counter).

%% @doc Returns whether the server is direct while its callbacks are fast.
-spec is_direct(pace()) -> boolean().
is_direct(#pace{min = Min}) -> Min =:= 0.

%% @doc Returns whether the option says that nothing is drained.
-spec never_drains(pace()) -> boolean().
never_drains(#pace{max = Max}) -> Max =:= 1.

%% @doc Notes that the callbacks of a direct server take `Took' each.
-spec after_slow(Took :: non_neg_integer(), pace()) -> pace().
after_slow(Took, Pace) ->
    All = Took * ?POLL,
    Pace#pace{polled = os:perf_counter() - All, took = All}.

%% @doc Returns how many of `Length' messages in the mailbox this poll may drain, if `Waiting' drained messages wait.
-spec affordable(Length :: non_neg_integer(), Waiting :: non_neg_integer(), pace()) -> {non_neg_integer(), pace()}.
affordable(Length, Waiting, #pace{min = Min} = Pace) when Length =< Min ->
    {room(Length, Waiting, Pace), Pace};
affordable(Length, Waiting, #pace{min = Min, polled = Polled, took = Before, slow = Slow, price = Price} = Pace) ->
    Now = os:perf_counter(),
    Took = Now - Polled,
    %% The shorter of two times: the process may have waited to be scheduled in the other.
    Affordable =
        case min(Before, Took) of
            Time when Time < Slow -> Min;
            Time -> max(Min, Time div Price)
        end,
    {room(min(Length, Affordable), Waiting, Pace), Pace#pace{polled = Now, took = Took}}.

room(Wanted, _Waiting, #pace{max = infinity}) -> Wanted;
room(Wanted, Waiting, #pace{max = Max}) -> max(0, min(Wanted, Max - Waiting)).
