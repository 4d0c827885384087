%% @doc Numbers for processes that claim: a slot's word has room for 44 bits, and a pid's number and serial need 60.
%%
%% The number of a process is what tells its pid from others: all 28 bits of the number in it, and the lower 16 of its
%% serial, which goes up by one when the runtime has given out all numbers. {@link pid/1} makes the pid again; of the
%% serials with the same lower bits it takes the one that is nearest to the calling process's own. So two processes
%% understand each other as long as the node has not started 2^43 processes between the starts of the two: at 100,000 a
%% second, in some three years.
%%
%% A number takes no table, no row that somebody has to delete, and no process that has to be told.
%%
%% A process keeps its number in its dictionary, with its pid, should somebody copy a dictionary. One that is erased is
%% made again, and is the same.
%% @private
-module(weir_pool_holder).

-export([claimer/0, remember/2, id/1, pid/1]).

-export_type([id/0, claimer/0]).

-type id() :: 1..16#fffffffffff.
%% 0 would be init, which claims nothing; it stands for nobody.

%% `Slot' is that of the last claim, in whatever pool; before the first, the number in the pid, so that processes begin
%% in different slots. It is where the next claim begins to search: with more claimers than schedulers, most of the
%% slots near any other place are held by processes that are waiting for their turn to run.
-type claimer() :: {pid(), id(), Slot :: pos_integer()}.

-define(KEY, '$weir_pool_holder').
-define(SERIALS, (1 bsl 16)).

%% @doc The calling process's number, and the slot it had last. Cost: a look into the process dictionary.
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

%% @doc The calling process has another slot than the last time.
-spec remember(claimer(), weir_pool:slot()) -> ok.
remember({Pid, Id, _}, Slot) ->
    _ = put(?KEY, {Pid, Id, Slot}),
    ok.

%% @doc The number of a process of this node.
-spec id(pid()) -> id().
id(Pid) ->
    {_Node, Number, Serial, _Creation} = parts(Pid),
    Number * ?SERIALS + Serial rem ?SERIALS.

%% @doc The process with this number. Cost: 0.3 us.
-spec pid(id()) -> pid().
pid(Id) ->
    {Node, _, Own, Creation} = parts(self()),
    Serial = nearest(Own - Own rem ?SERIALS + Id rem ?SERIALS, Own),
    binary_to_term(<<Node/binary, (Id div ?SERIALS):32, Serial:32, Creation:32>>).

nearest(Serial, Own) when Serial - Own > ?SERIALS div 2, Serial >= ?SERIALS -> Serial - ?SERIALS;
nearest(Serial, Own) when Own - Serial > ?SERIALS div 2 -> Serial + ?SERIALS;
nearest(Serial, _Own) -> Serial.

%% NEW_PID_EXT of the external term format (erts User's Guide): the node's name, and three words of 32 bits.
parts(Pid) ->
    External = term_to_binary(Pid),
    Size = byte_size(External) - 12,
    <<Node:Size/binary, Number:32, Serial:32, Creation:32>> = External,
    {Node, Number, Serial, Creation}.
