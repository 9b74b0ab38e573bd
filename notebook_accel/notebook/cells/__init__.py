"""`%%accelerate`: cells that run on a group of persistent ranks, whose variables stay from cell to cell.

In the kernel:

    run.py           ─ the cell magic: runs one cell on the ranks, and shows what it returns
    cell_options.py  ─ the options on its line; rank_selection.py: how users name ranks there
    session.py       ─ this notebook's ranks: started when first needed, restarted, stopped
    persistent.py    ─ one group of ranks: its calls, one after the other, and its recovery after a failed one
    free_names.py    ─ which names a cell reads
    variables.py     ─ which of the notebook's variables the ranks lack, and how they are pickled
    changed_settings.py ─ how running ranks differ from those that would be started now

On both sides: cell_messages.py, what is sent to the ranks with a cell, and their reply.

In a rank, on_rank/:

    worker.py        ─ the functions that the kernel calls on a rank
    shell.py         ─ the IPython shell that runs the cells
    debugger.py      ─ pdb, with the notebook as its terminal
"""
