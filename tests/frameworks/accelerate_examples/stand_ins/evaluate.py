"""Stands in for the package evaluate: accuracy and F1, and the loss that the models in this process returned."""

import torch
from torch.nn.modules.module import register_module_forward_hook

_losses = []


def _record(module, inputs, output):
    loss = getattr(output, "loss", None)
    if loss is not None and not type(module).__name__.startswith("DistributedDataParallel"):
        _losses.append(float(loss.detach()))


register_module_forward_hook(_record)


class Metric:
    """Collects predictions; `compute` also reports the summed loss, which differs if anything in the training does."""

    def __init__(self):
        self._predictions, self._references = [], []

    def add_batch(self, *, predictions, references):
        """Adds two 1-D tensors of the same length."""
        self._predictions.append(predictions.cpu())
        self._references.append(references.cpu())

    def compute(self, predictions=None, references=None):
        """The metrics of everything added since the last call, or of the two tensors given."""
        if predictions is None:
            predictions, references = torch.cat(self._predictions), torch.cat(self._references)
        self._predictions, self._references = [], []
        hits = int(((predictions == 1) & (references == 1)).sum())
        wanted = int((predictions == 1).sum() + (references == 1).sum())
        result = {
            "accuracy": float((predictions == references).double().mean()),
            "f1": 2 * hits / wanted if wanted else 0.0,
            "samples": len(references),
            "loss": sum(_losses),
        }
        _losses.clear()
        return result


def load(*names):
    """The same metric, whatever its name."""
    return Metric()
