%% Counts runs over the nodes of several suites, in files of the folder FIXTURE_DIR.
-module(fixture).
-export([count/1]).

%% Returns how often it was called with this name.
count(Name) ->
    File = filename:join(os:getenv("FIXTURE_DIR"), Name),
    ok = file:write_file(File, "x", [append]),
    filelib:file_size(File).
