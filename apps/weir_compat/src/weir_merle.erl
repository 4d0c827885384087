%% @doc The interface of merle, the Erlang memcached client of 2009, on {@link weir_memcached}.
%%
%% As merle was when it was registered under its own name, so that no function takes a process: function for
%% function, argument for argument, result for result. Replacing `merle:' by `weir_merle:' is all that a
%% caller needs; docs/migrating/merle.md goes through it. There is one client on a node, named `weir_merle', with
%% one connection, as merle had one; `weir_memcached' takes more. What merle stored reads back.
%%
%% What is done in another way than merle did it:
%% <ul>
%% <li>Requests of many processes are under way together; merle sent one after the other.</li>
%% <li>A request that cannot be carried out makes its caller exit with `{Reason, {weir_merle, Function, Args}}',
%%     `Reason' being `timeout' (after 5 seconds), `disconnected', `busy' or, for a get, `{undecodable, Bytes}' or what
%%     the server said. merle had no result for these either: the caller crashed with a `case_clause' or the call's
%%     time-out. An error as a value could not be told from a value that was stored.</li>
%% <li>The late reply to a request that timed out is thrown away; merle gave it to the next caller.</li>
%% <li>A lost connection is made again; merle went on with the closed socket.</li>
%% <li>A failed {@link connect/2} returns `{error, Reason}' and leaves the caller alone; merle's killed the
%%     caller as well, if that did not trap exits.</li>
%% <li>The client ends with the process that called connect also when that ends with reason `normal'.</li>
%% <li>A key that memcached cannot take is an error `badarg'; merle sent it, and with it whatever command
%%     stood behind a line end in it.</li>
%% <li>Values are read with `binary_to_term''s option `safe': what others stored creates no atoms.</li>
%% <li>Without flags given, flags are 0; merle took a random number.</li>
%% <li>{@link getskey/1} of a key that is not there is `undefined', like {@link getkey/1}; merle's was `["END"]'.</li>
%% <li>{@link stats/1} takes one word; the lines of both are ordered by name.</li>
%% </ul>
%% Left out: the forms of merle's functions with a process for a first argument, and `getkeys', which only
%% some of its descendants have: use {@link weir_memcached:get_many/2}.
%%
%% Cost of each function: that of {@link weir_memcached}'s.
-module(weir_merle).

-export([connect/0, connect/2, disconnect/0]).
-export([set/2, set/4, add/2, add/4, replace/2, replace/4, cas/3, cas/5]).
-export([getkey/1, getskey/1, delete/1, delete/2]).
-export([stats/0, stats/1, version/0, flushall/0, flushall/1, verbosity/1]).

-export_type([key/0, number_or_string/0, stored/0]).

-type key() :: atom() | string() | binary().
-type number_or_string() :: integer() | string().
%% An integer, or the same as decimal digits.
-type stored() :: ok | not_stored | string().
%% A string is what the server said instead, such as `"SERVER_ERROR out of memory storing object"'.

-define(CLIENT, ?MODULE).
%% Milliseconds, for a connection and for a request, as merle's.
-define(TIMEOUT, 5000).
%% Milliseconds between looks at a connection that is being made.
-define(POLL, 2).

%% @doc Connects to localhost, port 11211.
-spec connect() -> {ok, pid()} | {error, Reason :: term()}.
connect() ->
    connect("localhost", 11211).

%% @doc Connects, and returns when that is done or has failed, with the reason as of `gen_tcp:connect/4':
%% `{error, econnrefused}'. The process returned is linked to the caller. `{error, {already_started, Pid}}' when
%% there is a connection already. The application weir_compat must have been started. Takes 5 seconds at most.
-spec connect(weir_memcached:host(), inet:port_number()) -> {ok, pid()} | {error, Reason :: term()}.
connect(Host, Port) ->
    Options = #{
        host => Host,
        port => Port,
        connections => 1,
        connect_timeout => ?TIMEOUT,
        request_timeout => ?TIMEOUT,
        %% merle asked its server nothing of its own.
        protocol => text,
        codec => term
    },
    case weir_memcached:start_link(?CLIENT, Options) of
        {ok, Pid} -> connected(Pid);
        {error, _} = Error -> Error
    end.

