%% @doc One computation for all processes of this node that want the same at the same time.
%%
%% ```
%%   first caller   insert_new into the table: it leads, runs the function, takes its row out, answers who follows
%%   other callers  find the row: they follow, by a row of their own, and wait for the answer or for the leader's end
%%   a dead leader  the first follower who sees that puts itself into the row: it leads now, with what that one held
%% '''
%% No process but the callers is involved. Who writes what: a leader its row in the first table, a follower its own in
%% the second, and takes it back.
%%
%% A follower looks at the leader's row again after it has written its own. So either the leader's row is gone, and the
%% follower begins anew; or the leader finds the follower's row when it takes all of them, which it does after its own.
%%
%% What is left behind: a leader that is killed leaves its row, which the first follower takes over who sees it dead;
%% the others begin anew, and follow that one. A follower that is killed leaves its row until the leader takes it. What
%% nobody comes across is removed by {@link tidy/1}, but not the row of a dead leader that has living followers: it is
%% theirs, with what it holds. An answer that comes too late goes to an alias that is no more.
%% When the owner of the tables ends, it tells who follows ({@link stop/1}); if it is killed they wait for as long as
%% they would have. Without tables everybody runs its function by itself.
%% @private
-module(weir_memcached_flight).

-export([new/0, run/5, lead/3, hold/3, tidy/1, stop/1]).

-export_type([flights/0, outcome/0]).

-opaque flights() :: {Leaders :: ets:table(), Followers :: ets:table()}.

-type outcome() :: {ok, term()} | {raised, error | exit | throw, Reason :: term()} | stopped.
%% `stopped': the owner of the tables has ended, and nobody will answer.

%% @doc Tables without rows, owned by the caller.
-spec new() -> flights().
new() ->
    Options = [public, {write_concurrency, true}, {read_concurrency, true}],
    %% A row of a follower is there once; in a bag each new one would be compared with all of the same leader.
    {ets:new(?MODULE, [set | Options]), ets:new(?MODULE, [duplicate_bag | Options])}.

