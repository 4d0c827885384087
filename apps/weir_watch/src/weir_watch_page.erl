%% @doc The page: what {@link weir_watch} finds, in a browser, as it happens.
%% ```
%% {ok, _} = application:ensure_all_started(weir_watch).
%% {ok, Page} = weir_watch_page:start_link(#{port => 0}).
%% Address = weir_watch_page:address(Page).
%% '''
%% It only shows: GET and HEAD, and nothing that a browser sends changes anything. It is on the loopback interface
%% unless told otherwise, and elsewhere wants a token with each request that asks for what a node tells. Nothing is
%% loaded from another place, no cookie is set, and on the loopback interface a request must name the host as
%% `localhost' or by its address, so that no website can make a browser read it by a name of its own that leads there.
%%
%% | path | what |
%% |---|---|
%% | `/' | the page |
%% | `/snapshot.json' | the newest snapshot; 503 while there is no agent |
%% | `/history.json' | the numbers of the plots, of up to 5 minutes, the oldest first |
%% | `/metrics' | {@link weir_watch_metrics:text/1}: OpenMetrics for who accepts that, or Prometheus' plain text |
%%
%% The process subscribes to the agent and keeps its last snapshot, and the numbers of 300, in a table that only it
%% writes; OTP's httpd answers requests from that in processes of its own. So a slow browser holds up neither this
%% process nor the agent. Without an agent it asks for one again each second. httpd ends with this process, however it
%% ends, and this process with httpd; what was kept is lost then.
-module(weir_watch_page).
-behaviour(gen_server).

-export([start_link/1, child_spec/1, address/1, stop/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2, code_change/3]).
-export([do/1, response_default_headers/0]).

-export_type([options/0, start_error/0]).

-type options() ::
    #{port => inet:port_number(), ip => inet:ip_address(), token => binary()}
    | [{port, inet:port_number()} | {ip, inet:ip_address()} | {token, binary()}].
%% `port', 8080 unless given, 0 for any that is free; `ip', `{127,0,0,1}' unless given, the address to listen at;
%% `token', none unless given, what a request must have as `?token=' or as `Authorization: Bearer', of 16 letters,
%% digits, `-', `.', `_' and `~' at least. An address that is not a loopback one needs a token. What a supervisor
%% reports of a page that fails has its options, the token among them.

-type start_error() ::
    {bad_option, term(), term()}
    | {no_inets, Remedy :: binary()}
    | {listen, inet:posix()}
    | {httpd, term()}
    | {already_started, pid()}.
%% `bad_option' has the option and its value; of a token, what is wrong with it instead. `no_inets': OTP's application
%% inets is not there. `httpd': it did not start, and has logged why.

%% The points of the history. The agent gives one a second.
-define(KEPT, 300).
-define(KEPT_MS, ?KEPT * 1000).
%% The suspects of a point. The plots have 6 lines, and whose line it is need not be among the first 6 all the time.
-define(DRAWN, 10).
%% How long the address may be in use until the start fails: the httpd of a page that was killed ends a moment later.
-define(TRIES, 20).
-define(TRY_MS, 100).
-define(RETRY_MS, 1000).
%% How long httpd has to end, and it and its socket together: less than this process has.
-define(STOP_MS, 3000).
-define(END_MS, 4500).

-record(state, {
    table :: ets:table(),
    httpd :: pid(),
    ip :: inet:ip_address(),
    port :: inet:port_number(),
    agent :: reference() | undefined,
    points = 0 :: non_neg_integer()
}).

%% The record of httpd's callback modules, as inets/include/httpd.hrl has it: whoever compiles this may lack inets.
-record(mod, {
    init_data :: term(),
    data :: term(),
    socket_type :: term(),
    socket :: term(),
    config_db :: ets:table(),
    method :: string(),
    absolute_uri :: term(),
    request_uri :: string(),
    http_version :: term(),
    request_line :: term(),
    parsed_header :: [{string(), string()}],
    entity_body :: term(),
    connection :: term()
}).

%% @doc Starts the page, linked to the caller and registered as `weir_watch_page'.
-spec start_link(options()) -> {ok, pid()} | {error, start_error()}.
start_link(Options) ->
    case check(Options) of
        {ok, Checked} -> gen_server:start_link({local, ?MODULE}, ?MODULE, Checked, []);
        {error, _} = Error -> Error
    end.