%% Ends: the first attempt does, with success or with a reason.
connected(Pid) ->
    case weir_memcached:info(?CLIENT) of
        {ok, #{connections := [#{phase := up}]}} ->
            {ok, Pid};
        {ok, #{connections := [#{reason := Reason}]}} ->
            unlink(Pid),
            ok = weir_memcached:stop(?CLIENT),
            {error, Reason};
        {ok, _} ->
            timer:sleep(?POLL),
            connected(Pid)
    end.

%% @doc Closes the connection; requests under way exit with `disconnected'. Exits with `noproc' if there is none.
-spec disconnect() -> ok.
disconnect() ->
    weir_memcached:stop(?CLIENT).

%% @doc Stores a value, for ever and with flags 0.
-spec set(key(), term()) -> stored().
set(Key, Value) ->
    set(Key, 0, 0, Value).

%% @doc Stores a value, whatever was there. Flags are 32 bits; expiry is seconds, or a Unix time, or 0.
-spec set(key(), Flags :: number_or_string(), Expiry :: number_or_string(), term()) -> stored().
set(Key, Flags, Expiry, Value) ->
    Reply = weir_memcached:set(?CLIENT, name(Key), Value, options(Flags, Expiry)),
    said(Reply, set, [Key, Flags, Expiry, Value]).

%% @doc As {@link add/4}, for ever and with flags 0.
-spec add(key(), term()) -> stored().
add(Key, Value) ->
    add(Key, 0, 0, Value).

%% @doc Stores a value if there is none; else `not_stored'.
-spec add(key(), Flags :: number_or_string(), Expiry :: number_or_string(), term()) -> stored().
add(Key, Flags, Expiry, Value) ->
    Reply = weir_memcached:add(?CLIENT, name(Key), Value, options(Flags, Expiry)),
    said(Reply, add, [Key, Flags, Expiry, Value]).

%% @doc As {@link replace/4}, for ever and with flags 0.
-spec replace(key(), term()) -> stored().
replace(Key, Value) ->
    replace(Key, 0, 0, Value).

%% @doc Stores a value if there is one; else `not_stored'.
-spec replace(key(), Flags :: number_or_string(), Expiry :: number_or_string(), term()) -> stored().
replace(Key, Flags, Expiry, Value) ->
    Reply = weir_memcached:replace(?CLIENT, name(Key), Value, options(Flags, Expiry)),
    said(Reply, replace, [Key, Flags, Expiry, Value]).

%% @doc As {@link cas/5}, for ever and with flags 0.
-spec cas(key(), CasUniq :: number_or_string(), term()) -> stored().
cas(Key, CasUniq, Value) ->
    cas(Key, 0, 0, CasUniq, Value).

%% @doc Stores a value if the item is still the version that {@link getskey/1} gave, else `"EXISTS"', or
%% `"NOT_FOUND"' if it is gone.
-spec cas(key(), Flags :: number_or_string(), Expiry :: number_or_string(), CasUniq :: number_or_string(), term()) ->
    stored().
cas(Key, Flags, Expiry, CasUniq, Value) ->
    Reply = weir_memcached:cas(?CLIENT, name(Key), Value, number(CasUniq), options(Flags, Expiry)),
    said(Reply, cas, [Key, Flags, Expiry, CasUniq, Value]).

%% @doc The value of a key, or `undefined'.
-spec getkey(key()) -> Value :: term() | undefined.
getkey(Key) ->
    case weir_memcached:get(?CLIENT, name(Key)) of
        {ok, Value} -> Value;
        {error, Reason} -> no_value(Reason, getkey, [Key])
    end.

%% @doc The value of a key, after the number of its version for {@link cas/3}; or `undefined'.
-spec getskey(key()) -> [CasUniq :: non_neg_integer() | (Value :: term())] | undefined.
getskey(Key) ->
    case weir_memcached:gets(?CLIENT, name(Key)) of
        {ok, Value, CasUniq} -> [CasUniq, Value];
        {error, Reason} -> no_value(Reason, getskey, [Key])
    end.

%% @doc Removes an item.
-spec delete(key()) -> ok | not_found | string().
delete(Key) ->
    delete(Key, 0).

%% @doc Removes an item. The time was meant to keep the key from being added again for so long, which memcached has
%% not done since 1.4; another time than 0 gives the string with which it refuses one, up to version 1.6.38.
-spec delete(key(), Time :: number_or_string()) -> ok | not_found | string().
delete(Key, Time) ->
    case number(Time) of
        0 ->
            case weir_memcached:delete(?CLIENT, name(Key)) of
                {error, not_found} -> not_found;
                Reply -> said(Reply, delete, [Key, Time])
            end;
        _ ->
            "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"
    end.

%% @doc The server's statistics: lines `"STAT name value"', and `"END"'.
-spec stats() -> [string()].
stats() ->
    stat_lines(weir_memcached:stats(?CLIENT), stats, []).

%% @doc A section of the statistics, one word such as `items' or `"slabs"'; `reset' gives `["RESET"]'.
-spec stats(atom() | string()) -> [string()].
stats(Section) ->
    case stat_lines(weir_memcached:stats(?CLIENT, name(Section)), stats, [Section]) of
        ["END"] when Section =:= reset; Section =:= "reset" -> ["RESET"];
        Lines -> Lines
    end.

stat_lines({ok, Stats}, _, _) ->
    [binary_to_list(<<"STAT ", Name/binary, " ", Value/binary>>) || {Name, Value} <- lists:sort(maps:to_list(Stats))] ++
        ["END"];
stat_lines(Error, Function, Args) ->
    [said(Error, Function, Args)].

%% @doc The server's version: `["VERSION 1.6.18"]'.
-spec version() -> [string()].
version() ->
    case weir_memcached:version(?CLIENT) of
        {ok, Version} -> ["VERSION " ++ binary_to_list(Version)];
        Error -> [said(Error, version, [])]
    end.

%% @doc Makes all items expire.
-spec flushall() -> ok | string().
flushall() ->
    said(weir_memcached:flush_all(?CLIENT), flushall, []).

%% @doc Makes all items expire after so many seconds.
-spec flushall(Delay :: number_or_string()) -> ok | string().
flushall(Delay) ->
    said(weir_memcached:flush_all(?CLIENT, #{delay => number(Delay)}), flushall, [Delay]).

%% @doc How much the server writes to its log: 0, 1 or 2.
-spec verbosity(Level :: number_or_string()) -> ok | string().
verbosity(Level) ->
    said(weir_memcached:verbosity(?CLIENT, number(Level)), verbosity, [Level]).

%% Arguments as merle took them

name(Key) when is_atom(Key) -> atom_to_list(Key);
name(Key) -> Key.

number(N) when is_integer(N) -> N;
number(Digits) -> list_to_integer(Digits).

options(Flags, Expiry) ->
    #{flags => number(Flags), ttl => number(Expiry)}.

%% Results as merle gave them: `ok', `not_stored', or the server's own words

said(ok, _, _) -> ok;
said({error, not_stored}, _, _) -> not_stored;
said({error, exists}, _, _) -> "EXISTS";
said({error, not_found}, _, _) -> "NOT_FOUND";
said({error, {too_large, _}}, _, _) -> "SERVER_ERROR object too large for cache";
said({error, {client_error, <<"ERROR">>}}, _, _) -> "ERROR";
said({error, {client_error, Text}}, _, _) -> "CLIENT_ERROR " ++ binary_to_list(Text);
said({error, {server_error, Text}}, _, _) -> "SERVER_ERROR " ++ binary_to_list(Text);
said({error, {bad_key, _}}, _, Args) -> error(badarg, Args);
said({error, Reason}, Function, Args) -> exit({Reason, {?MODULE, Function, Args}}).

no_value(not_found, _, _) -> undefined;
no_value({bad_key, _}, _, Args) -> error(badarg, Args);
no_value(Reason, Function, Args) -> exit({Reason, {?MODULE, Function, Args}}).
