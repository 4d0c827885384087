%% @doc One computation for all processes of this node that want the same at the same time.
%%
%% ```
%%   first caller   insert_new into the table: it leads, runs the function, takes its row out, answers who follows
%%   other callers  find the row: they follow, by a row of their own, and wait for the answer or for the leader's end
%% '''
%% No process but the callers is involved. Who writes what: a leader its row in the first table, a follower its own in
%% the second, and takes it back.
%%
%% A follower looks at the leader's row again after it has written its own. So either the leader's row is gone, and the
%% follower begins anew; or the leader finds the follower's row when it takes all of them, which it does after its own.
%%
%% What is left behind: a leader that is killed leaves its row, which the first follower removes who sees it dead; then
%% all begin anew, and one of them leads. A follower that is killed leaves its row until the leader takes it. What
%% nobody comes across is removed by {@link tidy/1}. An answer that comes too late goes to an alias that is no more.
%% @private
-module(weir_memcached_flight).

-export([new/0, run/4, lead/3, tidy/1]).

-export_type([flights/0, outcome/0]).

-opaque flights() :: {Leaders :: ets:table(), Followers :: ets:table()}.

-type outcome() :: {ok, term()} | {raised, error | exit | throw, Reason :: term()}.

%% @doc Tables without rows, owned by the caller.
-spec new() -> flights().
new() ->
    Options = [public, {write_concurrency, true}, {read_concurrency, true}],
    {ets:new(?MODULE, [set | Options]), ets:new(?MODULE, [bag | Options])}.

%% @doc Runs the function, or waits for whoever runs it already for this key. `{led, Result}': it was run here; what it
%% raises is raised. `{shared, Outcome}': another process ran it. `again': that one is dead, or had just ended.
%% `timeout': the time is over (milliseconds of `erlang:monotonic_time/1').
%%
%% Cost: four operations on tables.
-spec run(Key :: term(), flights(), fun(() -> Result), Until :: integer()) ->
    {led, Result} | {shared, outcome()} | again | timeout.
run(Key, {Leaders, _} = Flights, Fun, Until) ->
    case lead(Key, Flights, Fun) of
        {led, _} = Led ->
            Led;
        taken ->
            case ets:lookup(Leaders, Key) of
                %% A function that asks for its own key.
                [{_, Self, _}] when Self =:= self() -> {led, Fun()};
                [{_, Leader, Ref}] -> follow({Key, Leader, Ref}, Flights, Until);
                [] -> again
            end
    end.

%% @doc Runs the function, if nobody runs it for this key.
-spec lead(Key :: term(), flights(), fun(() -> Result)) -> {led, Result} | taken.
lead(Key, {Leaders, _} = Flights, Fun) ->
    Row = {Key, self(), make_ref()},
    case ets:insert_new(Leaders, Row) of
        true ->
            try Fun() of
                Result ->
                    ok = landed(Row, {ok, Result}, Flights),
                    {led, Result}
            catch
                Class:Reason:Stack ->
                    ok = landed(Row, {raised, Class, Reason}, Flights),
                    erlang:raise(Class, Reason, Stack)
            end;
        false ->
            taken
    end.

landed({_, _, Ref} = Row, Outcome, {Leaders, Followers}) ->
    true = ets:delete_object(Leaders, Row),
    lists:foreach(fun({_, Alias, _}) -> Alias ! {Alias, Outcome} end, ets:take(Followers, Ref)).

follow({Key, Leader, Ref} = Row, {Leaders, Followers}, Until) ->
    Alias = monitor(process, Leader, [{alias, reply_demonitor}]),
    Own = {Ref, Alias, self()},
    true = ets:insert(Followers, Own),
    Left =
        case ets:lookup(Leaders, Key) of
            [Row] -> max(0, Until - erlang:monotonic_time(millisecond));
            _ -> ended
        end,
    receive
        {Alias, Outcome} ->
            {shared, Outcome};
        {'DOWN', Alias, process, _, _} ->
            true = ets:delete_object(Leaders, Row),
            true = ets:delete_object(Followers, Own),
            again
    after case Left of ended -> 0; _ -> Left end ->
        _ = demonitor(Alias, [flush]),
        true = ets:delete_object(Followers, Own),
        receive
            {Alias, Outcome} -> {shared, Outcome}
        after 0 ->
            case Left of
                ended -> again;
                _ -> timeout
            end
        end
    end.

%% @doc Removes the rows of processes that are dead, in a process of its own. Cost for the caller: next to none.
-spec tidy(flights()) -> ok.
tidy({Leaders, Followers}) ->
    case ets:info(Leaders, size) + ets:info(Followers, size) of
        0 ->
            ok;
        _ ->
            _ = spawn(fun() ->
                remove(Leaders, 2),
                remove(Followers, 3)
            end),
            ok
    end.

%% Waits for those who are dying; nobody waits for this process.
remove(Table, Who) ->
    lists:foreach(
        fun(Row) -> is_process_alive(element(Who, Row)) orelse ets:delete_object(Table, Row) end,
        ets:tab2list(Table)
    ).
