"""IPython as the console of launches, in a Jupyter kernel or in a terminal.

    console.py       ─ where output, displays and prompts of a launch go
    cell_numbers.py  ─ maps file names in tracebacks to cells such as `In[3]`
    tracebacks.py    ─ shortens errors, without the launcher's own frames
    here_cells.py    ─ `%%here`: runs a cell in the kernel
    magic_commands.py ─ click commands as magics: parsed, explained and completed; completion.py: the Tab key
    debugger/        ─ JupyterLab's debugger, on ranks

Start reading at `console.py`.
"""
