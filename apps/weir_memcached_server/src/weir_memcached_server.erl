%% @doc A memcached in an Erlang node: for tests that need one, and where there is none.
%%
%% It speaks memcached's text and meta protocols over TCP, TLS or a Unix socket, as memcached 1.6.18 does, with a bound
%% for its memory and the same words for every mistake. There is no process that all requests go through: each
%% connection works on the items by itself.
%%
%% ```
%% {ok, _} = application:ensure_all_started(weir_memcached_server),
%% {ok, Server} = weir_memcached_server:start_link(#{memory => 16_000_000}),
%% Port = weir_memcached_server:port(Server),
%% {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
%% ok = gen_tcp:send(Socket, "set greeting 0 60 5\r\nhello\r\nget greeting\r\n"),
%% {ok, <<"STORED\r\nVALUE greeting 0 5\r\nhello\r\nEND\r\n">>} = gen_tcp:recv(Socket, 47),
%% %% An hour later:
%% ok = weir_memcached_server:advance(Server, 3600),
%% ok = gen_tcp:send(Socket, "get greeting\r\n"),
%% {ok, <<"END\r\n">>} = gen_tcp:recv(Socket, 0),
%% ok = weir_memcached_server:stop(Server).
%% '''
%%
%% The application `weir_memcached_server' has to run. When it is stopped its servers are, too; a supervisor that would
%% start one again is better stopped before.
%%
%% <h3>When not to use it</h3>
%% Not as a cache for production: memcached is faster and has been there for twenty years. Items do not survive the
%% server. No UDP, no binary protocol, no SASL.
-module(weir_memcached_server).

-export([start_link/1, child_spec/1, stop/1, port/1, info/1, advance/2, servers/0]).

-export_type([server/0, options/0, error/0]).

-include("weir_memcached_server.hrl").

-define(MAX_ADVANCE, 16#7FFFFFFF).

-type server() :: pid() | atom().
%% What `start_link/1' returns, or the option `name'.

-type options() :: #{
    name => atom(),
    port => inet:port_number(),
    ip => inet:ip_address(),
    path => file:name_all(),
    mode => 0..8#777,
    memory => pos_integer(),
    max_item => pos_integer(),
    evict => boolean(),
    max_connections => pos_integer(),
    backlog => pos_integer(),
    auth => none | {file, file:name_all()} | [{User :: binary(), Password :: binary()}],
    tls => none | [term()],
    idle_timeout => timeout(),
    send_timeout => timeout(),
    flush => boolean(),
    debug => boolean()
} | [{atom(), term()}].
%% A map, or the same as a keyword list.
%% <ul>
%% <li>`name': under which the server is registered. Default: none.</li>
%% <li>`port': 0 is one that is free, see {@link port/1}. Default 0.</li>
%% <li>`ip': the address to listen at. Default `{127, 0, 0, 1}': this machine only.</li>
%% <li>`path': of a Unix socket, in place of address and port: a file's, of 107 bytes at most. Default: none.</li>
%% <li>`mode': of that socket's file. Default `8#700': for this user only.</li>
%% <li>`memory': bytes that the items may take in the node, with all that belongs to them. Default 67108864, at least
%%     1048576.</li>
%% <li>`max_item': bytes of an item as memcached counts them, which is its key, its value and some 60. From 1024 to
%%     1073741824, and half of `memory' at most. Default 1048576, or that half.</li>
%% <li>`evict': `false' refuses new items when the memory is full, instead of dropping others; a `set' that is refused
%%     deletes what was there. Default `true'.</li>
%% <li>`max_connections': one more is told so and closed. Default 1024.</li>
%% <li>`backlog': connections that may wait in the kernel until they are accepted. Default 1024.</li>
%% <li>`auth': who may connect, in a list or in a file with lines of `USER:PASSWORD', as for memcached's option -Y.
%%     Default `none': everybody.</li>
%% <li>`tls': the options of `ssl:handshake/3' for a server, such as `certfile' and `keyfile'; ssl has to run. A
%%     handshake that takes more than 10 seconds fails. Default `none': no TLS.</li>
%% <li>`idle_timeout': milliseconds of silence after which a connection is closed. Default `infinity'.</li>
%% <li>`send_timeout': milliseconds after which, or twice that at most, a connection is closed that has taken nothing of
%%     its answers meanwhile. Default 30000.</li>
%% <li>`flush': `false' refuses flush_all. Default `true'.</li>
%% <li>`debug': `true' allows `debugtime SECONDS', which is {@link advance/2} for clients. Default `false'.</li>
%% </ul>

-type error() ::
    {bad_option, Key :: term(), Value :: term()}
    | {not_started, weir_memcached_server | weir_socket}
    | {already_started, pid()}
    | {listen, weir_memcached_server_listener:address(), inet:posix() | term()}
    | {auth_file, file:name_all(), file:posix() | {malformed, Line :: pos_integer()}}.
%% `bad_option': unknown, or a value that is none; for `tls', with what ssl says of it in place of the value, or with
%% `{not_started, ssl}'. `not_started': that application does not run. `already_started': the name is taken.
%% `listen': the address is not to be had. `auth_file': it cannot be read, or that line is not `USER:PASSWORD'.

%% @doc Starts a server, linked to the caller; it accepts connections when this returns. Cost: some milliseconds.
-spec start_link(options()) -> {ok, pid()} | {error, error()}.
start_link(Options) ->
    maybe_start(weir_memcached_server_opts:check(Options), weir_memcached_server_app:is_running()).

maybe_start({error, _} = Error, _IsRunning) ->
    Error;
maybe_start({ok, _Conf}, false) ->
    {error, {not_started, ?MODULE}};
