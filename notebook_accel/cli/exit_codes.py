"""The exit codes of the command line's own. A launch otherwise exits with that of the script it ran."""

USER_ERROR = 2
"""The user can correct it: an option, a file, a setting."""
INTERRUPTED = 130
"""After Ctrl-C: 128 + SIGINT, the convention of shells."""
