%% @doc The servers that benchmarks compare, OTP's and the peers', started and held alike.
%%
%% gen_server2 and gen_batch_server come from Debian's package rabbitmq-server, out of which scripts/setup unpacks them
%% into `${XDG_CACHE_HOME:-~/.cache}/weir/peers'. Where they could not be fetched, {@link peers/1} leaves them out.
%%
%% gen_server2 emits no statistics: it does so only for a table of RabbitMQ's, which is not there.
-module(weir_bench_servers).

-export([peers/1, version/0, directory/0, start/4, stop/1, hold/1, release/1, held/1]).

-export_type([peer/0, held/0]).

-define(PACKAGE, "rabbitmq-server").
-define(TIMEOUT, 60_000).

-type peer() :: gen_server2 | gen_batch_server.

-opaque held() :: {pid(), reference()}.
%% A server that does nothing until it is released.

%% @doc Those of the peers that this machine has, loaded. Cost: a look into two files, the first time.
-spec peers([peer()]) -> [peer()].
peers(Peers) ->
    _ = code:add_pathz(directory()),
    [Peer || Peer <- Peers, {module, Peer} =:= code:ensure_loaded(Peer)].

%% @doc The version of the package that the peers are from, for people.
-spec version() -> string().
version() ->
    case {peers([gen_server2, gen_batch_server]), file:read_file(filename:join(directory(), "version"))} of
        {[_, _], {ok, Version}} ->
            "gen_server2 and gen_batch_server of " ++ ?PACKAGE ++ " " ++ string:trim(binary_to_list(Version));
        _ ->
            ?PACKAGE ++ " is not there: rows of gen_server2 and gen_batch_server are left out"
    end.

%% @doc Where what comes from that package is.
-spec directory() -> file:filename().
directory() ->
    filename:join([filename:basedir(user_cache, "weir"), "peers", ?PACKAGE]).

%% @doc Starts a server, not linked to the caller, on a callback module that is made for it. Options are the server's
%% own.
-spec start(Server :: module(), module(), Argument :: term(), Options :: list() | map()) -> pid().
start(Server, Module, Argument, Options) when Server =:= gen_batch_server ->
    {ok, Pid} = Server:start_link(undefined, Module, Argument, Options),
    true = unlink(Pid),
    Pid;
start(Server, Module, Argument, Options) ->
    {ok, Pid} = Server:start(Module, Argument, Options),
    Pid.

%% @doc Ends it, whichever it is, and whatever waits for it.
-spec stop(pid()) -> ok.
stop(Pid) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive
        {'DOWN', Monitor, process, Pid, _} -> ok
    end.

%% @doc Makes a server wait inside its callback, which has to call {@link held/1} for a cast of `{hold, Parent}'.
%% Returns when it does so: what is sent to it from now on gathers in its mailbox.
-spec hold(pid()) -> held().
hold(Pid) ->
    ok = gen_server:cast(Pid, {hold, self()}),
    receive
        {?MODULE, held, Pid, Ref} -> {Pid, Ref}
    after ?TIMEOUT -> error(timeout)
    end.

%% @doc Lets it go on. Any process may do so.
-spec release(held()) -> ok.
release({Pid, Ref}) ->
    Pid ! Ref,
    ok.

%% @doc For the callback of a server: waits until it is released. The reference is made here, so the runtime does not
%% look through what arrived before.
-spec held(Parent :: pid()) -> ok.
held(Parent) ->
    Ref = make_ref(),
    Parent ! {?MODULE, held, self(), Ref},
    receive
        Ref -> ok
    end.
