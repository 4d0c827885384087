%% A transport that receives one byte at a time, whatever the server sends at once: every cut there is. It is the
%% suite's transport with a buffer of one byte.
-module(weir_memcached_test_trickle).

-export([connect/4, send/2, close/1, controlling_process/2]).

connect(Address, Port, Options, Timeout) ->
    Transport = weir_memcached_test:transport(),
    Transport:connect(Address, Port, lists:keystore(buffer, 1, Options, {buffer, 1}), Timeout).

%% gen_tcp's functions take the sockets of every transport.
send(Socket, Data) -> gen_tcp:send(Socket, Data).

close(Socket) -> gen_tcp:close(Socket).

controlling_process(Socket, Pid) -> gen_tcp:controlling_process(Socket, Pid).
