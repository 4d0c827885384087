%% weir_log_file with a disk that fails when it is told to.
-module(weir_log_h_test_file).

-export([fail/2, reset/0]).
-export([open/1, write/4, sync/1, rotate/2, reopen/1, close/1, info/1]).

%% The next ones fail with the reason, until a reset.
fail(What, Reason) -> persistent_term:put(?MODULE, {What, Reason}).

reset() -> persistent_term:put(?MODULE, none).

open(Options) ->
    case weir_log_file:open(Options) of
        {ok, File} -> {ok, {File, ok}};
        {error, Reason} -> {error, Reason}
    end.

write(_Entries, _Bytes, _NowMs, {_, failed} = File) ->
    {error, {sync_failed, eio}, File};
write(Entries, Bytes, NowMs, {File, _}) ->
    case persistent_term:get(?MODULE) of
        {write, Reason} -> {error, Reason, {File, {degraded, Reason}}};
        _ -> wrap(weir_log_file:write(Entries, Bytes, NowMs, File), ok)
    end.

sync({File, State}) ->
    case persistent_term:get(?MODULE) of
        {sync, Reason} -> {error, {sync_failed, Reason}, {File, failed}};
        _ when State =:= failed -> {error, {sync_failed, eio}, {File, failed}};
        _ -> wrap(weir_log_file:sync(File), State)
    end.

rotate(NowMs, {File, State}) -> wrap(weir_log_file:rotate(NowMs, File), State).

reopen({File, _}) -> wrap(weir_log_file:reopen(File), ok).

close({File, _}) -> weir_log_file:close(File).

info({File, {degraded, Reason}}) -> (weir_log_file:info(File))#{state => degraded, last_error => Reason};
info({File, failed}) -> (weir_log_file:info(File))#{state => failed};
info({File, _}) -> weir_log_file:info(File).

wrap({ok, File}, State) -> {ok, {File, State}};
wrap({error, Reason, File}, State) -> {error, Reason, {File, State}}.
