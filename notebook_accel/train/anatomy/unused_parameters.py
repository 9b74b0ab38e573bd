"""Finds out whether DDP searches each backward pass for unused parameters, although all are used."""

from __future__ import annotations

import weakref
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from notebook_accel import rank_local

_MODELS = f"{__name__}.models"


def watch(model: DistributedDataParallel) -> None:
    """Remembers a model that DDP searches, because `find_unused_parameters` is set."""
    rank_local.space().setdefault(_MODELS, weakref.WeakSet()).add(model)


def searched_in_vain() -> bool:
    """Whether a model is searched, and no parameter of it was unused in the passes that DDP has logged so far."""
    models = rank_local.space().get(_MODELS, ())
    return any(_has_no_unused(model) for model in [*models])


def _has_no_unused(model: DistributedDataParallel) -> bool:
    # DDP logs some of the passes, the first ones among them; before that, there is no entry.
    logged: dict[str, Any] = model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    return logged.get("unused_parameter_size") == 0
