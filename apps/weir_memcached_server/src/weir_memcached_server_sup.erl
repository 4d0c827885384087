%% @doc The supervisor of one server. It owns the tables, so that items outlive whichever of its children dies:
%% ```
%%   weir_memcached_server_sup          one_for_all
%%    +- weir_memcached_server_keeper       counts connections, gives back what they held, crawls
%%    +- weir_memcached_server_conns        supervisor
%%    |   +- weir_memcached_server_conn         one for each connection, temporary
%%    +- weir_memcached_server_listener     owns the listening socket
%%    +- weir_memcached_server_acceptor     some of them
%% '''
%% @private
-module(weir_memcached_server_sup).
-behaviour(supervisor).

-export([start_link/2, init/1]).

-include("weir_memcached_server.hrl").

-define(ACCEPTORS, 2).

%% @doc Starts a server; it accepts connections when this returns. `ignore': the application has just been stopped.
-spec start_link(weir_memcached_server_opts:conf(), none | weir_memcached_server_auth:users()) ->
    supervisor:startlink_ret().
start_link(#{name := undefined} = Conf, Users) ->
    supervisor:start_link(?MODULE, {Conf, Users});
start_link(#{name := Name} = Conf, Users) ->
    supervisor:start_link({local, Name}, ?MODULE, {Conf, Users}).

%% @private
-spec init({weir_memcached_server_opts:conf(), none | weir_memcached_server_auth:users()}) ->
    {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}} | ignore.
init({Conf, Users}) ->
    case weir_memcached_server_app:enter(self(), cache(weir_memcached_server_app:find(self()), Conf, Users)) of
        #cache{} = Cache -> children(Cache);
        not_started -> ignore
    end.

children(Cache) ->
    Child = fun(Id, Module) -> #{id => Id, start => {Module, start_link, [Cache]}} end,
    Conns = Child(conns, weir_memcached_server_conns),
    Acceptors = [
        (Child({acceptor, N}, weir_memcached_server_acceptor))#{shutdown => brutal_kill}
     || N <- lists:seq(1, ?ACCEPTORS)
    ],
    {ok, {#{strategy => one_for_all, intensity => 3, period => 10}, [
        Child(keeper, weir_memcached_server_keeper),
        Conns#{type => supervisor},
        Child(listener, weir_memcached_server_listener)
        | Acceptors
    ]}}.

%% An upgrade runs init/1 again: what there is stays.
cache(#cache{} = Cache, _Conf, _Users) ->
    Cache;
cache(none, Conf, Users) ->
    Started = erlang:system_time(second),
    #cache{
        table = weir_memcached_server_items:new_table(),
        shared = ets:new(weir_memcached_server_shared, [set, public, {read_concurrency, true}]),
        words = atomics:new(?WORDS, []),
        counts = weir_memcached_server_counts:new(),
        costs = weir_memcached_server_memory:costs(),
        users = Users,
        epoch = erlang:convert_time_unit(Started, second, native) - erlang:time_offset(),
        started = Started,
        conf = Conf
    }.
