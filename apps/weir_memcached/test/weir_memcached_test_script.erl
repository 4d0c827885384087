%% A server that follows a script, step by step, and says in the end whether the script was drained: whether all that it
%% expected has happened, in that order, and nothing else.
%%
%% Steps:
%%   accept                a connection; the steps below are about the one accepted last
%%   {expect, Bytes}       exactly these bytes are received next
%%   {send, Bytes}
%%   close                 in good order
%%   abort                 with a reset
%%   expect_closed         the client closes, having sent nothing more
%%   {tell, Name}          reached/2 returns
%%   {wait, Name}          until release/2
%%   {serve, N, Handler}   accepts N connections, each for a process of its own which calls Handler(Socket)
%%   {serve, all, Handler} the same with all that come from now on, while the script goes on
%% After the last step it stays as it is, silent, until stop/1.
-module(weir_memcached_test_script).

-export([start/1, stop/1, drained/1, reached/2, release/2, options/1]).
-export([answer_gets/1]).

-type step() ::
    accept
    | {expect, iodata()}
    | {send, iodata()}
    | close
    | abort
    | expect_closed
    | {tell, term()}
    | {wait, term()}
    | {serve, pos_integer() | all, fun((gen_tcp:socket()) -> term())}.
-type server() :: #{pid := pid(), port := inet:port_number()}.

-spec start([step()]) -> server().
start(Script) ->
    %% a small receive buffer, so that a server that does not read can be written full
    {ok, Listener} = gen_tcp:listen(0, [
        binary, {ip, {127, 0, 0, 1}}, {active, false}, {nodelay, true}, {recbuf, 8192}, {backlog, 1000}
    ]),
    {ok, Port} = inet:port(Listener),
    Owner = self(),
    Pid = spawn_link(fun() ->
        receive
            begin_script -> run(Script, Owner, Listener, none)
        end
    end),
    ok = gen_tcp:controlling_process(Listener, Pid),
    Pid ! begin_script,
    #{pid => Pid, port => Port}.

-spec options(server()) -> weir_memcached:options().
options(#{port := Port}) ->
    #{
        host => {127, 0, 0, 1}, port => Port, protocol => text, transport => weir_memcached_test:transport(),
        request_timeout => infinity, connect_timeout => weir_kit:wait_ms()
    }.

-spec stop(server()) -> ok.
stop(#{pid := Pid}) ->
    unlink(Pid),
    weir_kit:kill(Pid).

%% Waits for the end of the script. Fails if a step went otherwise than the script says.
-spec drained(server()) -> ok.
drained(Server) ->
    told(Server, drained).

-spec reached(server(), Name :: term()) -> ok.
reached(Server, Name) ->
    told(Server, {reached, Name}).

-spec release(server(), Name :: term()) -> ok.
release(#{pid := Pid}, Name) ->
    Pid ! {release, Name},
    ok.

told(#{pid := Pid}, What) ->
    receive
        {Pid, What} -> ok;
        {Pid, {failed, _, _} = Failed} -> error(Failed)
    after weir_kit:wait_ms() -> error({script_never_reached, What})
    end.

run([Step | Script], Owner, Listener, Socket) ->
    case step(Step, Owner, Listener, Socket) of
        {ok, Socket1} ->
            run(Script, Owner, Listener, Socket1);
        {error, Why} ->
            Owner ! {self(), {failed, Step, Why}},
            stay()
    end;
run([], Owner, _, _) ->
    Owner ! {self(), drained},
    stay().

stay() ->
    receive
        never -> ok
    end.

step(accept, _, Listener, _) ->
    gen_tcp:accept(Listener, weir_kit:wait_ms());
step({expect, Expected}, _, _, Socket) ->
    Bytes = iolist_to_binary(Expected),
    case gen_tcp:recv(Socket, byte_size(Bytes), weir_kit:wait_ms()) of
        {ok, Bytes} -> {ok, Socket};
        {ok, Other} -> {error, {received, Other}};
        {error, _} = Error -> Error
    end;
step({send, Bytes}, _, _, Socket) ->
    ok = gen_tcp:send(Socket, Bytes),
    {ok, Socket};
step(close, _, _, Socket) ->
    ok = gen_tcp:close(Socket),
    {ok, none};
step(abort, _, _, Socket) ->
    ok = inet:setopts(Socket, [{linger, {true, 0}}]),
    ok = gen_tcp:close(Socket),
    {ok, none};
step(expect_closed, _, _, Socket) ->
    case gen_tcp:recv(Socket, 0, weir_kit:wait_ms()) of
        {error, Closed} when Closed =:= closed; Closed =:= econnreset -> {ok, none};
        Other -> {error, Other}
    end;
step({tell, Name}, Owner, _, Socket) ->
    Owner ! {self(), {reached, Name}},
    {ok, Socket};
step({wait, Name}, _, _, Socket) ->
    receive
        {release, Name} -> {ok, Socket}
    after weir_kit:wait_ms() -> {error, not_released}
    end;
step({serve, all, Handler}, _, Listener, Socket) ->
    _ = spawn_link(fun Serve() -> serve(Listener, Handler), Serve() end),
    {ok, Socket};
step({serve, N, Handler}, _, Listener, Socket) ->
    lists:foreach(fun(_) -> serve(Listener, Handler) end, lists:seq(1, N)),
    {ok, Socket}.

serve(Listener, Handler) ->
    {ok, Socket} = gen_tcp:accept(Listener, infinity),
    Pid = spawn_link(fun() ->
        receive
            yours -> Handler(Socket)
        end
    end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! yours.

%% A handler: answers every get with the key itself for a value, until the client closes.
-spec answer_gets(gen_tcp:socket()) -> ok.
answer_gets(Socket) ->
    ok = inet:setopts(Socket, [{packet, line}]),
    case gen_tcp:recv(Socket, 0) of
        {ok, <<"get ", Line/binary>>} ->
            [Key, <<>>] = binary:split(Line, <<"\r\n">>),
            Size = integer_to_binary(byte_size(Key)),
            _ = gen_tcp:send(Socket, ["VALUE ", Key, " 0 ", Size, "\r\n", Key, "\r\nEND\r\n"]),
            answer_gets(Socket);
        {error, _} ->
            ok
    end.
