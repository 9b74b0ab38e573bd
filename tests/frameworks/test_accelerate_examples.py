"""`scripts/try-accelerate-examples`, with an example of our own in the place of Accelerate's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.accelerate_examples import compare as script

EXAMPLE = """
import argparse
import evaluate
import torch
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed
from accelerate import Accelerator
from accelerate.utils import DistributedType

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", action="store_true")
    accelerator = Accelerator(cpu=parser.parse_args().cpu)
    assert accelerator.distributed_type == DistributedType.MULTI_CPU
    set_seed(0)
    tokenizer, metric = AutoTokenizer.from_pretrained("bert-base-cased"), evaluate.load("glue", "mrpc")
    rows = load_dataset("glue", "mrpc")["validation"]
    rows = [(rows["sentence1"][row], rows["label"][row]) for row in range(rows.num_rows)]

    def collate(chosen):
        texts, labels = zip(*chosen)
        return tokenizer(list(texts), padding=True, return_tensors="pt"), torch.tensor(labels)

    model = AutoModelForSequenceClassification.from_pretrained("bert-base-cased")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(2):
        for inputs, labels in loader:
            output = model(**inputs, labels=labels)
            accelerator.backward(output.loss)
            optimizer.step()
            optimizer.zero_grad()
            predictions = output.logits.argmax(-1)
            predictions, labels = accelerator.gather_for_metrics((predictions, labels))
            metric.add_batch(predictions=predictions, references=labels)
        accelerator.print(f"epoch {epoch}:", metric.compute())

if __name__ == "__main__":
    main()
"""


@pytest.mark.nightly
def test_an_example_gives_the_same_in_every_way(tmp_path: Path) -> None:
    """Long: four runs on two ranks each, of which three import transformers."""
    (tmp_path / "nlp_example.py").write_text(EXAMPLE)
    (tmp_path / "other.py").write_text("raise SystemExit('not an example')")
    command = [sys.executable, script.__file__, str(tmp_path)]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert done.stdout.splitlines()[2:] == ["| `nlp_example` | same | same | same |"], done.stderr
    assert done.returncode == 0


def test_a_folder_without_examples_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, script.__file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pass the folder examples of a checkout" in done.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from accelerate import Accelerator", "from notebook_accel import Accelerator"),
        ("    from accelerate.utils import set_seed", "    from notebook_accel.utils import set_seed"),
        ("import accelerate", "import notebook_accel"),
        ("from accelerated import x", "from accelerated import x"),
        ("accelerate = 'from accelerate'", "accelerate = 'from accelerate'"),
    ],
)
def test_only_imports_change(line: str, expected: str) -> None:
    assert script.renamed(line) == expected


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        (["epoch 0: 1.00000001"], ["epoch 0: 1.0"], "same"),
        (["epoch 0: 1.0"], ["epoch 0: 1.001"], "`epoch 0: 1.001` instead of `epoch 0: 1.0`"),
        (["epoch 0: a 1"], ["epoch 0: b 1"], "`epoch 0: b 1` instead of `epoch 0: a 1`"),
        (["epoch 0: 1"], [], "0 lines of results instead of 1"),
        ([], [], "Accelerate printed no result"),
    ],
)
def test_results_are_compared(expected: list[str], got: list[str], said: str) -> None:
    assert script.difference(expected, got) == said
