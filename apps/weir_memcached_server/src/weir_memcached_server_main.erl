%% @doc A server as a program, with memcached's command line: scripts/memcached in the repository, or
%% ```
%% erl -noinput +Bd -pa EBIN... -eval 'weir_memcached_server_main:main(init:get_plain_arguments())' -extra -p 11211
%% '''
%%
%% What it cannot do it says, and ends; what only tunes memcached's insides it says that it does not heed.
%% @private
-module(weir_memcached_server_main).

-export([main/1, parse/1]).

%% Those of sysexits.h.
-define(USAGE, 64).
-define(OSERR, 71).

-define(UNHEEDED, [
    "modern", "no_modern", "maxconns_fast", "lru_crawler", "no_lru_crawler", "lru_maintainer", "no_lru_maintainer",
    "slab_reassign", "no_slab_reassign", "slab_automove", "slab_chunk_max", "hashpower", "hash_algorithm",
    "relaxed_privileges", "drop_privileges", "no_drop_privileges", "temporary_ttl", "worker_logbuf_size",
    "watcher_logbuf_size"
]).

%% @doc Runs until the server ends, or the program is told to.
-spec main([string()]) -> no_return().
main(Args) ->
    case parse(Args) of
        {run, Options, #{notes := Notes} = Others} ->
            lists:foreach(fun(Note) -> complain(Note) end, Notes),
            run(Options, Others);
        {print, Text} ->
            io:put_chars(Text),
            halt(0);
        {fail, Text} ->
            complain([Text, ". Try -h"]),
            halt(?USAGE)
    end.

complain(Text) -> io:put_chars(standard_error, ["memcached: ", Text, $\n]).

-spec run(weir_memcached_server:options(), #{notes := [iodata()], pid_file => file:filename()}) -> no_return().
run(Options, Others) ->
    process_flag(trap_exit, true),
    ok = logger:set_primary_config(level, warning),
    {ok, _} = application:ensure_all_started(weir_memcached_server),
    _ = [{ok, _} = application:ensure_all_started(ssl) || #{tls := [_ | _]} <- [Options]],
    case weir_memcached_server:start_link(Options) of
        {ok, Server} ->
            write_pid(Others),
            receive
                %% The node is being stopped.
                {'EXIT', Server, shutdown} ->
                    halt(0);
                {'EXIT', Server, Reason} ->
                    complain(io_lib:format("the server ended: ~tp", [Reason])),
                    halt(1)
            end;
        {error, {listen, Address, Reason}} ->
            complain(io_lib:format("failed to listen on ~ts: ~ts", [address(Address), inet:format_error(Reason)])),
            halt(?OSERR);
        {error, Reason} ->
            complain(io_lib:format("cannot start: ~tp", [Reason])),
            halt(?USAGE)
    end.

write_pid(#{pid_file := File}) ->
    case file:write_file(File, [os:getpid(), $\n]) of
        ok ->
            ok;
        {error, Reason} ->
            complain(io_lib:format("could not open the pid file ~ts for writing: ~ts", [
                File, file:format_error(Reason)
            ])),
            halt(1)
    end;
write_pid(_Others) ->
    ok.

address({local, Path}) -> Path;
address({Ip, Port}) -> io_lib:format("~s:~b", [inet:ntoa(Ip), Port]).

%% @doc What a command line asks for. Pure, but for looking up the name of a host and of the user.
-spec parse([string()]) ->
    {run, weir_memcached_server:options(), #{notes := [iodata()], pid_file => file:filename()}}
    | {print, iodata()}
    | {fail, iodata()}.
parse(Args) ->
    try
        {Options, #{notes := Notes} = Others} = options(Args, #{port => 11211}, #{notes => []}),
        {run, tls(Options), Others#{notes := lists:reverse(Notes)}}
    catch
        throw:Result -> Result
    end.

options([], Options, Others) ->
    {Options, Others};
options(["-" ++ [Letter] | Rest], Options, Others) when Letter =/= $- ->
    option(Letter, Rest, Options, Others);
%% As getopt has it: several at once, or a value right behind.
options(["-" ++ [Letter | More] | Rest], Options, Others) when Letter =/= $- ->
    case takes_value(Letter) of
        true -> option(Letter, [More | Rest], Options, Others);
        false -> option(Letter, ["-" ++ More | Rest], Options, Others)
    end;
options(["--help" | _], _Options, _Others) ->
    throw({print, usage()});
options(["--version" | _], _Options, _Others) ->
    throw({print, version()});
options(["--" ++ Long | Rest], Options, Others) ->
    {Name, Values} =
        case string:split(Long, "=") of
            [N, Value] -> {N, [Value]};
            [N] -> {N, []}
        end,
    case lists:keyfind(Name, 1, long()) of
        {Name, Letter} -> option(Letter, Values ++ Rest, Options, Others);
        false -> throw({fail, ["there is no option --", Name]})
    end;
options([Word | _], _Options, _Others) ->
    throw({fail, ["what is ", Word]}).

long() ->
    [
        {"port", $p}, {"udp-port", $U}, {"unix-socket", $s}, {"unix-mask", $a}, {"listen", $l}, {"user", $u},
        {"memory-limit", $m}, {"disable-evictions", $M}, {"conn-limit", $c}, {"max-item-size", $I}, {"auth-file", $Y},
        {"enable-ssl", $Z}, {"listen-backlog", $b}, {"protocol", $B}, {"disable-flush-all", $F}, {"pidfile", $P},
        {"threads", $t}, {"verbose", $v}, {"extended", $o}, {"disable-watch", $W}, {"disable-cas", $C}
    ].

takes_value(Letter) -> lists:member(Letter, "pUsalumcIYbBPtoDRfnNe").

option($h, _Rest, _Options, _Others) -> throw({print, usage()});
option($V, _Rest, _Options, _Others) -> throw({print, version()});
option(Letter, [Value | Rest], Options, Others) when
    Letter =:= $p; Letter =:= $s; Letter =:= $a; Letter =:= $l; Letter =:= $m; Letter =:= $c; Letter =:= $I;
    Letter =:= $Y; Letter =:= $b
->
    options(Rest, valued(Letter, Value, Options), Others);
option($M, Rest, Options, Others) -> options(Rest, Options#{evict => false}, Others);
option($F, Rest, Options, Others) -> options(Rest, Options#{flush => false}, Others);
option($Z, Rest, Options, Others) -> options(Rest, Options#{tls => maps:get(tls, Options, [])}, Others);
option($P, [File | Rest], Options, Others) -> options(Rest, Options, Others#{pid_file => File});
option($U, ["0" | Rest], Options, Others) -> options(Rest, Options, Others);
option($U, [_ | _], _Options, _Others) -> throw({fail, "-U: there is no UDP"});
option($B, [Protocol | Rest], Options, Others) when Protocol =:= "auto"; Protocol =:= "ascii" ->
    options(Rest, Options, Others);
option($B, [Protocol | _], _Options, _Others) -> throw({fail, ["-B: there is no protocol ", Protocol]});
option($u, [User | Rest], Options, Others) ->
    case string:trim(os:cmd("id -un")) of
        User -> options(Rest, Options, Others);
        Own -> throw({fail, ["-u: it runs as ", Own, ", and cannot become ", User]})
    end;
option($t, [Value | Rest], Options, Others) ->
    Threads = integer($t, Value, 1),
    options(Rest, Options, note(Others, io_lib:format("-t ~b: it has the node's schedulers, ~b", [
        Threads, erlang:system_info(schedulers_online)
    ])));
option($v, Rest, Options, Others) -> options(Rest, Options, Others);
option($W, Rest, Options, Others) -> options(Rest, Options, Others);
option($o, [Values | Rest], Options, Others) ->
    {Options1, Others1} = lists:foldl(fun extended/2, {Options, Others}, string:lexemes(Values, ",")),
    options(Rest, Options1, Others1);
option($C, _Rest, _Options, _Others) -> throw({fail, "-C: it cannot do without cas"});
option($S, _Rest, _Options, _Others) -> throw({fail, "-S: there is no SASL; -Y FILE is there"});
option($d, _Rest, _Options, _Others) -> throw({fail, "-d: it stays in the foreground"});
option(Letter, [], _Options, _Others) ->
    throw({fail, ["-", Letter, ": a value is missing, or there is no such option"]});
option(Letter, _Rest, _Options, _Others) -> throw({fail, ["there is no option -", Letter]}).

valued($p, Value, Options) ->
    case integer($p, Value, -1) of
        -1 -> Options#{port => 0};
        0 -> throw({fail, "-p 0: it listens at one address, and not at none"});
        Port -> Options#{port => Port}
    end;
valued($s, Path, Options) -> Options#{path => Path};
valued($a, Mask, Options) ->
    case io_lib:fread("~8u", Mask) of
        {ok, [Mode], []} -> Options#{mode => Mode};
        _ -> throw({fail, ["-a ", Mask, " is no mask"]})
    end;
valued($l, Address, Options) -> listen(Address, Options);
valued($m, Value, Options) -> Options#{memory => integer($m, Value, 1) bsl 20};
valued($c, Value, Options) -> Options#{max_connections => integer($c, Value, 1)};
valued($b, Value, Options) -> Options#{backlog => integer($b, Value, 1)};
valued($I, Value, Options) -> Options#{max_item => bytes(Value)};
valued($Y, File, Options) -> Options#{auth => {file, File}}.

integer(Letter, Text, Least) ->
    case string:to_integer(Text) of
        {N, ""} when N >= Least -> N;
        _ -> throw({fail, ["-", Letter, " ", Text, io_lib:format(" is no number from ~b", [Least])]})
    end.

bytes(Text) ->
    case string:to_integer(Text) of
        {N, ""} when N > 0 -> N;
        {N, Unit} when N > 0, Unit =:= "k" orelse Unit =:= "K" -> N bsl 10;
        {N, Unit} when N > 0, Unit =:= "m" orelse Unit =:= "M" -> N bsl 20;
        _ -> throw({fail, ["-I ", Text, " is no size"]})
    end.

listen(Address, Options) ->
    case string:split(Address, ",") of
        [_] -> ok;
        _ -> throw({fail, "-l: one address"})
    end,
    {Host, Port} =
        case string:split(Address, ":", trailing) of
            [H, P] when H =/= "" -> split_port(Address, H, string:to_integer(P));
            _ -> {Address, none}
        end,
    Ip =
        case {inet:parse_address(string:trim(Host, both, "[]")), inet:getaddr(Host, inet)} of
            {{ok, Parsed}, _} -> Parsed;
            {_, {ok, Found}} -> Found;
            _ -> throw({fail, ["-l ", Address, " is no address"]})
        end,
    case Port of
        none -> Options#{ip => Ip};
        _ -> Options#{ip => Ip, port => Port}
    end.

%% The last part of an address of IPv6 is no port.
split_port(Address, Host, {Port, ""}) ->
    case lists:member($:, Host) andalso hd(Host) =/= $[ of
        true -> {Address, none};
        false -> {Host, Port}
    end;
split_port(Address, _Host, _) ->
    {Address, none}.

extended(Value, {Options, Others}) ->
    case string:split(Value, "=") of
        ["idle_timeout", Seconds] ->
            {Options#{idle_timeout => integer($o, Seconds, 1) * 1000}, Others};
        ["ssl_chain_cert", File] ->
            {with_tls({certfile, File}, Options), Others};
        ["ssl_key", File] ->
            {with_tls({keyfile, File}, Options), Others};
        ["ssl_ca_cert", File] ->
            {with_tls({cacertfile, File}, Options), Others};
        ["ssl_verify_mode", "0"] ->
            {with_tls({verify, verify_none}, Options), Others};
        ["ssl_verify_mode", Mode] when Mode =:= "1"; Mode =:= "2" ->
            Strict = with_tls({verify, verify_peer}, Options),
            {with_tls({fail_if_no_peer_cert, Mode =:= "2"}, Strict), Others};
        ["debug"] ->
            {Options#{debug => true}, Others};
        [Name | _] ->
            case lists:member(Name, ?UNHEEDED) of
                true -> {Options, note(Others, ["-o ", Value, " is not heeded"])};
                false -> throw({fail, ["there is no option -o ", Name]})
            end
    end.

with_tls(Option, Options) -> Options#{tls_options => maps:get(tls_options, Options, []) ++ [Option]}.

note(#{notes := Notes} = Others, Note) -> Others#{notes := [Note | Notes]}.

tls(#{tls := [], tls_options := [_ | _] = Tls} = Options) -> maps:remove(tls_options, Options#{tls := Tls});
tls(#{tls := []}) -> throw({fail, "-Z: -o ssl_chain_cert=FILE,ssl_key=FILE is missing"});
tls(Options) -> maps:remove(tls_options, Options).

version() -> ["memcached ", weir_memcached_server_stats:version(), $\n].

usage() ->
    [
        version(),
        "A memcached in an Erlang node; what memcached has and is not here is refused.\n"
        "-p, --port=PORT           at this port (11211); -1: one that is free\n"
        "-l, --listen=ADDR[:PORT]  at this address (127.0.0.1)\n"
        "-s, --unix-socket=FILE    at a Unix socket instead\n"
        "-a, --unix-mask=MASK      whose mode this is, in octal (700)\n"
        "-m, --memory-limit=MB     memory for items (64)\n"
        "-M, --disable-evictions   refuses items when it is full\n"
        "-I, --max-item-size=SIZE  of an item, with k or m behind it (1m)\n"
        "-c, --conn-limit=N        connections (1024)\n"
        "-b, --listen-backlog=N    that wait to be accepted (1024)\n"
        "-Y, --auth-file=FILE      users and passwords, USER:PASSWORD in a line\n"
        "-Z, --enable-ssl          TLS, with -o ssl_chain_cert=FILE,ssl_key=FILE\n"
        "-F, --disable-flush-all   refuses flush_all\n"
        "-P, --pidfile=FILE        writes its process number there\n"
        "-o, --extended            idle_timeout=SECONDS, ssl_chain_cert=, ssl_key=, ssl_ca_cert=,\n"
        "                          ssl_verify_mode=0|1|2; debug allows debugtime\n"
        "-B, --protocol=ascii      there is no other\n"
        "-u, --user=NAME           only who runs it\n"
        "-v, -W, -t N              are taken and not heeded\n"
        "-V, --version, -h, --help\n"
    ].
