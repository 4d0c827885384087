%% A node of `make page-test' that is watched by the true agent: a server that cannot keep up, and who calls it. Prints
%% the page's address, and answers each line with one of JSON: what the node itself says of that server.
%%   tell    #{pid, queue, total}: the server, its mailbox, the bytes of all memory
%%   end     the server ends
-module(weir_watch_page_real).

-export([main/0]).

main() ->
    ok = io:setopts([binary]),
    {ok, _} = weir_watch_agent:start_link(),
    {ok, Page} = weir_watch_page:start_link(#{port => 0}),
    Server = spawn(fun bank/0),
    true = register(bank, Server),
    _ = [spawn(fun() -> client(Server) end) || _ <- lists:seq(1, 300)],
    io:put_chars([weir_watch_page:address(Page), $\n]),
    loop(Server).

%% 20 ms a call.
bank() ->
    receive
        {'$gen_call', From, ask} ->
            ok = count(erlang:monotonic_time(millisecond) + 20),
            ok = gen_server:reply(From, ok),
            bank()
    end.

count(Until) ->
    case erlang:monotonic_time(millisecond) < Until of
        true -> count(Until);
        false -> ok
    end.

%% In OTP's call, which is known as one: its mailbox alone is not long enough for somebody in trouble.
client(Server) ->
    try gen_server:call(Server, ask, infinity) of
        ok -> client(Server)
    catch
        exit:_ -> ok
    end.

loop(Server) ->
    case io:get_line("") of
        <<"tell\n">> ->
            Told = #{
                pid => Server, queue => element(2, process_info(Server, message_queue_len)),
                total => erlang:memory(total)
            },
            io:put_chars([weir_watch_json:encode(Told), $\n]),
            loop(Server);
        <<"end\n">> ->
            true = exit(Server, kill),
            io:put_chars("{}\n"),
            loop(Server);
        eof ->
            halt(0)
    end.
