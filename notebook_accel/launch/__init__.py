"""From a function in a cell to ranks and back. Nothing in here imports torch into the kernel.

The flow, one file each:

    launcher.py ─ what the user calls: checks the arguments, then
    payload.py  ─ pickles the function; large arrays go to a memory file beside it
    launch.py   ─ a job with all its attempts
    run.py      ─ one attempt: starts a group of ranks on an engine, and runs one call on it to its end:
                  pumps what the ranks say into the job and the output; attempt.py is what comes of it
    pipes.py    ─ what they write; output.py labels it, and shows equal lines once
    engines/    ─ where ranks live: a warm fork server, fresh processes, this process
    rank.py     ─ the other side: runs the function, and reports
    job.py      ─ what the ranks said so far, and the user's handle on it
    journal/    ─ the same on disk, for whoever attaches: attaching.py, follower.py
    driver.py   ─ runs a job that is to outlive the kernel, which detaching.py hands it
    stalls.py   ─ who waits for whom when nothing moves; waiting.py notices it in the rank,
                  stacks.py asks each rank where it is
    failure.py  ─ which rank's failure is the cause, and how it reads
"""
