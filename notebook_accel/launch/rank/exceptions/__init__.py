"""Turns what the user's code raises into events.

exception_events.py ─ an exception with its chain and frames: start reading here
loader_errors.py    ─ the error of a DataLoader's worker, from the text that torch makes of it
unsent_names.py     ─ the name of the notebook that was not sent to the rank
refused_threads.py  ─ the limit because of which no thread could start
parsed_arguments.py ─ the arguments of the kernel, which an argparse parser has read
"""
