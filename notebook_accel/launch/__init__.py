"""From a function in a cell to ranks and back. A folder is a process, so a path says in which process a line runs.

    folder     process                          may touch
    driver/    the kernel, or the process of    nothing of torch; starts and pumps ranks, owns the job
               a detached job
    plan/      the driver                       decides how many ranks there are and on what; starts nothing
    engines/   the driver                       its hold on each way to start ranks: one contract, a file an engine
    journal/   the driver                       the disk
    show/      the driver                       the screen
    job/       any                              nothing: the fold of a job's events, and its description as text
    server/    the fork server                  no device, no thread; store.py runs in a process of its own
    tpu/       the supervisor of TPU ranks,     torch_xla
               and those ranks
    rank/      a rank                           devices, the user's code; patches/ is what it changes in libraries
    cluster/   the bridge beside the driver,    the network; bridge/, agent/, transports/
               and an agent on each node
    wire/      both ends of a socket            sockets, memory files, pickles of authenticated peers
    system/    any                              the operating system; knows nothing of launches

Imports run downwards: driver | cluster, plan, engines, server | journal, tpu | show, rank | job, wire, system. Nothing
imports torch into the kernel. Start reading at `driver/launcher.py`, then `driver/call.py`, then `rank/main.py`.
"""
