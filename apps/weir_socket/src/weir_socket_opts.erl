%% @doc Options: what programs write for gen_tcp and inet, checked and put into the form that weir_socket_nif takes.
%%
%% Pure, but for the defaults of `listen' and `connect', which are the environment of `kernel' as for gen_tcp
%% (`inet_default_listen_options', `inet_default_connect_options').
%%
%% Three things can be wrong with an option, and each has an answer of its own:
%%
%% `badarg' is for what gen_tcp calls so: no option, or a value of a wrong type. (`setopts' and `getopts' make `einval'
%% of it.)
%%
%% `{bad_option, Key, Value}' is for what gen_tcp takes and a socket of weir_socket cannot honour. It is refused by
%% name, and never ignored: a program that sets it relies on something that it would not get.
%%
%% What the kernel refuses is not known here: it is the answer of the call that sets it.
%%
%% Options are set in the reverse of the order in which they are written, as inet sets them; so setopts of two that
%% contradict each other has the effect of the first. listen and connect set one that is given twice only as it is given
%% last. `active' is set when all others are: data that is there already is to be delivered as they say.
%% @private
-module(weir_socket_opts).

-export([open/2, fdopen/1, to_set/1, to_get/1, constant/1]).

-export_type([opening/0, bad_option/0, setting/0]).

-type bad_option() :: {bad_option, Key :: term(), Value :: term()}.

%% A key of weir_socket_nif:set/3, with its value.
-type setting() :: {Key :: term(), Value :: term()}.

%% What listen and connect need to know. `ifaddr' and `port' are where to bind, and not checked yet; `fd' is a
%% descriptor that is open already; `netns' is the name of a file.
-type opening() :: #{
    family := weir_socket_addr:family() | undefined,
    ifaddr := term(),
    port := term(),
    fd := non_neg_integer() | undefined,
    netns := binary() | none,
    backlog := non_neg_integer(),
    policy := default | scheduler | least_loaded | round_robin | non_neg_integer(),
    settings := [setting()],
    active := boolean() | once | integer()
}.

%% Connections that the kernel completes and keeps until they are accepted: gen_tcp's default.
-define(BACKLOG, 5).

-define(PACKETS, [0, 1, 2, 4, line, http, http_bin, httph, httph_bin, asn1, cdr, fcgi, tpkt, sunrm]).

