"""What is said of the ranks of cells that don't respond, or have ended."""

from notebook_accel.notebook.cells import rank_losses


def test_one_rank_is_named_in_the_singular_and_several_in_the_plural() -> None:
    assert rank_losses.unresponsive([1], "").startswith("Rank 1 does not respond")
    assert rank_losses.unresponsive([0, 1], "").startswith("Ranks 0-1 do not respond")
    assert rank_losses.gone([1], "") == "Rank 1 is gone. `%accelerate restart` starts new ranks."
    assert rank_losses.gone([0, 2], "; x") == "Ranks 0,2 are gone. `%accelerate restart` starts new ranks; x."
    assert rank_losses.still_busy([1], "").startswith("rank 1 is still busy with a cell that was stopped")
    assert "end them with" in rank_losses.still_busy([0, 1], "")


def test_a_dead_rank_is_told_with_where_a_cell_can_run() -> None:
    assert rank_losses.dead(1, "was killed by signal 9", [0, 2]) == (
        "rank 1 was killed by signal 9: `%accelerate restart` starts new ranks "
        "(`%%accelerate --ranks 0,2` still runs on the others)."
    )
    assert rank_losses.dead(0, "ended with status 1", []) == (
        "rank 0 ended with status 1: `%accelerate restart` starts new ranks."
    )
