"""`%accelerate cells on`: from then on, each cell runs on the ranks. All of this runs in the kernel.

    mode.py       ─ turns it on and off: an AST transformer of IPython replaces the code of each cell by a call
    cell_parts.py ─ splits a cell: what runs on the ranks, and the lines that the kernel runs
    rank_names.py ─ completes and explains the names of the ranks: Tab, Shift+Tab

IPython itself stores the cell in its history before the code is replaced, so `In` and `%rerun` have the user's own
text. `ipython/here_cells.py` is `%%here`; `on_rank/names.py` is the part that runs in a rank.
"""