-define(IS_INT32(N), (is_integer(N) andalso N >= -16#80000000 andalso N =< 16#7fffffff)).
-define(IS_UINT31(N), (is_integer(N) andalso N >= 0 andalso N =< 16#7fffffff)).

%% @doc The options of a call of listen or connect.
%%
%% Where an option is given twice the last counts, except for `raw' ones, which are all set. Of the families the first
%% counts, as for gen_tcp.
-spec open(listen | connect, term()) -> {ok, opening()} | badarg | bad_option().
open(What, Options) when is_list(Options) -> opening(defaults(What) ++ Options, What, nothing_said());
open(_What, _Options) -> badarg.

nothing_said() ->
    #{
        family => undefined,
        ifaddr => undefined,
        port => 0,
        fd => undefined,
        netns => none,
        backlog => ?BACKLOG,
        policy => default,
        %% The NIF's own default is binary.
        settings => [{mode, list}],
        active => true
    }.

%% @doc The options of a call of fdopen: a family, a pollset, and what setopts takes, in its way. `active' is among the
%% settings, if it is given.
-spec fdopen([term()]) -> {ok, opening()} | badarg | bad_option().
fdopen(Options) ->
    {Own, Others} = lists:partition(fun is_of_fdopen/1, Options),
    case {opening(Own, fdopen, nothing_said()), to_set(Others)} of
        {{ok, #{settings := Mode} = Opening}, {ok, Settings}} -> {ok, Opening#{settings := Mode ++ Settings}};
        {{ok, _}, Wrong} -> Wrong;
        {Wrong, _} -> Wrong
    end.

is_of_fdopen(Family) when Family =:= inet; Family =:= inet6; Family =:= local -> true;
is_of_fdopen({Key, _}) -> lists:member(Key, [inet_backend, pollset, bind_policy]);
is_of_fdopen(_) -> false.

%% `active' is not a default that one can change: programs that rely on gen_tcp's would break.
defaults(What) ->
    Key =
        case What of
            listen -> inet_default_listen_options;
            connect -> inet_default_connect_options
        end,
    case application:get_env(kernel, Key, []) of
        List when is_list(List) -> lists:keydelete(active, 1, List);
        {active, _} -> [];
        Option -> [Option]
    end.

%% What was read last comes first in the settings.
opening([], _What, Opening) ->
    {ok, Opening};
opening([Option | Rest], What, Opening) ->
    case opening_option(Option, What, Opening) of
        #{} = Next -> opening(Rest, What, Next);
        Wrong -> Wrong
    end;
opening(_Improper, _What, _Opening) ->
    badarg.

opening_option(Family, _What, Opening) when Family =:= inet; Family =:= inet6; Family =:= local ->
    case Opening of
        #{family := undefined} -> Opening#{family := Family};
        #{} -> Opening
    end;
%% After an address in the form of a map, ip and port change what is in it, as for gen_tcp.
opening_option({ip, Address}, _What, #{ifaddr := #{} = Map} = Opening) when not is_map(Address) ->
    Opening#{ifaddr := Map#{addr => Address}};
opening_option({Key, Address}, _What, Opening) when Key =:= ip; Key =:= ifaddr ->
    Opening#{ifaddr := Address};
opening_option({port, Port}, _What, #{ifaddr := #{} = Map} = Opening) ->
    Opening#{ifaddr := Map#{port => Port}};
opening_option({port, Port}, _What, Opening) ->
    Opening#{port := Port};
opening_option({fd, Fd}, _What, Opening) when ?IS_UINT31(Fd) ->
    Opening#{fd := Fd};
opening_option({netns, Name}, _What, Opening) ->
    case file_name(Name) of
        badarg -> badarg;
        Bytes -> Opening#{netns := Bytes}
    end;
%% gen_tcp's own default, which programs that choose between its two say.
opening_option({inet_backend, inet}, _What, Opening) ->
    Opening;
opening_option({backlog, N}, listen, Opening) when ?IS_UINT31(N) ->
    Opening#{backlog := N};
opening_option({pollset, N}, _What, Opening) when is_integer(N), N >= 0 ->
    Opening#{policy := N};
opening_option({bind_policy, Policy}, _What, Opening) when
    Policy =:= least_loaded; Policy =:= round_robin; Policy =:= scheduler
->
    case Opening of
        %% A pollset that is named is a choice already.
        #{policy := N} when is_integer(N) -> Opening;
        #{} -> Opening#{policy := Policy}
    end;
opening_option(Option, _What, #{settings := Settings} = Opening) ->
    case setting(Option) of
        {ok, active, Active} -> Opening#{active := Active};
        {ok, {raw, _, _} = Key, Value} -> Opening#{settings := [{Key, Value} | Settings]};
        {ok, Key, Value} -> Opening#{settings := [{Key, Value} | lists:keydelete(Key, 1, Settings)]};
        none -> Opening;
        Wrong -> Wrong
    end.

%% @doc The options of a call of setopts.
-spec to_set(term()) -> {ok, [setting()]} | badarg | bad_option().
to_set(Options) -> to_set(Options, [], []).

%% What was read last comes first.
to_set([], Settings, Active) ->
    {ok, Settings ++ Active};
to_set([Option | Rest], Settings, Active) ->
    case setting(Option) of
        {ok, active, Value} -> to_set(Rest, Settings, [{active, Value} | Active]);
        {ok, Key, Value} -> to_set(Rest, [{Key, Value} | Settings], Active);
        none -> to_set(Rest, Settings, Active);
        Wrong -> Wrong
    end;
to_set(_Improper, _Settings, _Active) ->
    badarg.

%% @doc What is asked by a call of getopts: each option with the key of weir_socket_nif:get/2, or what is always so.
-spec to_get(term()) -> {ok, [{Option :: term(), {key, term()} | {constant, term()}}]} | badarg.
to_get(Options) -> to_get(Options, []).

to_get([], Keys) ->
    {ok, lists:reverse(Keys)};
to_get([Option | Rest], Keys) ->
    case getting(Option) of
        badarg -> badarg;
        absent -> to_get(Rest, Keys);
        Key -> to_get(Rest, [Key | Keys])
    end;
to_get(_Improper, _Keys) ->
    badarg.

getting({raw, Level, Name, Spec}) when ?IS_INT32(Level), ?IS_INT32(Name) ->
    case is_binary(Spec) orelse ?IS_UINT31(Spec) of
        true -> {{raw, Level, Name}, {key, {raw, Level, Name, Spec}}};
        false -> badarg
    end;
getting({raw, {Level, Name, Spec}}) ->
    getting({raw, Level, Name, Spec});
getting(fd) ->
    {fd, {key, fd}};
getting(Key) when is_atom(Key) ->
    case constant(Key) of
        {ok, Value} -> {Key, {constant, Value}};
        none -> readable(Key, type(Key))
    end;
getting(_) ->
    badarg.

%% inet leaves out what it does not have, of the options that it knows.
readable(Key, unknown) when Key =:= netns; Key =:= read_packets -> absent;
readable(_Key, unknown) -> badarg;
readable(Key, refused) when Key =:= high_msgq_watermark; Key =:= low_msgq_watermark -> absent;
readable(_Key, refused) -> badarg;
readable(Key, _Type) -> {Key, {key, Key}}.

%% @doc The options that have only one value here: it may be set, to no effect, and another is refused.
-spec constant(atom()) -> {ok, term()} | none.
constant(deliver) -> {ok, term};
constant(read_ahead) -> {ok, true};
constant(Key) when Key =:= recvtos; Key =:= recvtclass; Key =:= recvttl; Key =:= debug -> {ok, false};
constant(pktoptions) -> {ok, []};
constant(_) -> none.

%% One option for setopts, or for listen and connect too. `none': nothing is to be set.
setting(Mode) when Mode =:= binary; Mode =:= list ->
    {ok, mode, Mode};
setting({raw, Level, Name, Value}) when ?IS_INT32(Level), ?IS_INT32(Name), is_binary(Value) ->
    {ok, {raw, Level, Name}, Value};
setting({raw, {Level, Name, Value}}) ->
    setting({raw, Level, Name, Value});
setting({Key, Value}) when is_atom(Key) ->
    case constant(Key) of
        {ok, Value} -> none;
        {ok, _Other} -> {bad_option, Key, Value};
        none -> setting(type(Key), Key, Value)
    end;
setting(_) ->
    badarg.

setting(unknown, _Key, _Value) ->
    badarg;
setting(refused, Key, Value) ->
    {bad_option, Key, Value};
setting(Type, Key, Value) ->
    case value(Type, Value) of
        {ok, Set} -> {ok, Key, Set};
        badarg -> badarg
    end.

%% What each option is. `refused' are those that gen_tcp takes, with an effect that a socket of weir_socket cannot have:
%% see docs/guide/socket.md.
type(active) -> active;
type(mode) -> {one_of, [binary, list]};
type(packet) -> packet;
type(packet_size) -> natural;
type(header) -> natural;
type(line_delimiter) -> byte;
type(buffer) -> {at_least, 1};
type(exit_on_close) -> boolean;
type(show_econnreset) -> boolean;
type(high_watermark) -> {at_least, 0};
type(low_watermark) -> {at_least, 0};
type(send_timeout) -> time;
type(send_timeout_close) -> boolean;
type(delay_send) -> boolean;
type(keepalive) -> boolean;
type(reuseaddr) -> boolean;
type(reuseport) -> boolean;
type(reuseport_lb) -> boolean;
type(broadcast) -> boolean;
type(dontroute) -> boolean;
type(nodelay) -> boolean;
type(nopush) -> boolean;
type(ipv6_v6only) -> boolean;
type(linger) -> linger;
type(recbuf) -> integer;
type(sndbuf) -> integer;
type(priority) -> integer;
type(tos) -> integer;
type(ttl) -> integer;
type(tclass) -> integer;
type(keepcnt) -> integer;
type(keepidle) -> integer;
type(keepintvl) -> integer;
type(user_timeout) -> integer;
type(bind_to_device) -> device;
type(Key) when
    Key =:= tcp_module;
    Key =:= inet_backend;
    Key =:= high_msgq_watermark;
    Key =:= low_msgq_watermark;
    Key =:= exclusiveaddruse
->
    refused;
type(_) ->
    unknown.

value(boolean, Value) when is_boolean(Value) -> {ok, Value};
value(integer, Value) when ?IS_INT32(Value) -> {ok, Value};
value(natural, Value) when ?IS_UINT31(Value) -> {ok, Value};
%% gen_tcp takes what is too small for the least that makes sense.
value({at_least, Least}, Value) when ?IS_INT32(Value) -> {ok, max(Least, Value)};
value(byte, Value) when is_integer(Value), Value >= 0, Value =< 255 -> {ok, Value};
value(time, infinity) -> {ok, infinity};
value(time, Value) when ?IS_UINT31(Value) -> {ok, Value};
value(active, Value) when is_boolean(Value); Value =:= once -> {ok, Value};
value(active, Value) when is_integer(Value), Value >= -32768, Value =< 32767 -> {ok, Value};
value(linger, {On, Seconds}) when is_boolean(On), ?IS_UINT31(Seconds) -> {ok, {On, Seconds}};
value(device, Value) when is_binary(Value), byte_size(Value) < 16 -> {ok, Value};
value({one_of, Values}, Value) -> member(Value, Values);
value(packet, raw) -> {ok, 0};
value(packet, Value) -> member(Value, ?PACKETS);
value(_, _) -> badarg.

member(Value, Values) ->
    case lists:member(Value, Values) of
        true -> {ok, Value};
        false -> badarg
    end.

%% The name of a file as the kernel has it.
file_name(Name) when is_binary(Name) ->
    checked_name(Name);
file_name(Name) when is_list(Name) ->
    try unicode:characters_to_binary(Name, unicode, file:native_name_encoding()) of
        Bytes when is_binary(Bytes) -> checked_name(Bytes);
        _ -> badarg
    catch
        error:badarg -> badarg
    end;
file_name(_) ->
    badarg.

checked_name(<<>>) ->
    badarg;
checked_name(Bytes) ->
    case binary:match(Bytes, <<0>>) of
        nomatch -> Bytes;
        _ -> badarg
    end.
