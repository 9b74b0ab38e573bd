"""Ranks on TPU cores, started by torch_xla, which decides how many there are and which of them share a process.

    kernel ── group ──▶ server ── fork ──▶ supervisor ── torch_xla.launch ──▶ process of a chip
      │                                        ▲                                  │ a thread for each of its cores
      ├── control: seats, signals, ends ───────╯◀──────────── reports ────────────┤
      ╰── channel and pipes of each rank ─────────────────────────────────────────╯

The server has torch_xla imported and touches no device. The supervisor is the first process of a session of its own; it
cleans the environment, takes a seat for each rank (its channel, its pipes), and calls `torch_xla.launch`. That forks a
process for each chip, and runs a thread for each of its cores: two on TPU v2 and v3, one on later ones; on the CPU one
process with as many threads as `CPU_NUM_DEVICES` says. Each thread takes the seat of its ordinal and is a rank.

    engine.py      ─ the kernel's half
    environment.py ─ what torch_xla may find in the environment
    supervisor.py  ─ the process that calls torch_xla.launch
    watch.py       ─ its second thread: signals to the ranks' processes, and how these end
    process.py     ─ the processes that torch_xla starts, and the ranks in them
    streams.py     ─ what threads print, told apart
"""
