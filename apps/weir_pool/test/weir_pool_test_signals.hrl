%% Indexes of the signal words (weir_pool_signals), for cases that need a state which a killed process leaves behind.
-define(SIGNAL_WAKE, 2).
-define(SIGNAL_WAITING, 3).
-define(SIGNAL_OLDEST, 4).
-define(SIGNAL_LONGEST, 5).
-define(SIGNAL_GROW, 6).
-define(SIGNAL_IDLE, 7).
