"""`%%accelerate`: cells that run on a group of ranks, whose names live on from cell to cell.

In the kernel:

    magic.py     ─ the cell magic: its options, and what a cell leaves below it
    options.py   ─ what may stand on its line; selection.py: how ranks are named there
    commands.py  ─ the subcommands of `%accelerate` that concern the ranks
    session.py   ─ this notebook's ranks: started when first needed, restarted, stopped
    kept.py      ─ one group of them: calls, one after the other, and what is left when one ends badly
    names.py     ─ which names a cell reads
    variables.py ─ which of the notebook's variables the ranks lack, and how they travel

Both sides speak of messages.py. In a rank:

    worker.py    ─ what the notebook asks of it
    shell.py     ─ the IPython shell in which it runs cells
    debugger.py  ─ pdb, whose lines come from the notebook
"""
