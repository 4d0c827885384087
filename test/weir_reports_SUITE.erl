%% What Weir's applications report is seen out of the box: the default handler of a node without any configuration,
%% whose filters stop what is of a domain that they do not know, lets it through.
%%
%% A node is started as OTP configures it. Beside its default handler it gets one with the same filters, on a file.
-module(weir_reports_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).

-define(ID, weir_reports).

all() -> weir_kit:cases(?MODULE).

init_per_testcase(Case, Config) ->
    Dir = filename:join(?config(priv_dir, Config), Case),
    File = filename:join(Dir, "reports"),
    ok = filelib:ensure_dir(File),
    Apps = [weir_log, weir_pool, weir_server, weir_flow, weir_memcached],
    Paths = lists:usort([filename:dirname(code:which(Module)) || Module <- [?MODULE | Apps]]),
    {ok, Peer, _} = peer:start(#{connection => standard_io, wait_boot => weir_kit:wait_ms(), args => ["-pa" | Paths]}),
    [{ok, _} = call(Peer, application, ensure_all_started, [App]) || App <- [weir_log, weir_pool, weir_memcached]],
    {ok, Default} = call(Peer, logger, get_handler_config, [default]),
    ?assertMatch(#{filter_default := stop, filters := [_ | _]}, Default),
    Handler = maps:with([filters, filter_default, level], Default),
    ok = call(Peer, logger, add_handler, [?ID, logger_std_h, Handler#{config => #{file => File}}]),
    [{dir, Dir}, {file, File}, {peer, Peer} | Config].

end_per_testcase(_Case, Config) -> peer:stop(?config(peer, Config)).

log(Config) ->
    %% It cannot be written to.
    {ok, full} = call(Config, weir_log, open, [full, #{file => "/dev/full"}]),
    {error, enospc} = call(Config, weir_log, log, [full, "x"]),
    ok = seen(Config, "weir_log full: /dev/full cannot be written: enospc"),
    ok = call(Config, weir_log_event, recovered, [true, full, "/dev/full"]),
    ok = seen(Config, "weir_log full: /dev/full is written to again"),
    ok = call(Config, weir_log_event, ended, [{weir_log_h, other}, killed]),
    ok = seen(Config, "weir_log {weir_log_h,other} has ended: killed"),
    Damaged = filename:join(?config(dir, Config), "damaged"),
    ok = file:write_file(Damaged, "this is no frame, nor a torn one"),
    {ok, damaged} = call(Config, weir_log, open, [damaged, #{file => Damaged, frame => true}]),
    ok = seen(Config, "and is set aside whole"),
    stops_foreign_domains(Config).

memcached(Config) ->
    ok = call(Config, ?MODULE, start_client, [filename:join(?config(dir, Config), "nobody listens here")]),
    ok = seen(Config, "memcached client cache: cannot connect to").

pool(Config) ->
    ok = call(Config, weir_pool, start, [workers, #{size => 1, worker => {?MODULE, start_worker, []}}]),
    true = call(Config, erlang, apply, [erlang, exit, [call(Config, erlang, whereis, [?MODULE]), crashed]]),
    ok = seen(Config, "Pool workers: the worker ").

server(Config) ->
    Server = call(Config, ?MODULE, start_server, []),
    _ = call(Config, erlang, send, [Server, stray]),
    ok = seen(Config, "Undefined handle_info"),
    ok = call(Config, gen_server, cast, [Server, crash]),
    ok = seen(Config, "terminating").

%% Or nothing of this would show anything.
stops_foreign_domains(Conf) ->
    ok = call(Conf, logger, error, ["of a foreign domain", #{domain => [weir, log]}]),
    ok = call(Conf, logger, error, ["of no domain", #{}]),
    ok = seen(Conf, "of no domain"),
    ?assertEqual(nomatch, binary:match(read(Conf), <<"of a foreign domain">>)).

%% ---------------------------------------------------------------- in the other node

start_worker() ->
    Worker = spawn_link(fun() -> receive stop -> ok end end),
    true = register(?MODULE, Worker),
    {ok, Worker}.

start_server() ->
    {ok, Server} = weir_server:start(?MODULE, [], []),
    Server.

start_client(Path) ->
    {ok, Client} = weir_memcached:start_link(cache, #{host => {local, Path}, port => 0, connections => 1}),
    true = unlink(Client),
    ok.

init([]) -> {ok, none}.

handle_cast(crash, none) -> error(crash).

%% ---------------------------------------------------------------- help

call(Config, Module, Function, Arguments) when is_list(Config) ->
    call(?config(peer, Config), Module, Function, Arguments);
call(Peer, Module, Function, Arguments) ->
    weir_kit_nodes:call(Peer, Module, Function, Arguments).

%% Waits until a text is in the file.
seen(Config, Text) ->
    until(fun() ->
        Read = read(Config),
        binary:match(Read, unicode:characters_to_binary(Text)) =/= nomatch orelse Read
    end).

read(Conf) ->
    case file:read_file(?config(file, Conf)) of
        {ok, Bytes} -> Bytes;
        {error, enoent} -> <<>>
    end.
