"""This process among the ranks: its environment, its device and process group, and what ranks exchange.

state.py                ─ `PartialState` and `AcceleratorState`; start reading here
environment.py          ─ the environment variables of a rank
process_group.py        ─ how a process becomes a rank, again after an interrupt, and what it then has
xla_group.py            ─ all of this with torch_xla
rank_aware.py           ─ runs code on some ranks only, or on one rank first
gradient_state.py       ─ `GradientState`, which the prepared objects share
step_observers.py       ─ what watches the training steps: one list, and the observers that need nothing else
collectives.py          ─ `gather`, `reduce`, `broadcast`, and the others that users call
communicator.py         ─ torch.distributed or torch_xla, below both
collective_check.py     ─ compares the ranks' next collective, in debug mode
store_comparison.py     ─ compares what ranks have found, without any that waits
mesh.py                 ─ which ranks get the same samples
seeds.py                ─ seeds all random states, and makes them equal on all ranks
random_states.py        ─ the random states, as a checkpoint stores them
logging.py              ─ loggers that write a message once
rank_messages.py        ─ what ranks send each other outside the training loop
"""
