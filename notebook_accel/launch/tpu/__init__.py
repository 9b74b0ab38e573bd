"""The supervisor of TPU ranks, and those ranks. torch_xla starts them, and decides which of them share a process.

    kernel ── group ──▶ server ── fork ──▶ supervisor ── torch_xla.launch ──▶ process of a chip
      │                                        ▲                                  │ a thread for each of its cores
      ├── control: slots, signals, exits ──────╯◀──────────── reports ────────────┤
      ╰── channel and pipes of each rank ─────────────────────────────────────────╯

The server has torch_xla imported and touches no device. The supervisor is the first process of a session of its own; it
cleans the environment, receives a slot for each rank (its channel, its pipes), and calls `torch_xla.launch`. That forks
a process for each chip, and runs a thread for each of its cores: two on TPU v2 and v3, one on later ones; on the CPU
one process with as many threads as `CPU_NUM_DEVICES` says. Each thread takes the slot of its ordinal and is a rank.

Start reading at `supervisor.py`, then `process.py` (a process that torch_xla starts, and the ranks in it). `watch.py`
is the supervisor's second thread, and `thread_output.py` gives each line to the rank that prints it. The kernel's side
is `engines/tpu.py`.
"""
