"""What the exit codes of the command line mean, beside those of the script that it ran."""

USER_ERROR = 2
"""What the user can put right: an option, a file, a setting."""
INTERRUPTED = 130
"""After Ctrl-C, as shells have it."""
