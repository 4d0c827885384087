%% @doc The rare events of a connection: each is one log report, and one telemetry event where the
%% `telemetry' application is loaded.
%%
%% Handlers of both are other people's code, and may take long: they run in a process of their own for each event, while
%% callers wait for those whose events these are. The events of a connection come one after the other. If the node has
%% no room for a process, there is no event, and the result is `none'.
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

-export([connected/3, connect_failed/4, disconnected/5, stuck/3]).
-export([tell/5, format/1]).

-include_lib("kernel/include/logger.hrl").
-include("weir_memcached_config.hrl").

%% The process that tells of an event, if there is any, or was any.
-type teller() :: none | pid().

%% @doc A connection was made, for the first time or again.
-spec connected(weir_memcached_config:server(), weir_memcached_config:config(), Before :: teller()) -> teller().
connected(Server, Config, Before) ->
    emit(Before, info, connected, #{}, metadata(Server, Config)).

%% @doc The first attempt to connect, or the first after a loss, failed.
-spec connect_failed(weir_memcached_config:server(), weir_memcached_config:config(), Reason :: term(),
    Before :: teller()) ->
    teller().
connect_failed(Server, Config, Reason, Before) ->
    emit(Before, warning, connect_failed, #{}, (metadata(Server, Config))#{reason => Reason}).

%% @doc A connection was lost, and so many requests with it.
-spec disconnected(weir_memcached_config:server(), weir_memcached_config:config(), Reason :: term(),
    non_neg_integer(), Before :: teller()) ->
    teller().
disconnected(Server, Config, Reason, Failed, Before) ->
    emit(Before, warning, disconnected, #{failed => Failed}, (metadata(Server, Config))#{reason => Reason}).

%% @doc A connection process did not come back to its mailbox and is killed.
-spec stuck(weir_memcached_config:server(), weir_memcached_config:config(), pid()) -> teller().
stuck(Server, Config, Conn) ->
    emit(none, error, stuck, #{}, (metadata(Server, Config))#{pid => Conn}).

metadata(#server{host = Host, port = Port}, #config{client = Client}) ->
    #{client => Client, address => {Host, Port}}.

emit(Before, Level, Event, Measurements, Metadata) ->
    try
        spawn(?MODULE, tell, [Before, Level, Event, Measurements, Metadata])
    catch
        error:system_limit -> none
    end.

%% @private Who told of the event before has ended then.
-spec tell(Before :: teller(), logger:level(), Event :: atom(), map(), map()) -> ok.
tell(Before, Level, Event, Measurements, Metadata) when is_pid(Before) ->
    Monitor = monitor(process, Before),
    receive
        {'DOWN', Monitor, process, Before, _} -> tell(none, Level, Event, Measurements, Metadata)
    end;
tell(none, Level, Event, Measurements, Metadata) ->
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
