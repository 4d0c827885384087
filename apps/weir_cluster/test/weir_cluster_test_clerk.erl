%% A worker that writes down in a file what it begins, before it does it: so what was begun is known also of a node that
%% is killed.
-module(weir_cluster_test_clerk).
-behaviour(gen_server).

-export([start_link/1, init/1, handle_call/3, handle_cast/2, read/1]).

start_link(File) -> gen_server:start_link(?MODULE, File, []).

init(File) ->
    {ok, Device} = file:open(File, [append, raw]),
    {ok, {Device, nobody}}.

handle_call({do, Id, Ms}, _From, State) ->
    ok = write({begun, Id}, State),
    receive after Ms -> ok end,
    {reply, {Id, node()}, State};
handle_call({die, Id}, _From, State) ->
    ok = write({begun, Id}, State),
    exit(asked_to);
handle_call({take, Id}, _From, {Device, nobody} = State) ->
    ok = write({begun, Id}, State),
    {reply, ok, {Device, Id}};
handle_call({take, Id}, _From, {_, Holder} = State) ->
    ok = write({two_holders, Id, Holder}, State),
    {reply, ok, State};
handle_call({give, Id}, _From, {Device, Id}) ->
    {reply, {Id, node()}, {Device, nobody}}.

handle_cast({do, Id}, State) ->
    ok = write({begun, Id}, State),
    {noreply, State}.

write(Entry, {Device, _}) -> file:write(Device, io_lib:format("~w.~n", [Entry])).

%% What was written, oldest first.
read(File) ->
    case file:consult(File) of
        {ok, Entries} -> Entries;
        {error, enoent} -> []
    end.
