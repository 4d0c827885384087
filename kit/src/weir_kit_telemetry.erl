%% @doc A module `telemetry' for tests, which sends what it gets to the test.
-module(weir_kit_telemetry).

-export([load/0, unload/0, event/1]).

%% @doc From now on each event comes to the calling process, as `{Event, Measurements, Metadata}', for as long as that
%% lives.
-spec load() -> ok.
load() ->
    true = register(?MODULE, self()),
    telemetry = weir_kit_sample:load(lists:concat([
        "-module(telemetry).\n-export([execute/3]).\n",
        "execute(E, M, D) -> tell(whereis(", ?MODULE, "), {E, M, D}).\n",
        "tell(undefined, _) -> ok;\ntell(Pid, Event) -> Pid ! Event, ok.\n"
    ])),
    ok.

%% @doc There is no such module any more.
-spec unload() -> ok.
unload() ->
    _ = code:delete(telemetry),
    _ = code:purge(telemetry),
    ok.

%% @doc The next event of an application. Fails if there is none within a minute.
-spec event(Application :: atom()) -> {Event :: atom(), Measurements :: map(), Metadata :: map()}.
event(Application) ->
    receive
        {[Application, Event], Measurements, Metadata} -> {Event, Measurements, Metadata}
    after 60_000 -> error(no_event)
    end.
