"""The command line's own exit codes. Otherwise, a launch exits with the code of its script."""

USER_ERROR = 2
"""The user can correct it: an option, a file, a setting."""
INTERRUPTED = 130
"""After Ctrl-C: 128 + SIGINT, the convention of shells."""
DAMAGED = 1
"""`checkpoints verify` has found one that is damaged."""
