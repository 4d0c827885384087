%% @doc The rare events of a connection: each is one log report, and one telemetry event where the
%% `telemetry' application is loaded.
%%
%% <table>
%% <tr><th>event</th><th>level</th><th>measurements</th><th>metadata</th></tr>
%% <tr><td>`[weir_memcached, connected]'</td><td>info</td><td></td><td>client, address</td></tr>
%% <tr><td>`[weir_memcached, connect_failed]'</td><td>warning</td><td></td>
%%     <td>client, address, reason; once, until a connection is made</td></tr>
%% <tr><td>`[weir_memcached, disconnected]'</td><td>warning</td>
%%     <td>failed: accepted requests that were answered `{error, disconnected}'</td>
%%     <td>client, address, reason</td></tr>
%% <tr><td>`[weir_memcached, stuck]'</td><td>error</td><td></td>
%%     <td>client, address, pid; a connection process did not answer and was killed</td></tr>
%% </table>
%% @private
-module(weir_memcached_event).

-export([connected/2, connect_failed/3, disconnected/4, stuck/3]).
-export([format/1]).

-include_lib("kernel/include/logger.hrl").
-include("weir_memcached_config.hrl").

%% @doc A connection was made, for the first time or again.
-spec connected(weir_memcached_config:server(), weir_memcached_config:config()) -> ok.
connected(Server, Config) ->
    emit(info, connected, #{}, metadata(Server, Config)).

%% @doc The first attempt to connect, or the first after a loss, failed.
-spec connect_failed(weir_memcached_config:server(), weir_memcached_config:config(), Reason :: term()) -> ok.
connect_failed(Server, Config, Reason) ->
    emit(warning, connect_failed, #{}, (metadata(Server, Config))#{reason => Reason}).

%% @doc A connection was lost, and so many requests with it.
-spec disconnected(weir_memcached_config:server(), weir_memcached_config:config(), Reason :: term(),
    non_neg_integer()) ->
    ok.
disconnected(Server, Config, Reason, Failed) ->
    emit(warning, disconnected, #{failed => Failed}, (metadata(Server, Config))#{reason => Reason}).

%% @doc A connection process did not come back to its mailbox and is killed.
-spec stuck(weir_memcached_config:server(), weir_memcached_config:config(), pid()) -> ok.
stuck(Server, Config, Conn) ->
    emit(error, stuck, #{}, (metadata(Server, Config))#{pid => Conn}).

metadata(#server{host = Host, port = Port}, #config{client = Client}) ->
    #{client => Client, address => {Host, Port}}.

emit(Level, Event, Measurements, Metadata) ->
    Report = maps:merge(Metadata, Measurements),
    %% Without a domain: the default handler stops those that it does not know.
    ?LOG(Level, Report#{label => {weir_memcached, Event}}, #{report_cb => fun ?MODULE:format/1}),
    telemetry(erlang:function_exported(telemetry, execute, 3), Event, Measurements, Metadata).

%% No dependency: the module's name is a variable so that nobody takes it for one.
telemetry(true, Event, Measurements, Metadata) ->
    Telemetry = telemetry,
    Telemetry:execute([weir_memcached, Event], Measurements, Metadata);
telemetry(false, _, _, _) ->
    ok.

%% @private
-spec format(map()) -> {io:format(), [term()]}.
format(#{label := {_, connected}, client := Client, address := Address}) ->
    {"memcached client ~tp: connected to ~tp", [Client, Address]};
format(#{label := {_, connect_failed}, client := Client, address := Address, reason := Reason}) ->
    {"memcached client ~tp: cannot connect to ~tp: ~tp; trying again", [Client, Address, Reason]};
format(#{label := {_, disconnected}, client := Client, address := Address, reason := Reason, failed := Failed}) ->
    {"memcached client ~tp: lost a connection to ~tp with ~b unanswered requests: ~tp",
        [Client, Address, Failed, Reason]};
format(#{label := {_, stuck}, client := Client, address := Address, pid := Pid}) ->
    {"memcached client ~tp: connection process ~tp to ~tp does not answer, replacing it", [Client, Pid, Address]}.
