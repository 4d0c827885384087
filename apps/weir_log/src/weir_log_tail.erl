%% @doc What a write that failed has left at the end of a file, and taking it away.
%%
%% A call that fails may have written the first part of the batch: a disk that gets full takes what fits. The batch
%% begins where the file ended before, so that part can be cut off again, which needs no room on the disk. It is
%% certain to be the batch's only if nobody else writes to the file or truncates it.
%% @private
-module(weir_log_tail).

-export([after_failure/3, cut_off/2]).

-include_lib("kernel/include/file.hrl").

%% @doc What is in a file that had `Size' bytes after a batch of `Bytes' bytes failed, and cuts it off.
%% `{ok, Size}': nothing of the batch. `{torn, Size}': perhaps a part of it, behind that position, which could not be
%% cut off. `{unknown, Now}': somebody else has changed the file, which has this many bytes now; nothing was cut.
-spec after_failure(file:fd(), Size :: non_neg_integer(), Bytes :: non_neg_integer()) ->
    {ok | torn | unknown, non_neg_integer()}.
after_failure(Fd, Size, Bytes) ->
    case file:read_file_info(Fd, [raw]) of
        {ok, #file_info{size = Size}} ->
            {ok, Size};
        {ok, #file_info{size = Now}} when Now > Size, Now =< Size + Bytes ->
            case cut_off(Fd, Size) of
                {ok, Size} = Ok -> Ok;
                {error, _} -> {torn, Size}
            end;
        {ok, #file_info{size = Now}} ->
            {unknown, Now};
        {error, _} ->
            {torn, Size}
    end.

%% @doc Cuts off what is behind a position, if there is anything. Gives the size that the file has then.
-spec cut_off(file:fd(), Position :: non_neg_integer()) ->
    {ok, Size :: non_neg_integer()} | {error, file:posix() | badarg | terminated}.
cut_off(Fd, Position) ->
    case file:read_file_info(Fd, [raw]) of
        {ok, #file_info{size = Size}} when Size =< Position -> {ok, Size};
        {ok, _} -> cut(Fd, Position);
        {error, _} = Error -> Error
    end.

cut(Fd, Position) ->
    case file:position(Fd, Position) of
        {ok, Position} ->
            case file:truncate(Fd) of
                ok -> {ok, Position};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.
