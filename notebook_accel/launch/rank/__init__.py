"""The process of a rank: what runs there beside the user's code.

Start reading at `main.py` (what runs at a rank's start and at its end), then `rank.py` (the main loop runs calls) and
`channel_thread.py` (the second thread, which sends and receives). `patches/` is what a rank changes in other libraries,
`reports/` what it holds of its progress until that is sent, `stacks/` how it knows where its threads are, and
`profiling/` how it profiles training steps. A script that the command line watches has the same second thread and
patches; see `cli/watch/`.
"""
