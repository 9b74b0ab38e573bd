"""A job's events on disk: written while it runs, folded again by whoever wants to see it, then or later.

    writing.py ─ takes in the events of a job that runs here, and writes them now and then
    pending.py ─ what it has yet to write: of a bar its last state, of a flood of lines the last
    lines.py   ─ how an event stands in the file: one JSON object, one line
    records.py ─ the folder of each job: which there are, whether they run, what to keep
    owner.py   ─ which process runs a job, and whether it still does
    reading.py ─ the events of a file, and what is added to it
    results.py ─ what the ranks of a detached job return or raise, as they sent it
    outcome.py ─ the result of a job that ran elsewhere, made of these

The folds of a job that runs, of its journal, and of a journal that was made shorter are the same.
"""
