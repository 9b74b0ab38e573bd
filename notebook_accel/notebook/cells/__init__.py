"""`%%accelerate`: runs cells on a group of persistent ranks, which keep their variables from cell to cell.

In the kernel:

    cell_magic.py    ─ the cell magic: runs one cell on the ranks, and shows its value
    cell_options.py  ─ the options on its line; rank_selection.py: the syntax for selecting ranks
    session.py       ─ this notebook's ranks: started when first needed, restarted, stopped
    persistent.py    ─ one group of ranks: runs one call at a time, and recovers after a failed call
    rank_losses.py   ─ words what is said of ranks that are stuck or have ended
    free_names.py    ─ finds the names that a cell reads
    variables.py     ─ finds the notebook's variables that the ranks lack, and pickles them
    known_variables.py   ─ what one rank has of them
    variable_transfer.py ─ sends them to the ranks, unless a rank has changed its own
    variable_notices.py ─ words what is said of variables
    changed_settings.py ─ compares the settings of running ranks with the current ones

On both sides:

    cell_messages.py ─ the messages that carry a cell to the ranks, and their replies
    fingerprints.py  ─ tells whether a variable's content has changed since it was sent
    fingerprint_pickler.py ─ reads a variable for its fingerprint

`every_cell/` makes IPython run each cell in this way, without `%%accelerate`.

In a rank, on_rank/:

    worker.py        ─ functions that the kernel calls on a rank
    shell.py         ─ the IPython shell that runs the cells
    names.py         ─ completes and explains names
    kept_names.py    ─ hands variables over to the ranks that replace it
    debugger.py      ─ pdb, with the notebook as its terminal
"""
