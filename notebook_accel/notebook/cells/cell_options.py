"""The options of `%%accelerate`."""

from notebook_accel.notebook.ipython.magic_options import Option

OPTIONS = (
    Option(flags=("-n", "--num-processes"), value="N", summary="The number of ranks; a new number restarts them."),
    Option(flags=("--ranks",), value="RANKS", summary="Only these ranks run the cell: 0,2-3."),
    Option(flags=("--show",), value="RANKS", summary="Ranks whose figures and tables are shown; by default the first."),
    Option(flags=("--as",), value="NAME", summary="Keeps the value of the last expression, a list by rank, as NAME."),
    Option(flags=("--no-block",), summary="Runs the cell in the background; its value is a Job."),
)
