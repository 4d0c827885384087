%% @doc The window: how many entries of one process alog/2 lets wait in a log. It is kept in the process dictionary,
%% under the log's name, and stays there, one small term for each name.
%%
%% ```
%%   Left                          overload => wait      so many entries until one asks to be taken in, and waits
%%   {Writer, TakenIn, Sent}       otherwise             so many were sent to this writer; the word TakenIn says how
%%                                                       many of them, at least, it has taken in
%% '''
%% Who waits at the edge learns there that all before were taken in, so no message is sent for the window alone. Who
%% does not wait cannot be told by a message, which would be left in its mailbox: the writer writes into the word
%% instead, when it takes in an entry that carries it; two of a window do. The word is the process's own, so it is
%% exact. It never falls, and there is a new one for a new writer, which knows nothing of what was sent to the one
%% before.
%% @private
-module(weir_log_window).

-export([take/2, stay/1, take/3, is_full/3, taken_in/1]).

-export_type([count/0]).

-opaque count() :: {atomics:atomics_ref(), pos_integer()}.

%% @doc Counts an entry of a caller that waits at the edge. `edge': it has to wait until the entry is taken in.
-spec take(Key :: term(), Window :: pos_integer()) -> free | edge.
take(Key, Window) ->
    case get(Key) of
        Left when is_integer(Left), Left > 1, Left =< Window ->
            _ = put(Key, Left - 1),
            free;
        Left when not is_integer(Left), Window > 1 ->
            _ = put(Key, Window - 1),
            free;
        _ ->
            _ = put(Key, Window),
            edge
    end.

%% @doc The next entry of a caller that waits at the edge is at the edge too.
-spec stay(Key :: term()) -> ok.
stay(Key) ->
    _ = put(Key, 1),
    ok.

%% @doc Counts an entry of a caller that does not wait, unless the window is full. The count is to be sent with the
%% entry, if there is one.
-spec take(Key :: term(), Window :: pos_integer(), Writer :: pid() | none) -> free | {count, count()} | full.
take(Key, Window, Writer) ->
    case get(Key) of
        {Writer, TakenIn, Sent} ->
            case Sent - atomics:get(TakenIn, 1) < Window of
                true -> sent(Key, Window, Writer, TakenIn, Sent + 1);
                false -> full
            end;
        _ ->
            sent(Key, Window, Writer, atomics:new(1, [{signed, false}]), 1)
    end.

sent(Key, Window, Writer, TakenIn, Sent) ->
    _ = put(Key, {Writer, TakenIn, Sent}),
    case Sent rem max(1, Window div 2) of
        0 -> {count, {TakenIn, Sent}};
        _ -> free
    end.

%% @doc Whether take/3 would find the window full.
-spec is_full(Key :: term(), Window :: pos_integer(), Writer :: pid() | none) -> boolean().
is_full(Key, Window, Writer) ->
    case get(Key) of
        {Writer, TakenIn, Sent} -> Sent - atomics:get(TakenIn, 1) >= Window;
        _ -> false
    end.

%% @doc For the writer: an entry with this count was taken in, and so was all that its process had sent before.
-spec taken_in(count()) -> ok.
taken_in({TakenIn, Sent}) -> atomics:put(TakenIn, 1, Sent).
