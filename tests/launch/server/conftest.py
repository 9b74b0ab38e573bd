"""What the tests of engines share, for the server too."""

from tests.launch.engines.conftest import ranks_start_light  # noqa: F401
