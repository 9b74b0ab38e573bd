"""From a function in a cell to ranks and back. A folder is a process, so a path says in which process a line runs.

    folder     runs in                          what it does                            may use
    driver/    the kernel, or the process of    starts ranks, reads them, owns the job  no torch
               a detached job
    plan/      the driver                       decides how many ranks run, and where   no processes, no torch
    engines/   the driver                       one file for each way to start ranks    sockets, processes
    journal/   the driver                       records jobs                            the disk
    show/      the driver                       prints what ranks write                 the console
    job/       any                              reduces a job's events to its state     nothing
    server/    the fork server                  forks ranks; store.py is a process of   no device, no thread
                                                its own
    tpu/       the supervisor of TPU ranks,     starts TPU ranks                        torch_xla
               and those ranks
    rank/      a rank                           runs calls; patches/ changes libraries  devices, the user's code
    cluster/   the bridge beside the driver,    ranks on other nodes: bridge/, agent/,  the network
               and an agent on each node        launchers/
    wire/      both ends of a socket            messages and what they carry            sockets, memory files
    system/    any                              asks the operating system               nothing of launches

Imports run downwards: driver | cluster, plan, engines, server | journal, tpu | show, rank | job, wire, system. Nothing
imports torch into the kernel. Start reading at `driver/launcher.py`, then `driver/call_runner.py`, then `rank/main.py`.
The `__init__` of each folder lists its files.
"""
