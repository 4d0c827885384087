%% The puppet with format_status/2, whose function its state may have.
-module(weir_server_puppet2).

-export([format_status/2]).

-include("weir_server_puppet.hrl").

format_status(Opt, [_PDict, #{format := Fun} = State]) -> Fun(Opt, State);
format_status(_Opt, [_PDict, State]) -> [{data, [{"Shown state", State}]}].
