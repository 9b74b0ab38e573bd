"""`%%accelerate`: runs cells on a group of persistent ranks, which keep their variables from cell to cell.

In the kernel:

    cell_magic.py    ─ the cell magic: runs one cell on the ranks, and shows its value
    cell_options.py  ─ the options on its line
    session.py       ─ this notebook's ranks: started when first needed, restarted, stopped
    persistent.py    ─ one group of ranks: runs one call at a time, and recovers after a failed call
    free_names.py    ─ finds the names that a cell reads
    variable_sync.py ─ sends the notebook's variables that the ranks lack, unless a rank has changed its own
    notices.py       ─ words what is said of ranks, their variables and their settings
    cell_function.py ─ a cell as a function, for a job of its own
    every_cell.py    ─ makes IPython run each cell in this way, without `%%accelerate`

On both sides:

    cell_messages.py ─ the messages that carry a cell to the ranks, and their replies
    fingerprints.py  ─ tells whether a variable's content has changed since it was sent

In a rank, on_rank/:

    worker.py        ─ functions that the kernel calls on a rank
    shell.py         ─ the IPython shell that runs the cells
    names.py         ─ completes and explains names
    kept_names.py    ─ hands variables over to the ranks that replace it
    debugger.py      ─ pdb, with the notebook as its terminal
"""
