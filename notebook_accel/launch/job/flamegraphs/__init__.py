"""Flame graphs: where the ranks of a running job spend their time, as `job.flamegraph()` returns it.

sampling.py         ─ requests samples from the ranks
call_tree.py       ─ the samples of one rank, or of several, as a tree of calls
flamegraph.py      ─ the object that users get: text, picture, file
flamegraph_html.py ─ the picture
speedscope.py      ─ the file format of https://www.speedscope.app
"""
