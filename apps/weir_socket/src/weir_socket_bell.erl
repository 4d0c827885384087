%% @doc Wakes a poller that sleeps: a port that watches a poll set and sends one message when the set has something to
%% say, each time that it is asked to.
%%
%% The port belongs to the process that opens it and ends with it. Asked twice, it may ring twice: a poller takes a ring
%% for a reason to look, and no more. Between two rings it costs nothing.
%%
%% Other than `enif_select', it wakes one thread of the runtime and not two on releases before 28. Measured on OTP 25 on
%% two cores, 10,000 requests a second over 64 connections: 37 us of processor time a request, and 96 by `enif_select'
%% (gen_tcp: 36 active, 84 passive); on OTP 29 both take the same.
%%
%% c_src/weir_bell.c is its other side. A node that has loaded another version of the application may run that version's
%% driver for this module, so what the two say to each other must not change; a new meaning needs a new name.
%% @private
-module(weir_socket_bell).

-export([load/0, open/1, arm/1]).

-define(DRIVER, "weir_socket_bell").

-define(WATCH, 0).
-define(ARM, 1).

%% @doc A bell for the set with this descriptor of epoll. Its messages are `{Bell, ring}'. An error is one of the
%% driver's being loaded, or there are no descriptors (`emfile') or no ports (`system_limit') left.
-spec open(Epoll :: non_neg_integer()) -> {ok, port()} | {error, term()}.
open(Epoll) ->
    case open_loaded(Epoll) of
        {ok, _} = Opened -> Opened;
        %% The supervisor could not load the driver, or runs since a version that did not.
        {error, _} ->
            case load() of
                ok -> open_loaded(Epoll);
                {error, Reason} -> {error, Reason}
            end
    end.

%% @doc Loads the driver, which stays as long as the caller lives. For the supervisor: a poller that is started again
%% then does not ask the code server for the path of the driver. The code server may be busy.
-spec load() -> ok | {error, term()}.
load() ->
    case erl_ddll:load_driver(weir_socket_nif:priv_dir(), ?DRIVER) of
        ok -> ok;
        %% Another version of the application has loaded its own.
        {error, inconsistent} -> ok;
        {error, Reason} -> {error, Reason}
    end.

open_loaded(Epoll) ->
    try open_port({spawn_driver, ?DRIVER}, []) of
        Bell -> watch(Bell, Epoll)
    catch
        error:Reason -> {error, Reason}
    end.

watch(Bell, Epoll) ->
    try
        _ = port_control(Bell, ?WATCH, <<Epoll:32/native>>),
        {ok, Bell}
    catch
        error:Reason ->
            true = port_close(Bell),
            {error, Reason}
    end.

%% @doc `{Bell, ring}' will come, once, as soon as the set has something to say: at once if it has. Fails with `badarg'
%% if the bell is closed. Cost: 1 us, one system call.
-spec arm(Bell :: port()) -> ok.
arm(Bell) ->
    _ = port_control(Bell, ?ARM, <<>>),
    ok.
