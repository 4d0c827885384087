%% The probe with priorities for casts alone.
-module(weir_server_probe_prio_casts).

-export([prioritise_cast/3]).

-include("weir_server_probe.hrl").

prioritise_cast({p, Priority, _}, _Waiting, _State) -> Priority;
prioritise_cast(_Request, _Waiting, _State) -> 0.
