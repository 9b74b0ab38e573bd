"""The driver: the kernel, or the process of a detached job. It starts ranks, reads their events, and stops them.

launcher.py         ─ `notebook_launcher`, which users call; start reading here
map_on_ranks.py     ─ `map_on_ranks`, which users call; map_launch.py is the launch of a map, map_work.py gives out its
                      items, map_results.py keeps values, and map_output.py makes of them what it returns
launch.py           ─ one launch: a job with an attempt for each restart
device_line.py      ─ waits until devices for it are free
call_runner.py      ─ one call on its ranks: the event loop, the timers, and where each event goes
stop_policy.py      ─ why ranks are stopped, and when each signal is due
escalation.py       ─ sends these signals: SIGINT, then SIGTERM, then SIGKILL
rule_watch.py       ─ watches metrics for rules, and does what these say
stall_watch.py      ─ decides whether a job has stalled
notifications.py    ─ tells the user elsewhere that a job has ended, failed, or stalled
rank_requests.py    ─ requests to running ranks, such as for their stacks, and their replies
prompts.py          ─ prompts the user for a rank that waits for input
debug_relay.py      ─ connects the notebook's debugger to ranks
assigned_globals.py ─ warns of global names that a function assigns in its own process only
changed_modules.py  ─ warns of attributes of modules that only the notebook has changed

Jobs that another process runs, or ran:

attach.py           ─ `attach` and `jobs`, which find them
follower.py         ─ follows one of them through its journal
detach.py           ─ starts a job in a process of its own, which runs detached_main.py
stored_code.py      ─ stores what is needed to launch a job again
relaunch.py         ─ launches it again in another kernel: `%accelerate resume`
"""
