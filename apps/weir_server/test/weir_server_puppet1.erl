%% The puppet with format_status/1, whose function its state may have.
-module(weir_server_puppet1).

-export([format_status/1]).

-include("weir_server_puppet.hrl").

format_status(#{state := #{format := Fun}} = Status) -> Fun(Status);
format_status(Status) -> Status.
