%% @doc What the processes of the part {@link weir_demo_log} log, and the account of what is in a file afterwards. Pure.
%%
%% Each process numbers its lines from 1, and each line has a digest of its own, so a line that is missing, came twice,
%% is out of order, or consists of parts of two shows.
-module(weir_demo_log_lines).

-export([text/2, new/0, add/2, add_lines/2, missing/2]).

-export_type([account/0]).

-define(FORM, "process (\\d+) line (\\d+) digest ([0-9a-f]{32})$").

-type account() :: #{
    %% Right lines.
    found := non_neg_integer(),
    %% The last number of each process.
    last := #{pos_integer() => pos_integer()},
    %% Numbers left out by what came after them.
    skipped := non_neg_integer(),
    %% Lines whose digest is another's, or whose number is not above the one before.
    wrong := non_neg_integer(),
    %% Lines that are none of these: a logger's own, or broken ones.
    others := non_neg_integer(),
    form := term()
}.

%% @doc A line, without what ends it: at most 80 bytes, from number 1 on.
-spec text(Process :: pos_integer(), Number :: pos_integer()) -> binary().
text(Process, Number) ->
    iolist_to_binary(io_lib:format("process ~b line ~b digest ~s", [Process, Number, digest(Process, Number)])).

digest(Process, Number) ->
    <<Bits:128>> = erlang:md5(<<Process:32, Number:32>>),
    io_lib:format("~32.16.0b", [Bits]).

%% @doc The account of an empty file.
-spec new() -> account().
new() ->
    {ok, Form} = re:compile(?FORM),
    #{found => 0, last => #{}, skipped => 0, wrong => 0, others => 0, form => Form}.

%% @doc Takes a line into account, in the order of the file. What stands in front of the text does not matter.
-spec add(binary(), account()) -> account().
add(Line, #{form := Form, others := Others} = Account) ->
    case re:run(Line, Form, [{capture, all_but_first, binary}]) of
        {match, [Process, Number, Digest]} ->
            judge(binary_to_integer(Process), binary_to_integer(Number), Digest, Account);
        nomatch ->
            Account#{others := Others + 1}
    end.

judge(Process, Number, Digest, #{found := Found, last := Last, skipped := Skipped, wrong := Wrong} = Account) ->
    Step = Number - maps:get(Process, Last, 0),
    case iolist_to_binary(digest(Process, Number)) of
        Digest when Step > 0 ->
            Account#{found := Found + 1, last := Last#{Process => Number}, skipped := Skipped + Step - 1};
        _ ->
            Account#{wrong := Wrong + 1}
    end.

%% @doc Takes bytes of many lines into account, and gives what is behind the end of the last one.
-spec add_lines(binary(), account()) -> {account(), Rest :: binary()}.
add_lines(Bytes, Account) ->
    case binary:split(Bytes, <<"\n">>) of
        [Line, More] -> add_lines(More, add(Line, Account));
        [Rest] -> {Account, Rest}
    end.

%% @doc How many lines are missing, if each process has been told that all up to a number are there.
-spec missing(Told :: #{pos_integer() => pos_integer()}, account()) -> non_neg_integer().
missing(Told, #{last := Last, skipped := Skipped}) ->
    Skipped + lists:sum([max(0, Number - maps:get(Process, Last, 0)) || {Process, Number} <- maps:to_list(Told)]).
