%% @doc Which of the other nodes gets a request for which there is no room here.
%%
%% A policy sees two nodes, drawn at random by their weights from those that are let in, of the same zone if there are
%% such; and says which of them it is to be, or that the request stays. A policy of your own is a module with
%% `choose/2', given by the option `policy' of {@link weir_cluster:start_link/2}. It is called in the caller, for each
%% request that finds no room, and must be pure and quick. If it returns anything else the caller fails with
%% `{bad_choice, Module, Returned}', and nothing was sent.
%%
%% This one takes the lighter of the two (M. Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE
%% TPDS 12(10), 2001), of which one is known, if that can be, and keeps the request when that one is known to be at
%% least as loaded as this node.
-module(weir_cluster_policy).

-export([choose/2]).

-export_type([candidate/0]).

-type candidate() :: #{
    node := node(),
    zone := term(),
    weight := pos_integer(),
    load := number() | unknown
}.
%% `load': calls under way for each worker; `unknown' if nothing was heard for more than a second, or in
%% a cluster of more than twenty nodes for longer than their pings take, which is a second for forty.

-callback choose(Here :: number() | none, [candidate(), ...]) -> node() | here.
%% `Here': calls under way for each worker of this node; `none' if it has none, so that the request cannot stay. The
%% list has one node or two.

%% @doc The lighter.
-spec choose(Here :: number() | none, [candidate(), ...]) -> node() | here.
choose(Here, [#{load := Load} = First | More]) ->
    %% An atom is more than any number, here and below: one of whom nothing is known comes after one who is known. Of
    %% equals it is the one that was drawn first.
    #{node := Node, load := Least} =
        case More of
            [#{load := Less} = Second] when Less < Load -> Second;
            _ -> First
        end,
    case is_number(Least) andalso Least >= Here of
        true -> here;
        false -> Node
    end.
