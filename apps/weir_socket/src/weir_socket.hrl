%% What a socket is for programs: gen_tcp, inet and ssl pass on to the module what they are asked of such a term.
-define(SOCKET(Sock), {'$inet', weir_socket, Sock}).

%% A guard: is it a socket of gen_tcp's, of either of its backends?
-define(IS_GEN_TCP(Socket), (is_port(Socket) orelse element(2, Socket) =:= gen_tcp_socket)).

%% The longest time that `receive ... after' takes. Milliseconds.
-define(MAX_TIMEOUT, 16#ffffffff).

-define(IS_TIMEOUT(T), (T =:= infinity orelse (is_integer(T) andalso T >= 0 andalso T =< ?MAX_TIMEOUT))).
