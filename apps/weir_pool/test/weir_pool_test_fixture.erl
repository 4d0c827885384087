%% Pools without processes of their own: terms and words as a keeper would have written them, and nobody who changes
%% them.
-module(weir_pool_test_fixture).

-export([open/3, close/1, put_load/3, loads/1]).

-include("../src/weir_pool.hrl").

%% `Workers' is what the slots hold: pids, or `vacant'. Slots for overflow, if any, stay vacant.
open(Name, Opts, Workers) ->
    {ok, Conf} = weir_pool_opts:check(Opts#{size => length(Workers)}),
    Pool = weir_pool_terms:new(Name, erlang:unique_integer([positive, monotonic]), Conf),
    [
        begin
            ok = weir_pool_terms:fill(Pool, Slot, Worker),
            ok = weir_pool_word:occupy(Pool, Slot)
        end
     || {Slot, Worker} <- lists:zip(lists:seq(1, length(Workers)), Workers), is_pid(Worker)
    ],
    ok = weir_pool_terms:open(Name, Pool),
    Pool.

close(#pool{name = Name, limit = Limit} = Pool) ->
    ok = weir_pool_terms:close(Name),
    ok = weir_pool_terms:erase_slots(weir_pool_terms:id(Pool), Limit).

%% As if so many calls were under way. Pools of tests have one segment.
put_load(#pool{segments = [{1, Words}]}, Slot, Load) -> atomics:put(Words, ?LOAD_WORD(1, Slot), Load).

loads(#pool{segments = [{1, Words}], limit = Limit}) ->
    [atomics:get(Words, ?LOAD_WORD(1, Slot)) || Slot <- lists:seq(1, Limit)].
