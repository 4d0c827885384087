%% @doc The time of a server, in whole seconds, as memcached has it: it begins at 62, so that no item was last seen at 0
%% and 1 is in the past, and goes on with the runtime's monotonic clock. Its seconds begin when those of Unix time do,
%% which clients name.
%%
%% Runs no process. What it takes from outside is the runtime's clock, and the word by which tests move a server's time
%% on.
%% @private
-module(weir_memcached_server_clock).

-export([now/1, expiry/3, advance/2]).

-export_type([time/0]).

-include("weir_memcached_server.hrl").

%% The first second.
-define(FIRST, 62).
%% What has no time to come.
-define(PAST, 1).

-type time() :: pos_integer().
%% Seconds of a server's clock.

%% @doc The time now. Cost: 0.1 us.
-spec now(#cache{}) -> time().
now(#cache{words = Words, epoch = Epoch}) ->
    Since = erlang:monotonic_time() - Epoch,
    erlang:convert_time_unit(Since, native, second) + ?FIRST + atomics:get(Words, ?ADVANCED).

%% @doc When an item of this time to live expires; 0 is never. Above 30 days it is a Unix time; a negative one, or a
%% Unix time before the server's start, is in the past. Pure.
-spec expiry(integer(), time(), #cache{}) -> non_neg_integer().
expiry(0, _Now, _Cache) -> 0;
expiry(Ttl, _Now, _Cache) when Ttl < 0 -> ?PAST;
expiry(Ttl, Now, _Cache) when Ttl =< ?MAX_DELTA -> Now + Ttl;
expiry(Unix, _Now, #cache{started = Started}) -> max(?PAST, Unix - Started + ?FIRST).

%% @doc Moves the time on.
-spec advance(#cache{}, integer()) -> ok.
advance(#cache{words = Words}, Seconds) -> atomics:add(Words, ?ADVANCED, Seconds).
