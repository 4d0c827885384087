%% @doc The interface of merle, the Erlang memcached client of 2009, on {@link weir_memcached}.
%%
%% Functions, arguments and results are those of merle when it was registered under its own name, so no function takes
%% a process. A caller replaces `merle:' by `weir_merle:', and needs no other change. docs/migrating/merle.md describes
%% the move. A node has one client, named `weir_merle', with one connection, as merle had. `weir_memcached' offers more.
%% Values that merle stored can be read.
%%
%% Differences from merle:
%% <ul>
%% <li>Requests of many processes are under way together. merle sent one after the other.</li>
%% <li>A request that cannot be carried out makes its caller exit with `{Reason, {weir_merle, Function, Args}}'.
%%     `Reason' is `timeout' (after 5 seconds), `disconnected' or `busy'. For a get, `Reason' may also be `{undecodable,
%%     Bytes}' or the server's error. In merle the caller crashed with a `case_clause' or the call's time-out. An error
%%     that is returned could not be distinguished from a stored value.</li>
%% <li>The late reply to a request that timed out is dropped. merle gave the reply to the next caller.</li>
%% <li>A lost connection is made again. merle continued with the closed socket.</li>
%% <li>A failed {@link connect/2} returns `{error, Reason}'. merle also killed a caller that did not trap exits.</li>
%% <li>The client ends with the process that called {@link connect/2}, even if that process ends with reason
%%     `normal'.</li>
%% <li>A key that memcached cannot take raises `badarg'. merle sent the key, and with it any command after a line end in
%%     the key.</li>
%% <li>Values are decoded by `binary_to_term' with the option `safe', so values of other programs create no atoms.</li>
%% <li>The default of flags is 0. merle took a random number.</li>
%% <li>{@link getskey/1} returns `undefined' for a missing key, like {@link getkey/1}. merle returned `["END"]'.</li>
%% <li>{@link stats/1} takes one word. The lines of {@link stats/0} and {@link stats/1} are ordered by name.</li>
%% </ul>
%% Left out are the forms of merle's functions with a process as first argument, and `getkeys', which some versions of
%% merle have. {@link weir_memcached:get_many/2} reads several keys.
%%
%% Each function costs as much as the function of {@link weir_memcached} that it calls.
-module(weir_merle).

-export([connect/0, connect/2, disconnect/0]).
-export([set/2, set/4, add/2, add/4, replace/2, replace/4, cas/3, cas/5]).
-export([getkey/1, getskey/1, delete/1, delete/2]).
-export([stats/0, stats/1, version/0, flushall/0, flushall/1, verbosity/1]).

-export_type([key/0, number_or_string/0, stored/0]).

-type key() :: atom() | string() | binary().
-type number_or_string() :: integer() | string().
%% An integer, or a string of decimal digits.
-type stored() :: ok | not_stored | string().
%% A string is the server's error, such as `"SERVER_ERROR out of memory storing object"'.

-define(CLIENT, ?MODULE).
%% Milliseconds for a connection and for a request, as in merle.
-define(TIMEOUT, 5000).
%% Milliseconds between two reads of a connection's state.
-define(POLL, 2).

%% @doc Connects to localhost, port 11211.
-spec connect() -> {ok, pid()} | {error, Reason :: term()}.
connect() ->
    connect("localhost", 11211).

%% @doc Connects to a server, and returns a process that is linked to the caller. The application weir_compat must have
%% been started. Takes 5 seconds at most.
%%
%% If the connection fails, returns the reason of `gen_tcp:connect/4', for instance `{error, econnrefused}'. If there is
%% a connection, returns `{error, {already_started, Pid}}'.
-spec connect(weir_memcached:host(), inet:port_number()) -> {ok, pid()} | {error, Reason :: term()}.
connect(Host, Port) ->
    Options = #{
        host => Host,
        port => Port,
        connections => 1,
        connect_timeout => ?TIMEOUT,
        request_timeout => ?TIMEOUT,
        %% With `auto' a connection would ask for the server's version. The server receives the requests of callers
        %% only, as from merle.
        protocol => text,
        codec => term
    },
    case weir_memcached:start_link(?CLIENT, Options) of
        {ok, Pid} -> connected(Pid);
        {error, _} = Error -> Error
    end.

%% Waits until the first attempt has succeeded or failed. The client bounds the time of an attempt.
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

%% @doc Closes the connection. Requests under way exit with `disconnected'. If there is no connection, exits with
%% `noproc'.
-spec disconnect() -> ok.
disconnect() ->
    weir_memcached:stop(?CLIENT).

