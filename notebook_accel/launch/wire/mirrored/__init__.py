"""What ranks take on from the notebook.

notebook_state.py   ─ paths, random states, and settings; start reading here
library_settings.py ─ the settings that libraries keep, such as print options
on_import.py        ─ changes a module once it is imported, for settings and for patches
definitions.py      ─ takes apart and rebuilds what cloudpickle would rebuild wrongly
"""
