%% @doc Makes bytes of an event by the handler's formatter, whatever the formatter does.
%%
%% A formatter that fails, or gives what is no text, is no reason to lose the event, and none to take the caller down:
%% the event is formatted by logger_formatter instead, with a line in front that says so. Should that fail too, because
%% of a report callback for instance, the event is written as a term.
%%
%% So is an event that is logged while an event is formatted, by the formatter or by a report callback: formatted by
%% these, it might lead to another one, and so on without end. That a process is formatting is in its dictionary.
%%
%% Of a framed log an entry has at most 16 MB: of what is longer the rest is cut off, and it ends with `...'.
%% @private
-module(weir_log_h_format).

-export([entry/2, lost/1]).

-define(DEFAULT, {logger_formatter, #{}}).

-define(CUT, "...").

%% The key in the process dictionary, there while the process formats.
-define(FORMATTING, '$weir_log_h_formatting').

%% @doc The bytes of an event. Cost: the formatter's, and one copy.
-spec entry(logger:log_event(), logger:handler_config()) -> binary().
entry(Event, Config) -> cut(whole(Event, Config), Config).

whole(Event, Config) ->
    case put(?FORMATTING, true) of
        undefined ->
            %% Nothing that is called here raises.
            Entry = formatted(Event, Config),
            _ = erase(?FORMATTING),
            Entry;
        true ->
            raw(Event)
    end.

cut(Entry, #{config := #{frame := true}}) ->
    case weir_log_client:max_framed() of
        Most when byte_size(Entry) =< Most -> Entry;
        Most -> <<(characters(binary:part(Entry, 0, Most - length(?CUT))))/binary, ?CUT>>
    end;
cut(Entry, _Config) ->
    Entry.

%% Without a part of one at the end.
characters(Text) ->
    case unicode:characters_to_binary(Text) of
        {incomplete, Characters, _Part} -> Characters;
        Characters -> Characters
    end.

%% @doc The entry of a handler's log about what is not in it. For the option `tell' of weir_log; called by the writer,
%% which has the handler's manager among its ancestors.
-spec lost(weir_log:loss()) -> binary().
lost(Loss) ->
    [Id] = [Id || Ancestor <- get('$ancestors'), {ok, Id} <- [weir_log_h:id(Ancestor)]],
    Config =
        case logger:get_handler_config(Id) of
            {ok, Found} -> Found;
            {error, _} -> #{}
        end,
    Meta = #{pid => self(), gl => group_leader(), time => logger:timestamp()},
    entry(#{level => warning, msg => {string, weir_log_drops:text(Loss)}, meta => Meta}, Config).

formatted(Event, Config) ->
    {Formatter, FormatterConfig} = maps:get(formatter, Config, ?DEFAULT),
    case format(Formatter, with_report_cb(Event), FormatterConfig) of
        {ok, Entry} -> Entry;
        {error, Reason} -> instead(Event, Formatter, Reason)
    end.

%% As logger's own handlers do: a report that does not say how it is to be shown is shown as OTP's are.
with_report_cb(#{msg := {report, _}, meta := #{report_cb := _}} = Event) -> Event;
with_report_cb(#{msg := {report, _}, meta := Meta} = Event) ->
    Event#{meta => Meta#{report_cb => fun logger:format_otp_report/1}};
with_report_cb(Event) -> Event.

format(Formatter, Event, FormatterConfig) ->
    try unicode:characters_to_binary(Formatter:format(Event, FormatterConfig)) of
        Entry when is_binary(Entry) -> {ok, Entry};
        _ -> {error, no_text}
    catch
        Class:Reason -> {error, {Class, Reason}}
    end.

instead(Event, Formatter, Reason) ->
    {DefaultFormatter, DefaultConfig} = ?DEFAULT,
    Head = io_lib:format("the formatter ~tp failed with ~0tP on the event that follows", [Formatter, Reason, 20]),
    Formatted =
        case Formatter of
            DefaultFormatter -> {error, Reason};
            _ -> format(DefaultFormatter, with_report_cb(Event), DefaultConfig)
        end,
    iolist_to_binary([
        plain(Event, {string, Head}),
        case Formatted of
            {ok, Entry} -> Entry;
            {error, _} -> raw(Event)
        end
    ]).

raw(#{msg := Msg} = Event) -> plain(Event, {"~0tp", [Msg]}).

%% Another message with what no formatter of a user's takes part in.
plain(#{level := Level, meta := Meta}, Msg) ->
    {DefaultFormatter, DefaultConfig} = ?DEFAULT,
    Plain = #{level => Level, msg => Msg, meta => maps:with([time, pid, gl], Meta)},
    case format(DefaultFormatter, Plain, DefaultConfig) of
        {ok, Entry} -> Entry;
        {error, _} -> <<"an event could not be formatted\n">>
    end.
