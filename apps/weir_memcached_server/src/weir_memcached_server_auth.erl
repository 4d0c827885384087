%% @doc Who may use a server: users and passwords, as memcached reads them from the file of its option -Y.
%% @private
-module(weir_memcached_server_auth).

-export([users/1, check/3]).

-export_type([auth/0, users/0]).

-type auth() :: none | {file, file:name_all()} | users().
-type users() :: [{User :: binary(), Password :: binary()}].

%% @doc The users of an option, from the file if it names one: lines of `USER:PASSWORD'.
-spec users(auth()) ->
    {ok, none | users()} | {error, {auth_file, file:name_all(), file:posix() | {malformed, Line :: pos_integer()}}}.
users({file, File}) ->
    case file:read_file(File) of
        {ok, Text} ->
            case lines(binary:split(Text, [<<"\r\n">>, <<"\n">>], [global]), 1, []) of
                {ok, Users} -> {ok, Users};
                {error, Reason} -> {error, {auth_file, File, Reason}}
            end;
        {error, Reason} ->
            {error, {auth_file, File, Reason}}
    end;
users(Users) ->
    {ok, Users}.

lines([], N, []) -> {error, {malformed, N - 1}};
lines([], _N, Users) -> {ok, lists:reverse(Users)};
lines([<<>> | Lines], N, Users) -> lines(Lines, N + 1, Users);
lines([Line | Lines], N, Users) ->
    case binary:split(Line, <<":">>) of
        [User, Password] -> lines(Lines, N + 1, [{User, Password} | Users]);
        [_] -> {error, {malformed, N}}
    end.

%% @doc Whether a user has this password. It takes as long for a wrong one as for a right one of the same length.
-spec check(binary(), binary(), users()) -> boolean().
check(User, Password, Users) ->
    lists:foldl(fun({U, P}, Found) -> (is_same(U, User) band is_same(P, Password)) bor Found end, 0, Users) =:= 1.

is_same(A, B) when byte_size(A) =:= byte_size(B) -> is_same(A, B, 0);
is_same(_, _) -> 0.

is_same(<<A, As/binary>>, <<B, Bs/binary>>, Diff) -> is_same(As, Bs, Diff bor (A bxor B));
is_same(<<>>, <<>>, 0) -> 1;
is_same(<<>>, <<>>, _) -> 0.
