%% Native code that does not come back for a while, compiled when it is first needed. It keeps its scheduler, as a NIF
%% should not.
-module(weir_watch_form_nif).

-export([load/0, block/1]).

-define(SOURCE, "
#include <unistd.h>
#include <erl_nif.h>

static ERL_NIF_TERM block(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    unsigned ms;
    (void)argc;
    if (!enif_get_uint(env, argv[0], &ms)) return enif_make_badarg(env);
    usleep(1000 * ms);
    return argv[0];
}

static ErlNifFunc functions[] = {{\"block\", 1, block, 0}};
ERL_NIF_INIT(weir_watch_form_nif, functions, NULL, NULL, NULL, NULL)
").

load() ->
    File = filename:join(filename:basedir(user_cache, "weir_watch"), "form_nif" ++ os:getpid()),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File ++ ".c", ?SOURCE),
    Include = filename:join([code:root_dir(), "usr", "include"]),
    "" = os:cmd("cc -shared -fPIC -I" ++ Include ++ " -o " ++ File ++ ".so " ++ File ++ ".c"),
    ok = erlang:load_nif(File, none),
    [ok = file:delete(File ++ Extension) || Extension <- [".c", ".so"]],
    ok.

block(_Ms) -> erlang:nif_error(not_loaded).
