"""The options of `%%accelerate`."""

from notebook_accel.notebook.ipython.magic_options import Option

OPTIONS = (
    Option(flags=("-n", "--num-processes"), value="N", summary="How many ranks; another number starts them anew."),
    Option(flags=("--ranks",), value="RANKS", summary="Only these ranks run the cell: 0,2-3."),
    Option(flags=("--show",), value="RANKS", summary="Whose figures and tables are shown, if not the first rank's."),
    Option(flags=("--as",), value="NAME", summary="Keeps the value of the last expression, a list by rank, as NAME."),
    Option(flags=("--no-block",), summary="Leaves the notebook free while the cell runs; its value is a Job."),
)
