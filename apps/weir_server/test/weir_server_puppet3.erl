%% The puppet with format_message_queue/2, whose function the process dictionary may have.
-module(weir_server_puppet3).

-export([format_message_queue/2]).

-include("weir_server_puppet.hrl").

format_message_queue(Opt, Queue) ->
    case get(format_queue) of
        undefined -> {Opt, Queue};
        Fun -> Fun(Opt, Queue)
    end.
