%% TLS and passwords, with a real memcached that wants them.
-module(weir_memcached_secure_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    Config1 = weir_memcached_test:set_up(weir_memcached, Config),
    {ok, _} = application:ensure_all_started(ssl),
    Dir = proplists:get_value(priv_dir, Config),
    %% memcached gives up its rights as root, and reads both as whom it runs then.
    Files = filename:join("/tmp", "weir_memcached_secure." ++ os:getpid()),
    ok = filelib:ensure_dir(filename:join(Files, "x")),
    ok = file:change_mode(Files, 8#755),
    Tls = certificates(Files),
    Auth = write(Files, "auth", "ada:secret\nbob:very:secret\n"),
    [{dir, Dir}, {files, Files}, {auth, Auth}, {tls, Tls} | Config1].

end_per_suite(Config) ->
    _ = file:del_dir_r(proplists:get_value(files, Config)),
    weir_memcached_test:tear_down(Config).

write(Dir, Name, Content) ->
    File = filename:join(Dir, Name),
    ok = file:write_file(File, Content),
    ok = file:change_mode(File, 8#644),
    File.

%% Of a server named localhost, and of a client.
certificates(Dir) ->
    Key = [{digest, sha256}, {key, {namedCurve, secp256r1}}],
    Name = {'Extension', {2, 5, 29, 17}, false, [{dNSName, "localhost"}]},
    #{server_config := Server, client_config := Client} = public_key:pkix_test_data(#{
        server_chain => #{root => Key, intermediates => [], peer => [{extensions, [Name]} | Key]},
        client_chain => #{root => Key, intermediates => [], peer => Key}
    }),
    Get = fun(What, From) -> proplists:get_value(What, From) end,
    Pem = fun(Entries) -> public_key:pem_encode([{Type, Der, not_encrypted} || {Type, Der} <- Entries]) end,
    Cert = fun(From) -> Pem([{'Certificate', Get(cert, From)}]) end,
    #{
        cert => write(Dir, "cert.pem", Cert(Server)),
        key => write(Dir, "key.pem", Pem([Get(key, Server)])),
        client_ca => write(Dir, "client_ca.pem", Pem([{'Certificate', Ca} || Ca <- Get(cacerts, Server)])),
        cacerts => Get(cacerts, Client),
        client => [{cert, Get(cert, Client)}, {key, Get(key, Client)}]
    }.

%% Runs with a memcached with these arguments, if this one knows them.
with(Arguments, Config, Case) ->
    Options = #{arguments => Arguments, probe => tcp},
    try weir_kit_memcached:start(Options) of
        Server ->
            try
                Case(Server, Config)
            after
                weir_kit_memcached:stop(Server)
            end
    catch
        error:{exited, _, Output} -> {skip, {"this memcached does not know what it takes", Output}}
    end.

with_auth(Config, Case) -> with("-Y " ++ proplists:get_value(auth, Config), Config, Case).

with_tls(Config, Case) -> with_tls("", Config, Case).

with_tls(More, Config, Case) ->
    #{cert := Cert, key := Key} = proplists:get_value(tls, Config),
    with("-Z -o ssl_chain_cert=" ++ Cert ++ ",ssl_key=" ++ Key ++ More, Config, Case).

start(C, #{port := Port}, Options) ->
    Defaults = #{
        host => "localhost", port => Port, connections => 2, reconnect => {1, 50},
        connect_timeout => weir_kit:wait_ms(),
        request_timeout => weir_kit:wait_ms()
    },
    {ok, _} = weir_memcached:start_link(C, maps:merge(Defaults, Options)),
    C.

up(C) -> ok = weir_memcached:await(C, weir_kit:wait_ms()).