%% @doc The page as a child of a supervisor.
-spec child_spec(options()) -> supervisor:child_spec().
child_spec(Options) -> #{id => ?MODULE, start => {?MODULE, start_link, [Options]}}.

%% @doc The page's address, such as `<<"http://127.0.0.1:8080/">>', without the token.
-spec address(pid() | atom()) -> binary().
address(Page) -> gen_server:call(Page, address).

%% @doc Ends the page. Its port is free when this returns.
-spec stop(pid() | atom()) -> ok.
stop(Page) -> gen_server:stop(Page).

%% Options

check(Options) when is_map(Options) ->
    Known = #{
        port => fun(Port) -> is_integer(Port) andalso Port >= 0 andalso Port =< 65535 end,
        ip => fun(Ip) -> is_tuple(Ip) andalso inet:ntoa(Ip) =/= {error, einval} end,
        token => fun is_token/1
    },
    Wrong = fun({Key, Value}) ->
        case Known of
            #{Key := Is} -> not Is(Value);
            #{} -> true
        end
    end,
    All = maps:merge(#{port => 8080, ip => {127, 0, 0, 1}}, Options),
    case lists:filter(Wrong, lists:sort(maps:to_list(All))) of
        [] -> guarded(All);
        %% No token is printed with an error.
        [{token, _} | _] -> {error, {bad_option, token, <<"at least 16 of a-z, A-Z, 0-9, - . _ ~ in a binary">>}};
        [{Key, Value} | _] -> {error, {bad_option, Key, Value}}
    end;
check(Options) ->
    %% The first of a key counts, as in proplists and keywords.
    try maps:from_list(lists:reverse(Options)) of
        Map -> check(Map)
    catch
        error:_ -> {error, {bad_option, options, Options}}
    end.

guarded(#{ip := Ip} = Options) ->
    case is_loopback(Ip) orelse is_map_key(token, Options) of
        true -> with_inets(Options);
        false -> {error, {bad_option, token, <<"missing: an address that is not a loopback one needs a token">>}}
    end.

with_inets(Options) ->
    case code:ensure_loaded(inets) of
        {module, inets} ->
            {ok, Options};
        {error, _} ->
            {error, {no_inets, <<"the page needs OTP's inets: add it to the release, or install erlang-inets">>}}
    end.

is_token(Token) ->
    is_binary(Token) andalso byte_size(Token) >= 16 andalso
        re:run(Token, "^[A-Za-z0-9._~-]+$", [dollar_endonly, {capture, none}]) =:= match.

is_loopback({127, _, _, _}) -> true;
is_loopback(Ip) -> Ip =:= {0, 0, 0, 0, 0, 0, 0, 1}.

%% The process

%% @private
-spec init(map()) -> {ok, #state{}} | {stop, term()}.
init(#{ip := Ip, port := Wanted} = Options) ->
    process_flag(trap_exit, true),
    Table = ets:new(?MODULE, [protected, {read_concurrency, true}]),
    true = ets:insert(Table, [{loopback, is_loopback(Ip)}, {token, maps:get(token, Options, none)} | files()]),
    case start_httpd(Ip, Wanted, Table, ?TRIES) of
        {ok, Httpd, Port} ->
            {ok, subscribe(#state{table = Table, httpd = Httpd, ip = Ip, port = Port})};
        {error, Reason} ->
            {stop, Reason}
    end.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, binary() | {error, {bad_call, term()}}, #state{}}.
handle_call(address, _From, #state{ip = Ip, port = Port} = State) -> {reply, address(Ip, Port), State};
handle_call(Request, _From, State) -> {reply, {error, {bad_call, Request}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {noreply, #state{}, hibernate} | {stop, term(), #state{}}.
handle_info({weir_watch, Agent, #{at := At} = Snapshot}, #state{table = Table, points = Points} = State) ->
    true = ets:insert(Table, [{snapshot, Snapshot}, {{point, Points rem ?KEPT}, At, point(Snapshot)}]),
    ok = weir_watch_agent:next(Agent),
    %% A snapshot may be large, and the next is a second away.
    {noreply, State#state{points = Points + 1}, hibernate};
handle_info({'DOWN', Agent, process, _, _}, #state{table = Table, agent = Agent} = State) ->
    true = ets:delete(Table, snapshot),
    {noreply, subscribe(State#state{agent = undefined})};
handle_info(subscribe, #state{agent = undefined} = State) ->
    {noreply, subscribe(State)};
handle_info({'EXIT', Httpd, Reason}, #state{httpd = Httpd} = State) ->
    {stop, {httpd, Reason}, State};
handle_info(_, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{httpd = Httpd, ip = Ip, port = Port}) ->
    Begin = erlang:monotonic_time(millisecond),
    Monitor = monitor(process, Httpd),
    exit(Httpd, shutdown),
    receive
        {'DOWN', Monitor, process, _, _} ->
            %% The runtime closes the socket of a process that has ended a moment later; on a busy machine that is long.
            Left = ?END_MS - (erlang:monotonic_time(millisecond) - Begin),
            _ = free_port(Ip, Port, Left div ?TRY_MS),
            ok
    after ?STOP_MS ->
        true = exit(Httpd, kill),
        ok
    end.

%% @private With another version come other files.
-spec code_change(term(), #state{}, term()) -> {ok, #state{}}.
code_change(_OldVsn, #state{table = Table} = State, _Extra) ->
    true = ets:insert(Table, files()),
    {ok, State}.

subscribe(State) ->
    case whereis(weir_watch_agent) of
        undefined ->
            _ = erlang:send_after(?RETRY_MS, self(), subscribe),
            State;
        Agent ->
            ok = weir_watch_agent:subscribe(Agent),
            State#state{agent = monitor(process, Agent)}
    end.

%% What the plots draw of a snapshot.
point(#{suspects := Suspects} = Snapshot) ->
    First = lists:sublist(Suspects, ?DRAWN),
    Drawn = [maps:with([pid, name, label, module, queue, growth, reductions], Suspect) || Suspect <- First],
    Plain = maps:with([at, run_queue, schedulers, memory, input, output], Snapshot),
    Plain#{suspects => Drawn}.

%% httpd

start_httpd(Ip, Wanted, Table, Tries) ->
    case free_port(Ip, Wanted, ?TRIES) of
        {ok, Port} ->
            case inets:start(httpd, config(Ip, Port, Table), stand_alone) of
                {ok, Httpd} ->
                    %% It has logged what its child failed of.
                    case supervisor:which_children(Httpd) of
                        [_] -> {ok, Httpd, Port};
                        [] -> {error, {httpd, not_started}}
                    end;
                %% Another program may have taken the port since it was found.
                {error, _} when Wanted =:= 0, Tries > 0 ->
                    start_httpd(Ip, Wanted, Table, Tries - 1);
                {error, Reason} ->
                    {error, {httpd, Reason}}
            end;
        {error, Reason} ->
            {error, {listen, Reason}}
    end.

%% httpd does not tell the port that it has found, and fails with many words.
free_port(Ip, Wanted, Tries) ->
    case gen_tcp:listen(Wanted, [{ip, Ip}, {reuseaddr, true}, family(Ip)]) of
        {ok, Listener} ->
            Port = inet:port(Listener),
            ok = gen_tcp:close(Listener),
            Port;
        {error, eaddrinuse} when Tries > 0 ->
            timer:sleep(?TRY_MS),
            free_port(Ip, Wanted, Tries - 1);
        Error ->
            Error
    end.

family(Ip) when tuple_size(Ip) =:= 4 -> inet;
family(_) -> inet6.

config(Ip, Port, Table) ->
    Folder = priv(),
    [
        {?MODULE, Table},
        {bind_address, Ip},
        {ipfamily, family(Ip)},
        {port, Port},
        {modules, [?MODULE]},
        {customize, ?MODULE},
        {server_name, "weir_watch"},
        {server_tokens, none},
        %% These two must be there; no module that serves files is.
        {server_root, Folder},
        {document_root, Folder},
        {max_clients, 50},
        {keep_alive_timeout, 10},
        {max_uri_size, 2000},
        {max_body_size, 1000}
    ].

address(Ip, Port) ->
    {ok, Name} = inet:gethostname(),
    Host =
        case inet:ntoa(Ip) of
            Any when Any =:= "0.0.0.0"; Any =:= "::" -> Name;
            Text when tuple_size(Ip) =:= 4 -> Text;
            Text -> "[" ++ Text ++ "]"
        end,
    iolist_to_binary(io_lib:format("http://~s:~b/", [Host, Port])).

priv() ->
    case code:priv_dir(weir_watch) of
        {error, bad_name} -> filename:join(filename:dirname(filename:dirname(code:which(?MODULE))), "priv");
        Folder -> Folder
    end.

%% What is the same for everybody, and needs no token.
files() ->
    Folder = priv(),
    [
        begin
            {ok, Content} = file:read_file(filename:join(Folder, File)),
            {{file, Path}, Type, Content}
        end
     || {Path, File, Type} <- [
            {"/", "page.html", "text/html; charset=utf-8"},
            {"/page.js", "page.js", "text/javascript; charset=utf-8"},
            {"/page.css", "page.css", "text/css; charset=utf-8"},
            {"/icon.svg", "icon.svg", "image/svg+xml"},
            {"/uPlot.iife.min.js", "uPlot.iife.min.js", "text/javascript; charset=utf-8"},
            {"/uPlot.min.css", "uPlot.min.css", "text/css; charset=utf-8"},
            {"/uPlot.LICENSE", "uPlot.LICENSE", "text/plain; charset=utf-8"}
        ]
    ].

%% @private httpd's: the headers of every answer, its own refusals too.
-spec response_default_headers() -> [{string(), string()}].
response_default_headers() ->
    [
        {"Content-Security-Policy",
            "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cache-Control", "no-store"}
    ].

%% @private httpd's: answers a request, in a process of httpd's.
-spec do(#mod{}) -> {break, [{response, {response, list(), iodata()}}]}.
do(#mod{config_db = Config, method = Method, request_uri = Uri, parsed_header = Headers}) ->
    [{?MODULE, Table}] = ets:lookup(Config, ?MODULE),
    [Path | Query] = string:split(Uri, "?"),
    {Code, More, Body} = answer(Method, Path, Query, Headers, Table),
    Head = [{code, Code}, {content_length, integer_to_list(iolist_size(Body))} | More],
    {break, [{response, {response, Head, [Body || Method =/= "HEAD"]}}]}.

answer(Method, Path, Query, Headers, Table) when Method =:= "GET"; Method =:= "HEAD" ->
    Asked = {is_host(Headers, Table), lists:member(Path, ["/", "/snapshot.json", "/history.json", "/metrics"])},
    case Asked of
        {false, _} -> plain(403, "Open this page as localhost, or by the address that it listens at.\n");
        {true, false} -> static(Path, Table);
        {true, true} ->
            case is_allowed(Query, Headers, Table) of
                true -> content(Path, Headers, Table);
                false -> refused()
            end
    end;
answer(_, _, _, _, _) ->
    {Code, Head, Body} = plain(405, "GET and HEAD only.\n"),
    {Code, [{allow, "GET, HEAD"} | Head], Body}.

content("/", _Headers, Table) ->
    static("/", Table);
content("/snapshot.json", _Headers, Table) ->
    case ets:lookup(Table, snapshot) of
        [{snapshot, Snapshot}] -> json(200, Snapshot);
        [] -> json(503, #{error => <<"no agent">>})
    end;
content("/history.json", _Headers, Table) ->
    Points = lists:sort(ets:select(Table, [{{{point, '_'}, '$1', '$2'}, [], [{{'$1', '$2'}}]}])),
    {Newest, _} = lists:last([{0, none} | Points]),
    json(200, [Point || {At, Point} <- Points, At > Newest - ?KEPT_MS]);
content("/metrics", Headers, _Table) ->
    Accepted = [string:find(Accept, "application/openmetrics-text") || {"accept", Accept} <- Headers],
    Format =
        case lists:all(fun(Found) -> Found =:= nomatch end, Accepted) of
            true -> plain;
            false -> openmetrics
        end,
    {200, [{content_type, weir_watch_metrics:content_type(Format)}], weir_watch_metrics:text(Format)}.

static(Path, Table) ->
    case ets:lookup(Table, {file, Path}) of
        [{_, Type, Content}] -> {200, [{content_type, Type}], Content};
        [] -> plain(404, "There is no such page.\n")
    end.

json(Code, Term) -> {Code, [{content_type, "application/json"}], weir_watch_json:encode(Term)}.

plain(Code, Text) -> {Code, [{content_type, "text/plain; charset=utf-8"}], Text}.

refused() ->
    Remedy = "This page wants its token: /?token=TOKEN, or the header Authorization: Bearer TOKEN\n",
    {Code, Head, Body} = plain(401, Remedy),
    {Code, [{"www-authenticate", "Bearer"} | Head], Body}.

%% By another name a website may lead a browser here, and read what it gets as its own.
is_host(Headers, Table) ->
    ets:lookup_element(Table, loopback, 2) =:= false orelse
        case [Host || {"host", Host} <- Headers] of
            [Host] -> is_local(string:lowercase(Host));
            _ -> false
        end.

is_local("[::1]" ++ _) ->
    true;
is_local(Host) ->
    [Name | _] = string:split(Host, ":"),
    Name =:= "localhost" orelse
        case inet:parse_ipv4strict_address(Name) of
            {ok, Ip} -> is_loopback(Ip);
            {error, einval} -> false
        end.

is_allowed(Query, Headers, Table) ->
    case ets:lookup_element(Table, token, 2) of
        none -> true;
        Token -> lists:any(fun(Given) -> is_same(Given, Token) end, given(Query, Headers))
    end.

given(Query, Headers) ->
    Bearers = [string:trim(Given) || {"authorization", [_, _, _, _, _, _, $\s | Given] = Text} <- Headers,
        string:lowercase(lists:sublist(Text, 7)) =:= "bearer "],
    Pairs =
        case [uri_string:dissect_query(Text) || Text <- Query] of
            [List] when is_list(List) -> List;
            _ -> []
        end,
    [unicode:characters_to_binary(Given) || Given <- Bearers ++ [Value || {"token", Value} <- Pairs, is_list(Value)]].

%% Takes as long whatever the first byte is that differs.
is_same(Given, Token) ->
    Size = byte_size(Token),
    Padded = binary:part(<<Given/binary, 0:Size/unit:8>>, 0, Size),
    Pairs = lists:zip(binary_to_list(Padded), binary_to_list(Token)),
    0 =:= lists:foldl(fun({A, B}, Differs) -> Differs bor (A bxor B) end, byte_size(Given) bxor Size, Pairs).
