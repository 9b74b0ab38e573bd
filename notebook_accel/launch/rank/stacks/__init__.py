"""Where the threads of a rank are: their stacks, samples of these over time, and whether a collective keeps the rank.

Start reading at `stack_sampler.py`, which reads the stacks. `collective_wait.py` sees in them that the rank waits in a
collective, and `imports.py` that it imports a module. `stack_profile.py` counts them, for flame graphs, and
`hot_lines.py` finds the lines that the parts of a training step spend their time on.
"""
