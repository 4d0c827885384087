%% The forms in which messages come to a weir_server. weir_server_message says what each form means.

%% The label of a call is for gen:call/4.
-define(CALL_LABEL, '$gen_call').
-define(CALL(From, Request), {?CALL_LABEL, From, Request}).
-define(CAST(Request), {'$gen_cast', Request}).

%% A message that weir_flow counts. The server gives the credit of each such message back, once.
-define(CREDIT(Counter, Message), {'$weir_credit', Counter, Message}).
-define(GIVE_BACK(Counter, N), atomics:sub((Counter), 1, (N))).

%% The request of weir_server:with_state/2, and the request of weir_server:info/1 to publish the counts.
-define(WITH_STATE_LABEL, '$weir_with_state').
-define(WITH_STATE(From, Fun), {?WITH_STATE_LABEL, From, Fun}).
-define(PUBLISH_LABEL, '$weir_publish').
-define(PUBLISH_REQUEST(From), {?PUBLISH_LABEL, From, now}).

%% weir_flow's request for an acknowledgement, which is the request of `sys:statistics(Pid, get)'. The server answers
%% when it has handled every message before the request.
-define(ACK_REQUEST(From), {system, From, {debug, {statistics, get}}}).

-define(SYSTEM(From, Request), {system, From, Request}).
-define(EXIT(Pid, Reason), {'EXIT', Pid, Reason}).

%% The message of a timer that the server has started. `Tag' is the server's own reference.
-define(TIMER(Timer, Tag), {timeout, Timer, Tag}).

%% An info for which prioritise_info/3 returned `{bounded, Priority}'. The form exists in the queue only.
-define(BOUNDED(Message), {'$weir_bounded', Message}).
