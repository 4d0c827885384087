%% What `WATCH=1 make demo' shows: the right diagnosis, a page, and nothing left afterwards.
-module(weir_demo_watch_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

%% A busy machine says less.
all() -> weir_kit:cases(?MODULE).

looked_at(_) ->
    Applications = [App || {App, _, _} <- application:which_applications()],
    Watch = weir_demo_watch:start(0),
    try
        looked_at(maps:get(address, Watch), whereis(plain_server))
    after
        ok = weir_demo_watch:stop(Watch)
    end,
    ?assertEqual(undefined, whereis(plain_server)),
    ?assertEqual([], [App || {App, _, _} <- application:which_applications()] -- [inets | Applications]).

looked_at(Address, Plain) ->
    ok = weir_watch_agent:subscribe(weir_watch_agent),
    ?assertEqual(flooded, cause(Plain)),
    %% Without these options some releases look for certificates.
    Request = {binary_to_list(Address) ++ "snapshot.json", []},
    {ok, {{_, 200, _}, _, Json}} = httpc:request(get, Request, [{ssl, []}], []),
    ?assertNotEqual(nomatch, string:find(Json, "plain_server")).

%% Returns the first diagnosis of a process that is not `busy'. A mailbox that has grown for a short time is a busy one.
cause(Pid) ->
    receive
        {weir_watch, Agent, #{diagnoses := Diagnoses}} ->
            ok = weir_watch_agent:next(Agent),
            case [Cause || #{pid := P, cause := Cause} <- Diagnoses, P =:= Pid] of
                [Cause] when Cause =/= busy -> Cause;
                _ -> cause(Pid)
            end
    after weir_kit:wait_ms() -> error(no_report)
    end.
