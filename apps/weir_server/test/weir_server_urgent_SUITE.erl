%% Priority messages, which OTP has from 28 on, do not wait behind what was drained.
-module(weir_server_urgent_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    case list_to_integer(erlang:system_info(otp_release)) of
        Release when Release >= 28 -> Config;
        _ -> {skip, "OTP has no priority messages before 28"}
    end.

end_per_suite(_Config) -> ok.

%% The server drains 1,000 messages; the first of them waits until something urgent is in the mailbox.
ahead_of_the_drained(_Config) -> urgent([urgent], fun(_Pid) -> ok end).

many_in_order(_Config) -> urgent([a, b, c, d], fun(_Pid) -> ok end).

%% One that is ahead of all drained messages itself.
with_a_system_message(_Config) ->
    urgent([a, b], fun(Pid) -> Pid ! {system, {self(), status}, get_state} end),
    receive
        {status, _} -> ok
    end.

urgent(Messages, Besides) ->
    {ok, Pid} = weir_server:start(?MODULE, self(), #{drain => 1000}),
    Alias = weir_server:call(Pid, alias, weir_kit:wait_ms()),
    First = hold(Pid),
    Second = make_ref(),
    gen_server:cast(Pid, {hold, self(), Second}),
    [gen_server:cast(Pid, N) || N <- lists:seq(1, 100)],
    release(Pid, First),
    receive
        {held, Second} -> ok
    end,
    %% All are drained by now, and wait behind this one.
    ?assertEqual({message_queue_len, 0}, process_info(Pid, message_queue_len)),
    gen_server:cast(Pid, late),
    Besides(Pid),
    [send_urgent(Alias, Message) || Message <- Messages],
    release(Pid, Second),
    Seen = weir_server:call(Pid, seen, weir_kit:wait_ms()),
    {Before, Rest} = lists:splitwith(fun is_integer/1, Seen),
    %% It looks every 16 callbacks, of which these were some.
    ?assert(length(Before) =< 16),
    ?assertEqual(Messages, lists:sublist(Rest, length(Messages))),
    ?assertEqual(lists:seq(1, 100) ++ [late], Before ++ lists:nthtail(length(Messages), Rest)),
    #{handled := #{infos := Infos, casts := 103}} = weir_server_loop_lib:settle(Pid),
    ?assertEqual(length(Messages), Infos),
    ok = weir_server:stop(Pid).

%% Older compilers need not know of the option.
send_urgent(Alias, Message) -> apply(erlang, send, [Alias, Message, [priority]]).

hold(Pid) ->
    Ref = make_ref(),
    gen_server:cast(Pid, {hold, self(), Ref}),
    receive
        {held, Ref} -> Ref
    end.

release(Pid, Ref) -> Pid ! {release, Ref}.

init(_) -> {ok, []}.

handle_call(alias, _From, Seen) -> {reply, apply(erlang, alias, [[priority]]), Seen};
handle_call(seen, _From, Seen) -> {reply, lists:reverse(Seen), Seen}.

handle_cast({hold, Pid, Ref}, Seen) ->
    Pid ! {held, Ref},
    receive
        {release, Ref} -> {noreply, Seen}
    end;
handle_cast(Message, Seen) ->
    {noreply, [Message | Seen]}.

handle_info(Message, Seen) -> {noreply, [Message | Seen]}.
