%% @doc The counts of a server since its start, and where the server publishes them.
%%
%% The server writes its counts into its process dictionary. weir_server:info/1 reads them there with process_info/2,
%% even while the server hangs in a callback. `weir_watch' reads them, too, with info/1 and published/1.
%% @private
-module(weir_server_stats).

-export([new/1, handled/2, dropped/2, shed/2, drained/1, batch/2, waited/2]).
-export([publish/3, publish_lost/1, unpublish/0, waiting/0, published/1, info/1]).

-export_type([stats/0]).

%% The key in the process dictionary.
-define(PUBLISHED, '$weir_server').

-record(stats, {
    max_queue :: pos_integer() | infinity,
    handled = {0, 0, 0} :: weir_server_message:kinds(),
    %% Messages that were dropped because of `max_queue', and because a prioritise callback returned `drop'.
    dropped = {0, 0, 0} :: weir_server_message:kinds(),
    shed = {0, 0, 0} :: weir_server_message:kinds(),
    drains = 0 :: non_neg_integer(),
    batches = 0 :: non_neg_integer(),
    largest_batch = 0 :: non_neg_integer(),
    %% In the unit of os:perf_counter/0.
    longest_wait = 0 :: non_neg_integer()
}).

-opaque stats() :: #stats{}.

%% @doc Returns counts of 0, for a server with this bound.
-spec new(MaxQueue :: pos_integer() | infinity) -> stats().
new(MaxQueue) -> #stats{max_queue = MaxQueue}.

%% @doc Adds messages that callbacks have handled.
-spec handled(weir_server_message:kinds(), stats()) -> stats().
handled(More, #stats{handled = Handled} = Stats) -> Stats#stats{handled = sum(Handled, More)}.

%% @doc Adds messages that were dropped because of the bound.
-spec dropped(weir_server_message:kinds(), stats()) -> stats().
dropped(More, #stats{dropped = Dropped} = Stats) -> Stats#stats{dropped = sum(Dropped, More)}.

%% @doc Adds messages that were dropped because a prioritise callback returned `drop'.
-spec shed(weir_server_message:kinds(), stats()) -> stats().
shed(More, #stats{shed = Shed} = Stats) -> Stats#stats{shed = sum(Shed, More)}.

sum({Calls, Casts, Infos}, {MoreCalls, MoreCasts, MoreInfos}) ->
    {Calls + MoreCalls, Casts + MoreCasts, Infos + MoreInfos}.

%% @doc Counts a drain of the mailbox.
-spec drained(stats()) -> stats().
drained(#stats{drains = Drains} = Stats) -> Stats#stats{drains = Drains + 1}.

%% @doc Counts a batch of `Size' messages.
-spec batch(Size :: pos_integer(), stats()) -> stats().
batch(Size, #stats{batches = Batches, largest_batch = Largest} = Stats) ->
    Stats#stats{batches = Batches + 1, largest_batch = max(Size, Largest)}.

%% @doc Notes that a message has waited for `Time', in the unit of os:perf_counter/0.
-spec waited(Time :: integer(), stats()) -> stats().
waited(Time, #stats{longest_wait = Longest} = Stats) when Time =< Longest -> Stats;
waited(Time, Stats) -> Stats#stats{longest_wait = Time}.

%% ---------------------------------------------------------------- publishing

%% @doc Publishes the number of drained messages that wait, and the counts. `More' are handled messages that `Stats'
%% does not include yet.
%%
%% Cost: 25 ns.
-spec publish(Drained :: non_neg_integer(), More :: weir_server_message:kinds(), stats()) -> ok.
publish(Drained, More, Stats) ->
    _ = put(?PUBLISHED, {Drained, More, Stats}),
    ok.

%% @doc Publishes the number of messages that the end of the server loses.
-spec publish_lost(Drained :: non_neg_integer()) -> ok.
publish_lost(Drained) ->
    _ = put(?PUBLISHED, setelement(1, get(?PUBLISHED), Drained)),
    ok.

%% @doc Removes the counts from the dictionary, which a crash report shows.
-spec unpublish() -> ok.
unpublish() ->
    _ = erase(?PUBLISHED),
    ok.

%% @doc Returns how many drained messages of the calling server wait. In a process that is no weir_server, returns 0.
-spec waiting() -> non_neg_integer().
waiting() ->
    case get(?PUBLISHED) of
        undefined -> 0;
        {Drained, _More, _Stats} -> Drained
    end.

%% @doc Reads an entry of a server's dictionary. Returns how many drained messages wait, and how many messages have been
%% handled.
-spec published(Entry :: term()) -> {Drained :: non_neg_integer(), Handled :: non_neg_integer()}.
published({Drained, More, #stats{handled = Handled}}) ->
    {Drained, lists:sum(tuple_to_list(sum(More, Handled)))}.

%% @doc Returns what weir_server:info/1 returns, for a process of this node, without a message to the process.
-spec info(pid()) -> {ok, weir_server:info()} | {error, noproc | not_weir_server}.
info(Pid) ->
    case {process_info(Pid, message_queue_len), weir_server_otp:dictionary(Pid, ?PUBLISHED)} of
        {{message_queue_len, Mailbox}, {Drained, More, Stats}} -> {ok, info(Mailbox, Drained, More, Stats)};
        {{message_queue_len, _}, none} -> {error, not_weir_server};
        _Dead -> {error, noproc}
    end.

info(Mailbox, Drained, More, Stats) ->
    #{
        mailbox => Mailbox,
        drained => Drained,
        waiting => Mailbox + Drained,
        max_queue => Stats#stats.max_queue,
        handled => kinds(sum(More, Stats#stats.handled)),
        dropped => kinds(Stats#stats.dropped),
        shed => maps:remove(calls, kinds(Stats#stats.shed)),
        drains => Stats#stats.drains,
        batches => Stats#stats.batches,
        largest_batch => Stats#stats.largest_batch,
        longest_wait_us => erlang:convert_time_unit(Stats#stats.longest_wait, perf_counter, microsecond)
    }.

kinds({Calls, Casts, Infos}) -> #{calls => Calls, casts => Casts, infos => Infos}.
