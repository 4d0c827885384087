%% @doc The pids of all processes of the node, in a process of their own, which reads them once, and deals them out.
%%
%% A list of a million takes 16 MB, and the runtime 8 MB more while it makes it. A collection would copy all of it. So
%% the list is made in a process whose heap is larger from the start, it stays there, and what is asked for is a copy of
%% some of it. So that one of them can be had at random, a tuple has the rest of the list from each 64th on.
%%
%% Who has started it asks, waits for each answer, and is linked to it: if it ends while somebody waits, he ends too.
%% @private
-module(weir_watch_pids).

-export([start_link/2, next/1, samples/2, stop/1, bytes/1, loop/2]).

-define(STRIDE, 64).
-define(NEXT, 512).
-define(FREED_MS, 5).
%% What it takes while the runtime makes the list: the heap, which may be a fifth larger than was asked for, and the
%% runtime's own.
-define(BYTES, 32).

-record(pids, {
    %% The rest of the list from the 1st, the 65th ... on.
    rests :: tuple(),
    size :: pos_integer(),
    %% Those that are not dealt out yet.
    ahead :: [pid()]
}).

%% @doc How many bytes it takes for so many processes.
-spec bytes(non_neg_integer()) -> non_neg_integer().
bytes(Number) -> ?BYTES * Number.

%% @doc Starts it, waits until it has read the pids, and tells how many there are, how long that took it, in native
%% time, and the bytes of its heap. It deals them out from the one after so many on, or from the first. Raises
%% `system_limit' where the node has as many processes as it may.
-spec start_link(pos_integer(), non_neg_integer()) -> {pid(), pos_integer(), non_neg_integer(), pos_integer()}.
start_link(Number, Skipped) ->
    Asker = self(),
    %% More, for what is dealt out before others read the pids anew.
    Words = 2 * Number + Number div 2,
    Pid = spawn_opt(fun() -> init(Asker, Skipped) end, [link, {priority, high}, {min_heap_size, Words}]),
    receive
        {?MODULE, Pid, {Size, Took, Bytes}} -> {Pid, Size, Took, Bytes}
    end.

%% @doc The next 512 pids; after the last of all the first ones come again, so they may be fewer.
-spec next(pid()) -> [pid(), ...].
next(Pid) -> ask(Pid, next).

%% @doc So many pids, each chosen at random; each of them once where there are no more.
-spec samples(pid(), non_neg_integer()) -> [pid()].
samples(Pid, Number) -> ask(Pid, {samples, Number}).

%% @doc Ends it, and waits for that, so that its memory is not there beside that of the next one: the runtime tells that
%% a process has ended some microseconds before it frees the heap. It stays linked, and ends with who waits here.
-spec stop(pid()) -> ok.
stop(Pid) ->
    Monitor = monitor(process, Pid),
    Pid ! {self(), stop},
    receive
        {'DOWN', Monitor, process, Pid, _} -> timer:sleep(?FREED_MS)
    end.

ask(Pid, What) ->
    Pid ! {self(), What},
    receive
        {?MODULE, Pid, Answer} -> Answer
    end.

init(Asker, Skipped) ->
    Begin = erlang:monotonic_time(),
    All = erlang:processes(),
    Rests = list_to_tuple(rests(All)),
    Size = length(All),
    Ahead = if Skipped < Size -> rest(Skipped, Rests); true -> All end,
    {total_heap_size, Words} = process_info(self(), total_heap_size),
    Asker ! {?MODULE, self(), {Size, erlang:monotonic_time() - Begin, Words * erlang:system_info(wordsize)}},
    loop(Asker, #pids{rests = Rests, size = Size, ahead = Ahead}).

%% @private Called by its full name, so that it comes into the code of another version.
-spec loop(pid(), #pids{}) -> ok.
loop(Asker, #pids{ahead = Ahead, rests = Rests, size = Size} = Pids) ->
    receive
        {Asker, next} ->
            Asker ! {?MODULE, self(), lists:sublist(Ahead, ?NEXT)},
            Rest = drop(?NEXT, Ahead),
            ?MODULE:loop(Asker, Pids#pids{ahead = if Rest =:= [] -> element(1, Rests); true -> Rest end});
        {Asker, stop} ->
            ok;
        {Asker, {samples, Number}} ->
            Samples =
                if
                    Size =< Number -> element(1, Rests);
                    true -> drawn(Number, Size, Rests)
                end,
            Asker ! {?MODULE, self(), Samples},
            ?MODULE:loop(Asker, Pids)
    end.

drawn(0, _Size, _Rests) -> [];
drawn(Number, Size, Rests) -> [hd(rest(rand:uniform(Size) - 1, Rests)) | drawn(Number - 1, Size, Rests)].

%% From the one after so many on.
rest(Skipped, Rests) -> drop(Skipped rem ?STRIDE, element(Skipped div ?STRIDE + 1, Rests)).

rests([]) -> [];
rests(List) -> [List | rests(drop(?STRIDE, List))].

drop(N, [_ | Rest]) when N > 0 -> drop(N - 1, Rest);
drop(_, List) -> List.
