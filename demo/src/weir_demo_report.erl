%% @doc The report of a run: one HTML file that needs no other and no network, light or dark as the reader's system is.
%% Pure.
-module(weir_demo_report).

-export([render/1]).

-export_type([run/0, section/0]).

-type section() :: #{
    title := iodata(),
    hurts := iodata(),
    outcome := weir_demo_part:outcome()
}.

-type run() :: #{
    %% One line.
    verdict := iodata(),
    is_kept := boolean(),
    %% When and on what.
    about := iodata(),
    sections := [section()]
}.

-define(STYLE,
    ":root{color-scheme:light dark;--page:#fbfbfa;--card:#fff;--ink:#1c1e21;--soft:#5b6169;--rule:#dfe1e4;"
    "--weir:#1d63c9;--plain:#c2540a;--other:#0b7a6b;--good:#1a7f37;--bad:#c62828}\n"
    "@media (prefers-color-scheme:dark){:root{--page:#14171b;--card:#1c2026;--ink:#e6e8ea;--soft:#a0a7b0;"
    "--rule:#343a42;--weir:#74aaff;--plain:#ff9d5c;--other:#4fd0ba;--good:#4cc36b;--bad:#ff7b72}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\n"
    "main{max-width:900px;margin:0 auto;padding:24px 16px 48px}\n"
    "h1{font-size:26px;line-height:1.25;margin:0 0 4px}h2{font-size:19px;line-height:1.3;margin:0 0 6px}\n"
    "p{margin:0 0 10px}.soft,.axes{color:var(--soft)}.about{font-size:14px;margin-bottom:20px}\n"
    ".verdict{font-size:18px;font-weight:600;border-left:5px solid var(--good);padding:8px 14px;background:var(--card);"
    "margin:16px 0 8px}.verdict.broken{border-color:var(--bad)}\n"
    "section{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:18px 18px 8px;"
    "margin:0 0 18px}\n"
    "ul{list-style:none;margin:0 0 14px;padding:0}li{padding-left:24px;text-indent:-24px}\n"
    "b.kept{color:var(--good)}b.broken{color:var(--bad)}li b{display:inline-block;width:24px;text-indent:0}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));gap:12px 28px}\n"
    "figure{margin:0 0 14px;min-width:0;max-width:420px}figcaption{font-weight:600;font-size:15px;margin-bottom:4px}\n"
    "svg{display:block;width:100%;height:auto}svg text{font:13px system-ui,sans-serif;fill:var(--ink)}\n"
    ".grid{stroke:var(--rule)}.mark{stroke:var(--soft);stroke-dasharray:3 3}\n"
    "path{fill:none;stroke-width:2;stroke-linejoin:round}\n"
    "path.weir{stroke:var(--weir)}path.plain{stroke:var(--plain)}path.other{stroke:var(--other)}\n"
    "circle.weir,rect.weir{fill:var(--weir)}circle.plain,rect.plain{fill:var(--plain)}"
    "circle.other,rect.other{fill:var(--other)}\n"
    "rect.open{fill-opacity:.25;stroke:var(--plain);stroke-dasharray:4 3}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;margin:0 0 2px}\n"
    ".legend i{display:inline-block;width:14px;height:4px;border-radius:2px;vertical-align:middle;margin-right:6px}\n"
    "i.weir{background:var(--weir)}i.plain{background:var(--plain)}i.other{background:var(--other)}\n"
    ".axes{font-size:13px;margin:2px 0 0}\n"
).

%% @doc The file.
-spec render(run()) -> binary().
render(#{verdict := Verdict, is_kept := IsKept, about := About, sections := Sections}) ->
    Class =
        case IsKept of
            true -> "verdict";
            false -> "verdict broken"
        end,
    unicode:characters_to_binary([
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
        "<title>Weir: one run of the demo</title>\n<style>\n" ?STYLE "</style></head>\n<body><main>\n"
        "<h1>Weir: one run of the demo</h1>\n",
        ["<p class=\"", Class, "\">", escape(Verdict), "</p>\n"],
        ["<p class=\"soft about\">", escape(About), "</p>\n"],
        [section(Section) || Section <- Sections],
        "</main></body></html>\n"
    ]).

section(#{title := Title, hurts := Hurts, outcome := Outcome}) ->
    [
        ["<section><h2>", escape(Title), "</h2>\n<p class=\"soft\">", escape(Hurts), "</p>\n"],
        body(Outcome),
        "</section>\n"
    ].

body(#{said := Said, promises := Promises, plots := Plots}) ->
    [
        ["<p>", escape(Said), "</p>\n<ul>", lists:map(fun promise/1, Promises), "</ul>\n"],
        ["<div class=\"plots\">\n", lists:map(fun weir_demo_plot:render/1, Plots), "</div>\n"]
    ].

promise({What, true}) -> ["<li><b class=\"kept\">&#10003;</b>", escape(What), "</li>\n"];
promise({What, false}) -> ["<li><b class=\"broken\">&#10007;</b>Broken: ", escape(What), "</li>\n"].

escape(Text) -> weir_demo_plot:escape(Text).