%% @doc Stores a value without expiry and with flags 0.
-spec set(key(), term()) -> stored().
set(Key, Value) ->
    set(Key, 0, 0, Value).

%% @doc Stores a value, and replaces any earlier value. Flags are 32 bits. The expiry is a number of seconds or a Unix
%% time, or 0 for none.
-spec set(key(), Flags :: number_or_string(), Expiry :: number_or_string(), term()) -> stored().
set(Key, Flags, Expiry, Value) ->
    Reply = weir_memcached:set(?CLIENT, name(Key), Value, options(Flags, Expiry)),
    said(Reply, set, [Key, Flags, Expiry, Value]).

%% @doc Does the same as {@link add/4} without expiry and with flags 0.
-spec add(key(), term()) -> stored().
add(Key, Value) ->
    add(Key, 0, 0, Value).

%% @doc Stores a value if the key has none. Otherwise returns `not_stored'.
-spec add(key(), Flags :: number_or_string(), Expiry :: number_or_string(), term()) -> stored().
add(Key, Flags, Expiry, Value) ->
    Reply = weir_memcached:add(?CLIENT, name(Key), Value, options(Flags, Expiry)),
    said(Reply, add, [Key, Flags, Expiry, Value]).

%% @doc Does the same as {@link replace/4} without expiry and with flags 0.
-spec replace(key(), term()) -> stored().
replace(Key, Value) ->
    replace(Key, 0, 0, Value).

%% @doc Stores a value if the key has one. Otherwise returns `not_stored'.
-spec replace(key(), Flags :: number_or_string(), Expiry :: number_or_string(), term()) -> stored().
replace(Key, Flags, Expiry, Value) ->
    Reply = weir_memcached:replace(?CLIENT, name(Key), Value, options(Flags, Expiry)),
    said(Reply, replace, [Key, Flags, Expiry, Value]).

%% @doc Does the same as {@link cas/5} without expiry and with flags 0.
-spec cas(key(), CasUniq :: number_or_string(), term()) -> stored().
cas(Key, CasUniq, Value) ->
    cas(Key, 0, 0, CasUniq, Value).

%% @doc Stores a value if the item still has the version that {@link getskey/1} returned. Otherwise returns `"EXISTS"',
%% or `"NOT_FOUND"' if the item is gone.
-spec cas(key(), Flags :: number_or_string(), Expiry :: number_or_string(), CasUniq :: number_or_string(), term()) ->
    stored().
cas(Key, Flags, Expiry, CasUniq, Value) ->
    Reply = weir_memcached:cas(?CLIENT, name(Key), Value, number(CasUniq), options(Flags, Expiry)),
    said(Reply, cas, [Key, Flags, Expiry, CasUniq, Value]).

%% @doc Returns the value of a key, or `undefined'.
-spec getkey(key()) -> Value :: term() | undefined.
getkey(Key) ->
    case weir_memcached:get(?CLIENT, name(Key)) of
        {ok, Value} -> Value;
        {error, Reason} -> no_value(Reason, getkey, [Key])
    end.

%% @doc Returns `[CasUniq, Value]', with the number of the item's version for {@link cas/3}, or `undefined'.
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

%% @doc Removes an item. The time must be 0: memcached 1.4 and later do not support another time.
%%
%% For any other time, returns the error of memcached up to version 1.6.38 without a request.
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

%% @doc Returns the server's statistics as lines `"STAT name value"', and `"END"'.
-spec stats() -> [string()].
stats() ->
    stat_lines(weir_memcached:stats(?CLIENT), stats, []).

%% @doc Returns a section of the statistics, such as `items' or `"slabs"'. The section `reset' returns `["RESET"]'.
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

%% @doc Returns the server's version, for instance `["VERSION 1.6.18"]'.
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

%% @doc Makes all items expire after `Delay' seconds.
-spec flushall(Delay :: number_or_string()) -> ok | string().
flushall(Delay) ->
    said(weir_memcached:flush_all(?CLIENT, #{delay => number(Delay)}), flushall, [Delay]).

%% @doc Sets the level of the server's log: 0, 1 or 2.
-spec verbosity(Level :: number_or_string()) -> ok | string().
verbosity(Level) ->
    said(weir_memcached:verbosity(?CLIENT, number(Level)), verbosity, [Level]).

%% ---------------------------------------------------------------- arguments in the form of merle

name(Key) when is_atom(Key) -> atom_to_list(Key);
name(Key) -> Key.

number(N) when is_integer(N) -> N;
number(Digits) -> list_to_integer(Digits).

options(Flags, Expiry) ->
    #{flags => number(Flags), ttl => number(Expiry)}.

%% ---------------------------------------------------------------- results in the form of merle

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
