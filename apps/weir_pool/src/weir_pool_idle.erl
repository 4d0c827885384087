%% @doc The question whether a process has handled everything that was sent to it, asked without waiting.
%%
%% The question is a system message that asks for statistics. Every OTP behaviour answers it in the order of its
%% mailbox, so the answer means that everything sent before was handled. A process that is no OTP behaviour does not
%% answer, and counts as busy. A dead process does not answer either, so the process that asks also monitors it.
%% @private
-module(weir_pool_idle).

-export([ask/2]).

%% @doc Asks a process. The answer is the message `{{idle, About, Question}, _}' to the calling process.
-spec ask(pid(), About :: term()) -> Question :: reference().
ask(Pid, About) ->
    Question = make_ref(),
    Pid ! {system, {self(), {idle, About, Question}}, {debug, {statistics, get}}},
    Question.
