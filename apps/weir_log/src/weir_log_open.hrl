%% Wherever that leads to, it is others' too.
-define(STANDARD_OUTPUT, <<"/dev/stdout">>).

%% A log's file that was just opened.
-record(opened, {
    fd :: file:fd(),
    identity :: weir_log_open:identity(),
    size :: non_neg_integer(),
    %% When it was last written to, system time.
    written_ms :: integer(),
    %% Of a torn tail.
    cut_bytes :: non_neg_integer(),
    %% Whether it is not to be rotated, cut or looked at.
    stream :: boolean(),
    %% How many incomplete lines got a newline.
    ended_lines = 0 :: 0 | 1,
    %% How many files were damaged and have got another name.
    set_aside = 0 :: 0 | 1,
    %% The newest rotated file.
    last :: weir_log_rotation:stamp() | none
}).
