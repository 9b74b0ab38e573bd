"""Programs drawn at random train on several ranks, and are compared with plain torch on one device.

`program.py` says what a program is, and prints it as a script; `drawing.py` draws one; `ranks.py` runs it, on ranks
that stay alive between programs; `reference.py` computes what one device gives; `verdict.py` compares.
`scripts/equivalence` runs as many as it is told: `python -m tests.train.equivalence --programs 10000 --seed 7`.
"""
