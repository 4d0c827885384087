%% @doc Numbers for processes that claim.
%%
%% A slot's state word has room for a number of 44 bits, and a pid of this node needs 60 bits: 28 for its number and 32
%% for its serial. The runtime adds 1 to the serial when all numbers have been used. The number of this module is the
%% pid's number and the lower 16 bits of its serial. No table maps numbers to pids, so there is no row to delete when a
%% process dies.
%%
%% {@link pid/1} makes the pid again. If several serials have the same lower 16 bits, the function takes the nearest to
%% the serial of the calling process. The result is right unless the node has started 2^43 processes between the starts
%% of the two processes. At 100,000 starts a second that takes about three years.
%%
%% A process keeps its number in its process dictionary, together with its pid. The pid shows whether the entry was
%% copied from the dictionary of another process. If the entry has been erased or copied, {@link claimer/0} makes it
%% again.
%% @private
-module(weir_pool_holder).

-export([claimer/0, remember/2, id/1, pid/1]).

-export_type([id/0, claimer/0]).

-type id() :: 1..16#fffffffffff.
%% The number of `init' would be 0, but `init' never claims. In a state word, 0 stands for no holder.

-type claimer() :: {pid(), id(), Slot :: pos_integer()}.
%% `Slot' is the slot of the process's last claim, in any pool, and the next claim tries this slot first. If there are
%% more claimers than schedulers, processes that are not scheduled hold most of the other slots. Before its first claim,
%% a process has the number of its pid as `Slot', so that processes begin at different slots.

-define(KEY, '$weir_pool_holder').
-define(SERIALS, (1 bsl 16)).

%% @doc Returns the calling process's pid, its number, and the slot of its last claim. Cost: reads the process
%% dictionary.
-spec claimer() -> claimer().
claimer() ->
    case get(?KEY) of
        {Pid, _, _} = Claimer when Pid =:= self() ->
            Claimer;
        _ ->
            Id = id(self()),
            Claimer = {self(), Id, Id div ?SERIALS + 1},
            _ = put(?KEY, Claimer),
            Claimer
    end.

%% @doc Stores the slot of the calling process's last claim in the process dictionary.
-spec remember(claimer(), weir_pool:slot()) -> ok.
remember({Pid, Id, _}, Slot) ->
    _ = put(?KEY, {Pid, Id, Slot}),
    ok.

%% @doc Returns the number of a process of this node.
-spec id(pid()) -> id().
id(Pid) ->
    {_Node, Number, Serial, _Creation} = parts(Pid),
    Number * ?SERIALS + Serial rem ?SERIALS.

%% @doc Returns the process with a number. Cost: 0.3 us.
-spec pid(id()) -> pid().
pid(Id) ->
    {Node, _, Own, Creation} = parts(self()),
    Serial = nearest(Own - Own rem ?SERIALS + Id rem ?SERIALS, Own),
    binary_to_term(<<Node/binary, (Id div ?SERIALS):32, Serial:32, Creation:32>>).

%% Returns the nearest serial to Own that has the same lower bits as Serial.
nearest(Serial, Own) when Serial - Own > ?SERIALS div 2, Serial >= ?SERIALS -> Serial - ?SERIALS;
nearest(Serial, Own) when Own - Serial > ?SERIALS div 2 -> Serial + ?SERIALS;
nearest(Serial, _Own) -> Serial.

%% Splits a pid. In the external term format (NEW_PID_EXT, ERTS User's Guide) a pid is the node's name and three words
%% of 32 bits.
parts(Pid) ->
    External = term_to_binary(Pid),
    Size = byte_size(External) - 12,
    <<Node:Size/binary, Number:32, Serial:32, Creation:32>> = External,
    {Node, Number, Serial, Creation}.
