%% How many messages a server without priorities and batches drains, and which ones.
%%
%% A callback sees by the length of the mailbox how many messages the server has drained: the length falls by more than
%% the message that the server handled.
-module(weir_server_drain_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1]).
-import(weir_server_loop_lib, [
    start/2, stop/1, held/1, while_held/2, push/1, casts/3, ask/3, info/1, settle/1, events/1, spin/1
]).

-define(ALL, {drain, {1_000_000, infinity}}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- how many

%% On a machine of any load the slow callbacks take longer than a callback for which draining is worth it. The server is
%% direct again when all messages are handled.
slow_callbacks_are_drained_and_few_messages_are_not(_) ->
    Pid = start(weir_server_probe, []),
    Few = fun() ->
        while_held(Pid, fun() -> casts(Pid, 1, 31) end),
        maps:get(drains, settle(Pid))
    end,
    ?assertEqual(0, lists:max([Few() || _ <- lists:seq(1, 20)])),
    ?assert(lists:max(falls(Pid, 500, 20)) > 1),
    #{drains := Drains, longest_wait_us := Us} = settle(Pid),
    ?assert(Drains > 0 andalso Us > 0),
    ?assertEqual(Drains, Few()),
    stop(Pid).

most_messages_at_a_time(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            Most = lists:max(falls(Pid, 4000, SpinUs)),
            ?assert(Most >= Least andalso Most =< Limit, {Options, Most}),
            stop(Pid)
        end
     || {Options, SpinUs, Least, Limit} <- [
            {[{drain, {2, 2}}], 0, 2, 2},
            {[{drain, 11}], 0, 11, 11},
            {[{drain, 1}], 20, 1, 1},
            {[{drain, {1, 7}}], 20, 7, 7},
            {[{drain, {50, infinity}}], 0, 50, 4001},
            %% Draining moves messages onto the heap, and the user wants them off the heap.
            {[{spawn_opt, [{message_queue_data, off_heap}]}], 20, 1000, 1000},
            {[{spawn_opt, [{message_queue_data, on_heap}]}], 20, 1001, 4001}
        ]
    ].

%% Returns by how many messages the mailbox gets shorter from one callback to the next. At first Count messages are
%% there, and each callback takes SpinUs microseconds. No message comes meanwhile.
falls(Pid, Count, SpinUs) ->
    Self = self(),
    Tell = fun(_, State) ->
        Self ! {length, queue_len(self())},
        spin(SpinUs),
        {noreply, State}
    end,
    while_held(Pid, fun() ->
        [gen_server:cast(Pid, {do, told, Tell}) || _ <- lists:seq(1, Count)],
        Pid ! last
    end),
    Lengths = [Count + 1 | [Length || {length, Length} <- events({info, last})]],
    ?assertEqual(Count + 1, length(Lengths)),
    [Before - After || {Before, After} <- lists:zip(lists:droplast(Lengths), tl(Lengths))].

%% ---------------------------------------------------------------- which ones

%% The server drains the casts before the first info, and on OTP 25 to 27 that info. A receive in the callback therefore
%% searches few messages.
requests_are_drained_up_to_the_first_info(_) ->
    Pid = start(weir_server_probe, [?ALL]),
    Ref = make_ref(),
    while_held(Pid, fun() ->
        push(Pid),
        gen_server:cast(Pid, {hold, Ref, self()}),
        casts(Pid, 1, 5),
        Pid ! first,
        casts(Pid, 6, 8),
        Pid ! last
    end),
    held(Ref),
    Drained = case weir_server_loop_lib:release_number() >= 28 of true -> 5; false -> 6 end,
    Mailbox = 10 - Drained,
    ?assertMatch(
        #{drained := Drained, mailbox := Mailbox, waiting := 10, handled := #{calls := 0, casts := 65, infos := 0}},
        info(Pid)
    ),
    Pid ! Ref,
    Casts = [{cast, N} || N <- lists:seq(1, 8)],
    ?assertEqual(lists:sublist(Casts, 5) ++ [{info, first}] ++ lists:nthtail(5, Casts), events({info, last})),
    stop(Pid).

%% Few messages are in the mailbox, and drained messages wait before them.
system_message_among_few_keeps_its_place(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            Slow = {do, slow, fun(_, State) -> spin(100), {noreply, State} end},
            First = make_ref(),
            while_held(Pid, fun() ->
                push(Pid),
                [gen_server:cast(Pid, Slow) || _ <- lists:seq(1, 300)],
                gen_server:cast(Pid, {hold, First, self()}),
                casts(Pid, 1, 20)
            end),
            held(First),
            ask(Pid, state, state),
            casts(Pid, 21, 30),
            Pid ! First,
            Pid ! last,
            Events = [case Event of {state, _} -> state; {cast, N} -> N end || Event <- events({info, last})],
            ?assertEqual(lists:seq(1, 20) ++ [state] ++ lists:seq(21, 30), [E || E <- Events, E =/= slow]),
            stop(Pid)
        end
     || Options <- [[], [{drain, {1000, 1000}}], [{drain, {1, infinity}}]]
    ].

%% ---------------------------------------------------------------- counts

%% The server does not poll the mailbox between callbacks that follow each other at once.
callbacks_without_a_poll_between_are_counted(_) ->
    [
        begin
            Pid = start(weir_server_probe, []),
            gen_server:cast(Pid, {do, start, fun(_, State) -> {noreply, State, {timeout, 0, again(N - 1)}} end}),
            events({info, {again, 0}}),
            ?assertMatch(#{handled := #{calls := 0, casts := 1, infos := N}}, settle(Pid)),
            stop(Pid)
        end
     || N <- [100, 255, 256, 257, 1000]
    ].

again(0) -> {again, 0};
again(N) -> {do, {again, N}, fun(_, State) -> {noreply, State, {timeout, 0, again(N - 1)}} end}.