%% @doc Runs the function, or waits for whoever runs it already for this key. `{led, Result}': it was run here; what it
%% raises is raised. `{shared, Outcome}': another process ran it. `again': that one has just ended. `timeout': the time
%% is over (milliseconds of `erlang:monotonic_time/1').
%%
%% `Heir' is run in the function's place, with what the leader held ({@link hold/3}), if that was killed.
%%
%% Cost: four operations on tables.
-spec run(Key :: term(), flights(), fun(() -> Result), Heir :: fun((Held :: term()) -> Result), Until :: integer()) ->
    {led, Result} | {shared, outcome()} | again | timeout.
run(Key, {Leaders, _} = Flights, Fun, Heir, Until) ->
    case lead(Key, Flights, Fun) of
        {led, _} = Led ->
            Led;
        taken ->
            case lookup(Leaders, Key) of
                %% A function that asks for its own key.
                [{_, Self, _, _}] when Self =:= self() -> {led, Fun()};
                [{_, Leader, Ref, _}] ->
                    case follow({Key, Leader, Ref}, Flights, Until) of
                        {dead, New, none} -> {led, landing(New, Flights, Fun)};
                        {dead, New, {held, Held}} -> {led, landing(New, Flights, fun() -> Heir(Held) end)};
                        Other -> Other
                    end;
                [] ->
                    again
            end
    end.

%% @doc Runs the function, if nobody runs it for this key.
-spec lead(Key :: term(), flights(), fun(() -> Result)) -> {led, Result} | taken.
lead(Key, {Leaders, _} = Flights, Fun) ->
    Ref = make_ref(),
    try ets:insert_new(Leaders, {Key, self(), Ref, none}) of
        true -> {led, landing({Key, Ref}, Flights, Fun)};
        false -> taken
    catch
        error:badarg -> {led, Fun()}
    end.

landing(Row, Flights, Fun) ->
    try Fun() of
        Result ->
            ok = landed(Row, {ok, Result}, Flights),
            Result
    catch
        Class:Reason:Stack ->
            ok = landed(Row, {raised, Class, Reason}, Flights),
            erlang:raise(Class, Reason, Stack)
    end.

landed({Key, Ref}, Outcome, {Leaders, Followers}) ->
    try
        true = ets:match_delete(Leaders, {Key, '_', Ref, '_'}),
        lists:foreach(fun({_, Alias, _}) -> Alias ! {Alias, Outcome} end, ets:take(Followers, Ref))
    catch
        error:badarg -> ok
    end.

%% @doc What the process that leads for a key, this one, has and would leave behind if it were killed.
-spec hold(Key :: term(), flights(), term()) -> ok.
hold(Key, {Leaders, _}, Held) ->
    case lookup(Leaders, Key) of
        [{_, Self, Ref, _}] when Self =:= self() ->
            replace(Leaders, {Key, Self, Ref}, {Self, Ref, {const, {held, Held}}});
        _ ->
            false
    end,
    ok.

lookup(Leaders, Key) ->
    try
        ets:lookup(Leaders, Key)
    catch
        error:badarg -> []
    end.

%% In one step, so that it is still that row.
replace(Leaders, {Key, Leader, Ref}, {NewLeader, NewRef, Held}) ->
    Row = {{{element, 1, '$_'}, {const, NewLeader}, {const, NewRef}, Held}},
    try
        ets:select_replace(Leaders, [{{Key, Leader, Ref, '$1'}, [], [Row]}]) =:= 1
    catch
        error:badarg -> false
    end.

follow({Key, Leader, Ref} = Row, {Leaders, Followers}, Until) ->
    Alias = monitor(process, Leader, [{alias, reply_demonitor}]),
    Own = {Ref, Alias, self()},
    Left =
        try
            true = ets:insert(Followers, Own),
            case ets:lookup(Leaders, Key) of
                [{_, Leader, Ref, _}] -> max(0, Until - erlang:monotonic_time(millisecond));
                _ -> ended
            end
        catch
            error:badarg -> ended
        end,
    receive
        {Alias, Outcome} ->
            {shared, Outcome};
        {'DOWN', Alias, process, _, _} ->
            %% In this order: as long as a row has a follower it is not tidied away.
            Outcome = take_over(Leaders, Row),
            forget(Followers, Own),
            Outcome
    after case Left of ended -> 0; _ -> Left end ->
        _ = demonitor(Alias, [flush]),
        forget(Followers, Own),
        receive
            {Alias, Outcome} -> {shared, Outcome}
        after 0 ->
            case Left of
                ended -> again;
                _ -> timeout
            end
        end
    end.

forget(Followers, Own) ->
    try
        ets:delete_object(Followers, Own)
    catch
        error:badarg -> true
    end.

take_over(Leaders, {Key, _, _} = Row) ->
    Ref = make_ref(),
    case replace(Leaders, Row, {self(), Ref, '$1'}) of
        true ->
            case lookup(Leaders, Key) of
                [{_, _, Ref, Held}] -> {dead, {Key, Ref}, Held};
                [] -> again
            end;
        false ->
            again
    end.

%% @doc Tells who follows that nobody will answer. For the owner of the tables, who ends.
-spec stop(flights()) -> ok.
stop({_, Followers}) ->
    lists:foreach(fun({_, Alias, _}) -> Alias ! {Alias, stopped} end, ets:tab2list(Followers)).

%% @doc Removes the rows of processes that are dead, in a process of its own. Cost for the caller: next to none.
-spec tidy(flights()) -> ok.
tidy({Leaders, Followers}) ->
    case ets:info(Leaders, size) + ets:info(Followers, size) of
        0 ->
            ok;
        _ ->
            Tidy = fun() ->
                remove(Followers, fun({_, _, Follower}) -> is_process_alive(Follower) end),
                remove(Leaders, fun({_, Leader, Ref, _}) ->
                    is_process_alive(Leader) orelse ets:member(Followers, Ref)
                end)
            end,
            %% Without room for the process, the rows stay until the next call.
            _ = try
                spawn(Tidy)
            catch
                error:system_limit -> none
            end,
            ok
    end.

%% Waits for those who are dying; nobody waits for this process.
remove(Table, IsNeeded) ->
    lists:foreach(fun(Row) -> IsNeeded(Row) orelse ets:delete_object(Table, Row) end, ets:tab2list(Table)).
