%% Senders and tables that an agent finds with traces of real faults, each in a node of its own. weir_watch_faults_SUITE
%% has the causes.
-module(weir_watch_traced_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

%% From OTP 27 on, the agent names the sender or the table of a form. A node that the machine gives too little time may
%% tell nothing. Such a node does not count.
says_what_was_traced(_Config) ->
    case weir_watch_trace:is_possible() of
        true ->
            Says = weir_kit:in_parallel([
                fun() -> {Form, weir_watch_test_lib:in_node([], ?MODULE, says, [Form, Words])} end
             || {Form, Words} <- [
                    {casts, "gets [0-9]+ messages a second and handles [0-9]+, sent by weir_watch_forms:"},
                    {ets_inserts, "in functions of ets, [0-9]+ % of its time, as are others, in table form \\(100 %\\)"}
                ]
            ]),
            ?assertEqual([], [Other || {_, Told} = Other <- Says, Told =/= said, Told =/= starved]),
            {comment, lists:flatten(io_lib:format("~0tp", [Says]))};
        false ->
            {skip, "There are no trace sessions before OTP 27."}
    end.

says(Form, Words) ->
    _ = weir_watch_forms:start(Form),
    ok = weir_watch_agent:subscribe(weir_watch_agent),
    said(Words, erlang:monotonic_time(millisecond), none).

%% Returns `said', `starved', or the last diagnoses.
said(Words, Begin, Before) ->
    receive
        {weir_watch, Agent, #{diagnoses := Diagnoses} = Snapshot} ->
            ok = weir_watch_agent:next(Agent),
            IsStarved = Before =:= starved orelse weir_watch_test_lib:says(Snapshot, "processor time"),
            Told = if IsStarved -> starved; true -> Diagnoses end,
            IsSaid = lists:any(fun(#{summary := Summary}) -> re:run(Summary, Words) =/= nomatch end, Diagnoses),
            Limit = case IsStarved of true -> weir_watch_test_lib:starved_ms(); false -> weir_kit:wait_ms() end,
            case erlang:monotonic_time(millisecond) - Begin > Limit of
                _ when IsSaid -> said;
                true -> Told;
                false -> said(Words, Begin, Told)
            end
    end.
