"""`transformers.Trainer` on the ranks."""

from __future__ import annotations

import pytest

from tests.frameworks.conftest import Launch
from tests.live_notebook import Cell

pytestmark = pytest.mark.usefixtures("defined")

TRAIN = """
import tempfile
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2 and args.process_index == 1:
            raise ValueError("no third step")

def train(batch, callbacks=()):
    torch.manual_seed(0)
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=16)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    model = GPT2LMHeadModel(config)
    tokens = torch.randint(0, 32, (64, 16))
    data = [{"input_ids": row, "labels": row} for row in tokens]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=batch, learning_rate=0.01, max_steps=4, logging_steps=1, report_to=[],
            save_strategy="no",
        )
        trainer = Trainer(
            model, arguments, train_dataset=data, eval_dataset=data[:16], callbacks=[each() for each in callbacks]
        )
        trainer.train()
        scores = trainer.evaluate()
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    return arguments.world_size, weights.double().norm().item(), weights[:5].tolist(), scores["eval_loss"]
"""
FAILING = "(4, [Stop])"
"""The arguments of a launch that fails."""


def test_a_callback_that_fails_is_the_error(failed: Cell) -> None:
    """Long: kernel and server import what is run."""
    assert failed.error == "RankError"
    assert failed.error_text.startswith("rank 1 of 2 raised ValueError: no third step"), failed.error_text


@pytest.mark.usefixtures("failed")
def test_two_ranks_of_the_next_launch_train_as_one_with_the_whole_batch(launch: Launch) -> None:
    both = launch("train, 4")
    (first, second) = both.values
    assert first[0] == second[0] == 2
    assert first[1:3] == second[1:3]
    (((_, norm, weights, loss), (_, other, *_)),) = launch("lambda: [train(8), train(4)]", size=1).values
    assert first[1:3] == [pytest.approx(norm, abs=1e-5), pytest.approx(weights, abs=1e-5)]
    assert first[3] == pytest.approx(loss, abs=1e-4)
    assert abs(first[1] - other) > 1e-4
    # The trainer shows its bars on the first rank alone, and logs there.
    assert both.bars[0][0] == ["Training", 4, 4, True]
    assert "Evaluation" in both.names[0]
    assert both.bars[1] == []
    assert {"loss", "learning_rate", "grad_norm", "eval_loss"} <= set(both.metrics[0])


def test_the_precision_of_the_launch_reaches_it(launch: Launch) -> None:
    found = launch("lambda: TrainingArguments('out').mixed_precision", mixed_precision="bf16")
    assert found.values == ["bf16"] * 2
