%% @doc Top supervisor: a poller for each poll set. A poller that dies is started again, and finds in the kernel what it
%% has not seen; sockets do not notice. Without the NIF there are no poll sets; it runs nevertheless, for opening a
%% socket fails where it does not.
%% @private
-module(weir_socket_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([init/1]).

%% @doc Starts the supervisor.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    case supervisor:start_link({local, ?MODULE}, ?MODULE, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    %% If that fails, each poller tries by itself, and says why it cannot.
    _ = weir_socket_nif:pollsets() > 0 andalso weir_socket_bell:load(),
    Pollers = [
        #{id => {poller, Set}, start => {weir_socket_poller, start_link, [Set]}}
     || Set <- lists:seq(0, weir_socket_nif:pollsets() - 1)
    ],
    {ok, {#{strategy => one_for_one, intensity => 100, period => 10}, Pollers}}.
