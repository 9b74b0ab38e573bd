"""The process of a rank: what runs there besides the user's code.

main.py             ─ the process, from its start to its end; start reading here
rank.py             ─ the main thread: takes calls, runs them, and reports how each ended
channel_thread.py   ─ the second thread: sends and receives, and samples what the main thread does
report.py           ─ `report`; report_buffer.py holds what it is given, and coalescer.py the bars, until they are sent
bar_nesting.py      ─ which bars are inside which
patches/            ─ what a rank changes in other libraries, so that their bars and logs become events
exceptions.py       ─ turns exceptions into events
stacks/             ─ where the threads are, and whether one waits in a collective
flight_recorder.py  ─ which collectives are outstanding, according to torch
memory.py           ─ how much memory the rank uses
energy.py           ─ how much energy its devices use
out_of_memory.py    ─ what holds that memory
training_control.py ─ pauses and changes the training
step_profiles.py    ─ profiles training steps
stdin.py            ─ `input()`
display_shell.py    ─ `display()`, with figures and tables
debug_adapter.py    ─ connects debugpy to the notebook's debugger
script.py           ─ runs a script as `python SCRIPT` does
interrupts.py       ─ when SIGINT raises `KeyboardInterrupt`
disconnect.py       ─ ends a collective that no signal can interrupt
forked_child.py     ─ ends a process that the user's code has forked, once it leaves the function
rehearsal.py        ─ what a warm rank does before it is needed
first_step.py       ─ warns of ranks that train apart, and of a training run that `checkpoint=` does not save

A rank that runs a script has the same second thread and the same patches.
"""
