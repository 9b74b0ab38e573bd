"""How the ranks of a save wait for each other."""

import logging
import threading

from notebook_accel.train.checkpoints import all_ranks


class Kept(logging.Handler):
    """Keeps the first message."""

    def __init__(self) -> None:
        super().__init__()
        self.message = ""
        self.arrived = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.message = record.getMessage()
        self.arrived.set()


def test_a_long_wait_says_that_all_ranks_have_to_call() -> None:
    kept, logger = Kept(), logging.getLogger(all_ranks.__name__)
    logger.addHandler(kept)
    try:
        with all_ranks.others_awaited("save_state", after_s=0.0):
            assert kept.arrived.wait(60)
    finally:
        logger.removeHandler(kept)
    assert kept.message.startswith("save_state has waited for the other ranks for 0 s. All ranks have to call it")
    assert "is_main_process" in kept.message
