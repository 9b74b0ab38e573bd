"""The command line's own exit codes. Otherwise, a launch exits with the code of its script."""

USER_ERROR = 2
"""The user can correct it: an option, a file, a setting."""
INTERRUPTED = 130
"""After Ctrl-C: 128 + SIGINT, the convention of shells."""
DAMAGED = 1
"""`checkpoints verify` has found one that is damaged."""
NOT_REACHED = 1
"""`wait` ended because the job had failed, was stopped, or ended without reaching the condition."""
STALLED = 3
"""`wait` ended because the job is stalled."""
TIMED_OUT = 124
"""The time of `wait`, or that of `launch --timeout`, was up, as of `timeout` of the GNU core utilities."""
