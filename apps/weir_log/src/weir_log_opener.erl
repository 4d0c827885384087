%% @doc Opens a log when its writers are there, and closes it before they go.
%%
%% To close: the main term is erased, so that new entries are refused; then each writer is asked to close its file, a
%% request that waits behind every entry sent before it, so that these are written, synced and answered. All writers are
%% asked before the first answer is waited for.
%%
%% A crash or a kill of the opener leaves the log open, and the next opener leaves it as it is: its options may have
%% been changed. If the whole log is killed the registry erases the terms, and what the writers had not written is
%% lost, as after a kill of a writer. An entry of a caller that had read the main term just before it was erased may
%% come after the request to close: it is refused with `{error, no_log}', and counted if nobody waits for the answer.
%% @private
-module(weir_log_opener).
-behaviour(gen_server).

-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include("weir_log.hrl").

%% @doc Starts the opener of a log, and with that opens the log.
-spec start_link(#log{}) -> {ok, pid()} | {error, term()}.
start_link(Log) ->
    case weir_log_start:start(fun() -> gen_server:start_link(?MODULE, Log, []) end) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec init(#log{}) -> {ok, #log{}}.
init(#log{name = Name, id = Id} = Log) ->
    _ = process_flag(trap_exit, true),
    _ = weir_log_terms:is_open(Name, Id) orelse (ok = weir_log_registry:open(Log)),
    {ok, Log}.

%% @private
-spec handle_call(term(), gen_server:from(), #log{}) -> {reply, {error, {bad_call, term()}}, #log{}}.
handle_call(Request, _From, Log) -> {reply, {error, {bad_call, Request}}, Log}.

%% @private
-spec handle_cast(term(), #log{}) -> {noreply, #log{}}.
handle_cast(_Stray, Log) -> {noreply, Log}.

%% @private
-spec handle_info(term(), #log{}) -> {noreply, #log{}}.
handle_info(_Stray, Log) -> {noreply, Log}.

%% @private
-spec terminate(term(), #log{}) -> ok.
terminate(_Reason, #log{name = Name, id = Id} = Log) ->
    _ =
        try
            weir_log_registry:close(Name, Id)
        catch
            exit:_ -> weir_log_terms:close(Name, Id)
        end,
    Requests = [gen_server:send_request(Writer, close) || Writer <- weir_log_terms:writers(Log), is_pid(Writer)],
    lists:foreach(fun(Request) -> gen_server:receive_response(Request, infinity) end, Requests).
