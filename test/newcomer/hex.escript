#!/usr/bin/env escript
%% -*- erlang -*-
%% A hex on this machine that has the packages of a folder and no others, until its standard input ends.
%%
%%   hex.escript PACKAGES DIR      its own files go to DIR; DIR/rebar.config is for ~/.config/rebar3, and comes last
%%
%% The forms of the registry are those of the hex client inside of rebar3, which also checks each package here.

main([Packages, Dir]) ->
    {ok, Sections} = escript:extract(os:find_executable("rebar3"), []),
    {ok, _} = zip:unzip(proplists:get_value(archive, Sections), [{cwd, filename:join(Dir, "rebar3")}]),
    ok = code:add_pathsa(filelib:wildcard(filename:join(Dir, "rebar3/*/ebin"))),
    {ok, _} = application:ensure_all_started(public_key),
    {ok, _} = application:ensure_all_started(inets),

    Private = public_key:generate_key({rsa, 2048, 65537}),
    Public = {'RSAPublicKey', element(3, Private), element(4, Private)},
    [serve_file(Dir, Tar, Private) || Tar <- filelib:wildcard(filename:join(Packages, "*.tar"))],
    {ok, Server} = inets:start(httpd, [
        {port, 0},
        {bind_address, {127, 0, 0, 1}},
        {server_name, "hex"},
        {server_root, Dir},
        {document_root, Dir},
        {modules, [mod_get, mod_head]}
    ]),
    [{port, Port}] = httpd:info(Server, [port]),
    Repo = #{
        name => <<"here">>,
        repo_url => iolist_to_binary(io_lib:format("http://127.0.0.1:~b", [Port])),
        repo_public_key => pem(Public, 'SubjectPublicKeyInfo')
    },
    Config = filename:join(Dir, "rebar.config"),
    ok = file:write_file(Config ++ ".part", io_lib:format("~p.~n", [{hex, [{repos, [Repo]}]}])),
    ok = file:rename(Config ++ ".part", Config),
    eof = io:get_line("").

serve_file(Dir, Tar, Private) ->
    {ok, Package} = file:read_file(Tar),
    {ok, #{metadata := Metadata, inner_checksum := Inner, outer_checksum := Outer}} =
        r3_hex_tarball:unpack(Package, memory),
    #{<<"name">> := Name, <<"version">> := Version, <<"requirements">> := Requirements} = Metadata,
    Registry = r3_hex_registry:encode_package(#{
        repository => <<"here">>,
        name => Name,
        releases => [
            #{
                version => Version,
                inner_checksum => Inner,
                outer_checksum => Outer,
                dependencies => [
                    #{package => Other, app => App, requirement => Requirement, optional => Optional}
                 || {Other, #{<<"app">> := App, <<"requirement">> := Requirement, <<"optional">> := Optional}} <-
                        maps:to_list(Requirements)
                ]
            }
        ]
    }),
    Signed = zlib:gzip(r3_hex_registry:sign_protobuf(Registry, pem(Private, 'RSAPrivateKey'))),
    Files = [{["packages/", Name], Signed}, {["tarballs/", Name, "-", Version, ".tar"], Package}],
    [
        begin
            Path = filename:join(Dir, iolist_to_binary(File)),
            ok = filelib:ensure_dir(Path),
            ok = file:write_file(Path, Content)
        end
     || {File, Content} <- Files
    ].

pem(Key, Type) ->
    public_key:pem_encode([public_key:pem_entry_encode(Type, Key)]).
