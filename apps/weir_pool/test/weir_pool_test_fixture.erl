%% Pools without processes of their own: terms and words as a manager would have written them, and no process that
%% changes them.
-module(weir_pool_test_fixture).

-export([open/3, close/1, put_load/3, loads/1]).

-include("../src/weir_pool.hrl").

%% `Workers' is what the slots hold: pids, or `vacant'. Slots for overflow, if any, stay vacant.
open(Name, Opts, Workers) ->
    {ok, Conf} = weir_pool_opts:check(maps:merge(#{worker => none}, Opts#{size => length(Workers)})),
    Base = erlang:unique_integer([positive, monotonic]) * (?MAX_SIZE + 1),
    Pool = weir_pool_terms:new(Name, Base, Conf, self()),
    [
        begin
            ok = weir_pool_terms:fill(Pool, Slot, Worker),
            ok = weir_pool_word:occupy(Pool, Slot)
        end
     || {Slot, Worker} <- lists:zip(lists:seq(1, length(Workers)), Workers), is_pid(Worker)
    ],
    ok = weir_pool_terms:open(Pool),
    Pool.

close(#pool{name = Name, base = Base}) ->
    ok = weir_pool_terms:close(Name),
    weir_pool_terms:erase_slots([Base]).

%% Writes the number of calls that are under way in a slot. Pools of tests have one segment.
put_load(#pool{segments = [{1, Words, _}]}, Slot, Load) -> atomics:put(Words, ?CALLS_WORD(1, Slot), Load).

loads(#pool{segments = [{1, Words, _}], limit = Limit}) ->
    [atomics:get(Words, ?CALLS_WORD(1, Slot)) || Slot <- lists:seq(1, Limit)].