maybe_start({ok, #{auth := Auth} = Conf}, true) ->
    case {weir_memcached_server_auth:users(Auth), weir_memcached_server_tls:check(Conf)} of
        {{ok, Users}, ok} -> started(weir_memcached_server_sup:start_link(Conf, Users));
        {{error, _} = Error, _} -> Error;
        {_, {error, Reason}} -> {error, {bad_option, tls, Reason}}
    end.

started({error, {shutdown, {failed_to_start_child, _Id, Reason}}}) -> {error, Reason};
started({error, Reason}) -> {error, Reason};
started(ignore) -> {error, {not_started, ?MODULE}};
started({ok, Pid}) -> {ok, Pid}.

%% @doc For a supervisor of yours; one of Elixir takes `{:weir_memcached_server, port: 11211}' for a child. Its id is
%% `weir_memcached_server', with the name if there is one.
-spec child_spec(options()) -> supervisor:child_spec().
child_spec(Options) ->
    case weir_memcached_server_opts:to_map(Options) of
        {ok, Map} ->
            Id = case Map of #{name := Name} -> {?MODULE, Name}; _ -> ?MODULE end,
            #{id => Id, start => {?MODULE, start_link, [Options]}, type => supervisor,
                modules => [weir_memcached_server_sup]};
        error ->
            error(badarg, [Options])
    end.

%% @doc Stops a server: its connections are closed, its items are gone. One under a supervisor of yours is better
%% stopped there, which would otherwise start it again. What is no server of this module's exits with `noproc'.
-spec stop(server()) -> ok.
stop(Server) ->
    case server(pid(Server)) of
        none ->
            exit({noproc, {?MODULE, stop, [Server]}});
        Pid ->
            Monitor = monitor(process, Pid),
            %% Somebody else may be stopping it.
            try
                gen_server:stop(Pid)
            catch
                exit:_ -> ok
            end,
            receive
                {'DOWN', Monitor, process, Pid, _} -> ok
            end
    end.

%% @doc The port where a server listens; of one with a Unix socket, the path. Cost: two look-ups.
-spec port(server()) -> inet:port_number() | file:name_all().
port(Server) ->
    {_, Port} = weir_memcached_server_listener:address(cache(Server, port, [Server])),
    Port.

%% @doc What a server has counted since it was started, and how it is now: the figures of `stats', and some more.
%%
%% <ul>
%% <li>`items': that there are, with those that have expired and were not found yet. `bytes': that they take, and that
%%     connections have taken for data to come; at most `memory', but for what is on its way. `connections': that are
%%     open.</li>
%% <li>`get_hits', `get_misses': keys that were asked for; among the misses `get_expired' and `get_flushed', the items
%%     whose time was over.</li>
%% <li>`cmd_set': items that came to be stored; `total_items': those that were. `store_too_large', `store_no_memory':
%%     those that were above the limit, or for which there was no room.</li>
%% <li>`cas_hits', `cas_misses', `cas_badval', `touch_hits', `touch_misses', `delete_hits', `delete_misses',
%%     `incr_hits', `incr_misses', `decr_hits', `decr_misses', `cmd_flush', `cmd_meta', `auth_cmds', `auth_errors': as
%%     memcached counts them.</li>
%% <li>`evictions': items that went to make room, of which `evicted_unfetched' nobody had asked for; `reclaimed':
%%     expired ones that did. `crawler_reclaimed': expired ones that were found in `crawler_runs' rounds of the crawler.
%%     `expired_unfetched': of all expired ones, those that nobody had asked for.</li>
%% <li>`total_connections', `rejected_connections' (there were too many), `idle_kicks' (silent for `idle_timeout'),
%%     `slow_kicks' (took nothing for `send_timeout'), `handshake_errors' (of TLS), `bytes_read', `bytes_written'.</li>
%% </ul>
%%
%% Cost: some microseconds, in the caller; no process is asked.
-spec info(server()) -> #{atom() => integer()}.
info(Server) ->
    Cache = cache(Server, info, [Server]),
    weir_memcached_server_stats:info(weir_memcached_server_clock:now(Cache), Cache).

%% @doc Moves a server's clock on by so many seconds, for tests of what expires; items and delayed flushes see the later
%% time at once. At most 68 years, 2147483647 seconds, at a time. Cost: one atomic addition.
-spec advance(server(), 0..16#7FFFFFFF) -> ok.
advance(Server, Seconds) when is_integer(Seconds), Seconds >= 0, Seconds =< ?MAX_ADVANCE ->
    weir_memcached_server_clock:advance(cache(Server, advance, [Server, Seconds]), Seconds).

%% @doc The servers of this node. Cost: some microseconds.
-spec servers() -> [pid()].
servers() -> weir_memcached_server_app:servers().

cache(Server, Function, Args) ->
    case pid(Server) of
        undefined ->
            exit({noproc, {?MODULE, Function, Args}});
        Pid ->
            case weir_memcached_server_app:find(Pid) of
                none -> exit({noproc, {?MODULE, Function, Args}});
                Cache -> Cache
            end
    end.

pid(Server) when is_pid(Server) -> Server;
pid(Server) when is_atom(Server) -> whereis(Server).

%% By what it was started as: the application may have been stopped since, and know it no more.
server(Pid) when is_pid(Pid), node(Pid) =:= node() ->
    case process_info(Pid, dictionary) of
        {dictionary, Dictionary} ->
            case lists:keyfind('$initial_call', 1, Dictionary) of
                {_, {supervisor, weir_memcached_server_sup, 1}} -> Pid;
                _ -> none
            end;
        undefined ->
            none
    end;
server(_) ->
    none.
