"""What all tests share."""

from hypothesis import settings

# Other work on the machine must not fail a test, and neither must a seed: run with `--hypothesis-profile=default` to
# look further.
settings.register_profile("steady", deadline=None, derandomize=True, database=None, max_examples=50)
settings.load_profile("steady")