%% Why the client cannot connect.
reason(C) ->
    Reasons = fun() -> [R || #{reason := R} <- weir_memcached_test:connections(C)] end,
    %% The same of both, in time.
    weir_kit:until(fun() -> case Reasons() of [Same, Same] -> true; _ -> false end end),
    hd(Reasons()).

trusted(Conf) -> [{cacerts, maps:get(cacerts, proplists:get_value(tls, Conf))}].

works(C) ->
    ?assertEqual(ok, weir_memcached:set(C, <<"k">>, {value, 1})),
    ?assertEqual({ok, {value, 1}}, weir_memcached:get(C, <<"k">>)),
    ?assertEqual({ok, 2}, weir_memcached:fetch(C, <<"f">>, fun() -> {ok, 2} end)).

%% ---------------------------------------------------------------- passwords

password(Config) ->
    with_auth(Config, fun(Server, _) ->
        [
            begin
                C = start(?FUNCTION_NAME, Server, #{auth => Auth, protocol => Protocol}),
                up(C),
                works(C),
                ok = weir_memcached:stop(C)
            end
         || Auth <- [{<<"ada">>, <<"secret">>}, {<<"bob">>, fun() -> <<"very:secret">> end}], Protocol <- [auto, text]
        ]
    end).

wrong_password(Config) ->
    with_auth(Config, fun(Server, _) ->
        C = start(?FUNCTION_NAME, Server, #{auth => {<<"ada">>, <<"public">>}}),
        ?assertEqual({not_logged_in, <<"CLIENT_ERROR authentication failure">>}, reason(C)),
        ?assertEqual({error, disconnected}, weir_memcached:get(C, <<"k">>)),
        ok = weir_memcached:stop(C)
    end).

no_password(Config) ->
    with_auth(Config, fun(Server, _) ->
        C = start(?FUNCTION_NAME, Server, #{}),
        ?assertMatch({not_logged_in, <<"CLIENT_ERROR unauthenticated", _/binary>>}, reason(C)),
        ok = weir_memcached:stop(C)
    end).

%% Not by the processes, nor in what they report.
password_is_not_told(Config) ->
    with_auth(Config, fun(Server, _) ->
        C = start(?FUNCTION_NAME, Server, #{auth => {<<"ada">>, <<"secret">>}}),
        up(C),
        Pids = [Pid || #{pid := Pid} <- weir_memcached_test:connections(C)] ++
            [Pid || {client, Pid, _, _} <- supervisor:which_children(C)],
        [?assertEqual(nomatch, string:find(io_lib:format("~p", [sys:get_status(Pid, weir_kit:wait_ms())]), "secret"))
            || Pid <- Pids],
        ?assertEqual(nomatch, string:find(io_lib:format("~p", [weir_memcached:info(C)]), "secret")),
        ok = weir_memcached:stop(C)
    end).

bad_auth(_) ->
    [
        ?assertEqual({error, {bad_option, auth, Bad}}, weir_memcached:start_link(?FUNCTION_NAME, #{auth => Bad}))
     || Bad <- [
            secret, {<<"ada">>, "secret"}, {"ada", <<"secret">>}, {<<>>, <<"x">>}, {<<"a">>, <<>>},
            {<<"a b">>, <<"x">>},
            {<<"a">>, <<"x\r\nflush_all">>}, {<<"a">>, fun(X) -> X end}
        ]
    ],
    ?assertEqual({error, {bad_option, tls, true}}, weir_memcached:start_link(?FUNCTION_NAME, #{tls => true})).

%% ---------------------------------------------------------------- SASL

%% A memcached that asks SASL's own database of users, where the program that fills that is there.
with_sasl(More, Config, Case) ->
    case os:find_executable("saslpasswd2", "/usr/sbin:/usr/bin") of
        false ->
            {skip, "saslpasswd2 is not there"};
        Program ->
            Files = proplists:get_value(files, Config),
            Db = filename:join(Files, "sasldb"),
            Add = fun({User, Password}) ->
                os:cmd("printf %s '" ++ Password ++ "' | " ++ Program ++ " -p -c -f " ++ Db ++ " -u " ++
                    net_adm:localhost() ++ " " ++ User)
            end,
            _ = [Add(User) || User <- [{"ada", "se cret"}, {"bob", "other"}]],
            ok = file:change_mode(Db, 8#644),
            _ = write(Files, "memcached.conf", "mech_list: plain\npwcheck_method: auxprop\nauxprop_plugin: sasldb\n"
                "sasldb_path: " ++ Db ++ "\n"),
            true = os:putenv("SASL_CONF_PATH", Files),
            try
                with("-S" ++ More, Config, Case)
            after
                os:unsetenv("SASL_CONF_PATH")
            end
    end.

%% The user's realm is the host's name, as the database has it.
user(User) -> iolist_to_binary([User, "@", net_adm:localhost()]).

sasl(Config) ->
    with_sasl("", Config, fun(Server, _) ->
        [
            begin
                C = start(?FUNCTION_NAME, Server, #{auth => {sasl, user("ada"), Password}}),
                up(C),
                works(C),
                ?assertMatch({ok, _}, weir_memcached:version(C)),
                ?assertEqual({error, unsupported}, weir_memcached:item(C, <<"k">>)),
                ok = weir_memcached:stop(C)
            end
         || Password <- [<<"se cret">>, fun() -> <<"se cret">> end]
        ]
    end).

sasl_refused(Config) ->
    with_sasl("", Config, fun(Server, _) ->
        [
            begin
                C = start(?FUNCTION_NAME, Server, Options),
                ?assertMatch({not_logged_in, _}, reason(C)),
                ?assertEqual({error, disconnected}, weir_memcached:get(C, <<"k">>)),
                ok = weir_memcached:stop(C)
            end
         || Options <- [
                #{auth => {sasl, user("ada"), <<"other">>}}, #{auth => {sasl, <<"nobody">>, <<"se cret">>}},
                #{protocol => binary}
            ]
        ]
    end).

sasl_over_tls(Config) ->
    #{cert := Cert, key := Key} = proplists:get_value(tls, Config),
    with_sasl(" -Z -o ssl_chain_cert=" ++ Cert ++ ",ssl_key=" ++ Key, Config, fun(Server, _) ->
        C = start(?FUNCTION_NAME, Server, #{tls => trusted(Config), auth => {sasl, user("bob"), <<"other">>}}),
        up(C),
        works(C),
        ok = weir_memcached:stop(C)
    end).

sasl_options(_) ->
    [
        ?assertEqual({error, {bad_option, auth, Bad}}, weir_memcached:start_link(?FUNCTION_NAME, #{auth => Bad}))
     || Bad <- [{sasl, "ada", <<"x">>}, {sasl, <<>>, <<"x">>}, {sasl, <<"a">>, <<0>>}, {sasl, <<"a">>}]
    ],
    ?assertEqual(
        {error, {contradicting_options, {auth, sasl}, {protocol, text}}},
        weir_memcached:start_link(?FUNCTION_NAME, #{auth => {sasl, <<"a">>, <<"b">>}, protocol => text})
    ).

%% ---------------------------------------------------------------- TLS

tls(Config) ->
    with_tls(Config, fun(Server, _) ->
        C = start(?FUNCTION_NAME, Server, #{tls => trusted(Config)}),
        up(C),
        works(C),
        Keys = [integer_to_binary(N) || N <- lists:seq(1, 500)],
        _ = weir_kit:in_parallel([
            fun() -> [ok = weir_memcached:set(C, Key, {I, Key}) || Key <- Keys] end || I <- lists:seq(1, 10)
        ]),
        {ok, Values} = weir_memcached:get_many(C, Keys),
        [?assertMatch(#{Key := {_, Key}}, Values) || Key <- Keys],
        ?assertMatch(#{disconnects := 0}, weir_memcached_test:counters(C)),
        ok = weir_memcached:stop(C)
    end).

%% The certificate is for a name, and the server is asked by it. What the alert is called differs between releases.
tls_of_a_name(Config) ->
    with_tls(Config, fun(Server, _) ->
        C = start(?FUNCTION_NAME, Server, #{host => {127, 0, 0, 1}, tls => trusted(Config)}),
        ?assertMatch({tls_alert, {Alert, _}} when Alert =:= handshake_failure; Alert =:= bad_certificate, reason(C)),
        ok = weir_memcached:stop(C),
        Named = [{server_name_indication, "localhost"} | trusted(Config)],
        C = start(?FUNCTION_NAME, Server, #{host => {127, 0, 0, 1}, tls => Named}),
        up(C),
        works(C),
        ok = weir_memcached:stop(C)
    end).

%% Nobody is believed who cannot show who it is, unless the user says so. A machine may have no authorities to believe.
tls_refused(Config) ->
    with_tls(Config, fun(Server, _) ->
        C = start(?FUNCTION_NAME, Server, #{tls => []}),
        Reason = reason(C),
        try public_key:cacerts_get() of
            _ -> ?assertMatch({tls_alert, {unknown_ca, _}}, Reason)
        catch
            error:NoAuthorities -> ?assertEqual({no_cacerts, NoAuthorities}, Reason)
        end,
        ok = weir_memcached:stop(C),
        C = start(?FUNCTION_NAME, Server, #{tls => [{verify, verify_none}]}),
        up(C),
        ok = weir_memcached:stop(C)
    end).

tls_to_who_speaks_none(_) ->
    Server = weir_kit_memcached:start(),
    C = start(?FUNCTION_NAME, Server, #{tls => [{verify, verify_none}], connect_timeout => 500}),
    ?assertMatch(Reason when Reason =:= timeout; element(1, Reason) =:= tls_alert, reason(C)),
    ok = weir_memcached:stop(C),
    weir_kit_memcached:stop(Server).

%% The server wants to see who the client is.
tls_of_both(Config) ->
    #{client_ca := Ca, client := Client} = proplists:get_value(tls, Config),
    with_tls(",ssl_verify_mode=2,ssl_ca_cert=" ++ Ca, Config, fun(Server, _) ->
        C = start(?FUNCTION_NAME, Server, #{tls => Client ++ trusted(Config)}),
        up(C),
        works(C),
        ok = weir_memcached:stop(C),
        %% The server may close before the client has read why.
        C = start(?FUNCTION_NAME, Server, #{tls => trusted(Config), connections => 1}),
        weir_kit:until(fun() -> maps:get(connect_failures, weir_memcached_test:counters(C)) >= 3 end),
        ?assertEqual({error, disconnected}, weir_memcached:get(C, <<"k">>)),
        ok = weir_memcached:stop(C)
    end).

%% Values that take more blocks than a socket delivers at a time.
tls_large(Config) ->
    with_tls(Config, fun(Server, _) ->
        C = start(?FUNCTION_NAME, Server, #{tls => trusted(Config), codec => raw}),
        up(C),
        Values = maps:from_list([{integer_to_binary(N), rand:bytes(900_000)} || N <- lists:seq(1, 10)]),
        ok = weir_memcached:set_many(C, Values),
        [?assertEqual({ok, Values}, weir_memcached:get_many(C, maps:keys(Values))) || _ <- [1, 2, 3]],
        ok = weir_memcached:stop(C)
    end).

%% A connection that is lost is made again.
tls_lost(Config) ->
    with_tls(Config, fun(Server, _) ->
        C = start(?FUNCTION_NAME, Server, #{tls => trusted(Config)}),
        up(C),
        ok = weir_kit_memcached:kill(Server),
        weir_kit:until(fun() -> weir_memcached:get(C, <<"k">>) =:= {error, disconnected} end),
        ok = weir_kit_memcached:restart(Server),
        weir_kit:until(fun() -> weir_memcached:set(C, <<"k">>, 1) =:= ok end),
        works(C),
        ok = weir_memcached:stop(C)
    end).

%% With so short a stall_timeout a connection may be lost meanwhile.
pid_of_server(C) ->
    case weir_memcached:stats(C) of
        {ok, #{<<"pid">> := Pid}} -> Pid;
        {error, _} -> pid_of_server(C)
    end.

%% A server that stands still: requests time out, and the client can be stopped.
tls_blocked(Config) ->
    with_tls(Config, fun(Server, _) ->
        C = start(?FUNCTION_NAME, Server, #{tls => trusted(Config), codec => raw, stall_timeout => 50}),
        weir_kit:until(fun() ->
            [up, up] =:= [Phase || #{phase := Phase} <- weir_memcached_test:connections(C)]
        end),
        Pid = pid_of_server(C),
        ok = weir_kit:signal("STOP", binary_to_list(Pid)),
        Large = binary:copy(<<"x">>, 1_000_000),
        %% Those that are late before they are sent block nothing.
        weir_kit:until(fun() ->
            _ = weir_kit:in_parallel([
                fun() -> weir_memcached:set(C, <<"k">>, Large, #{timeout => 100}) end || _ <- lists:seq(1, 12)
            ]),
            maps:get(disconnects, weir_memcached_test:counters(C)) >= 2
        end),
        ok = weir_memcached:stop(C),
        ok = weir_kit:signal("CONT", binary_to_list(Pid))
    end).

tls_and_password(Config) ->
    #{cert := Cert, key := Key} = proplists:get_value(tls, Config),
    Arguments = "-Y " ++ proplists:get_value(auth, Config) ++ " -Z -o ssl_chain_cert=" ++ Cert ++ ",ssl_key=" ++ Key,
    with(Arguments, Config, fun(Server, _) ->
        C = start(?FUNCTION_NAME, Server, #{tls => trusted(Config), auth => {<<"ada">>, <<"secret">>}}),
        up(C),
        works(C),
        ok = weir_memcached:stop(C)
    end).

%% TLS is on top of whatever transport there is.
tls_over_weir_socket(Config) ->
    case code:ensure_loaded(weir_socket) of
        {module, weir_socket} ->
            {ok, Started} = application:ensure_all_started(weir_socket),
            Result = with_tls(Config, fun(Server, _) ->
                C = start(?FUNCTION_NAME, Server, #{tls => trusted(Config), transport => weir_socket}),
                up(C),
                works(C),
                ok = weir_memcached:stop(C)
            end),
            [ok = application:stop(App) || App <- lists:reverse(Started)],
            Result;
        {error, _} ->
            {skip, "weir_socket is not there"}
    end.
