"""Which variables are sent with a cell."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from notebook_accel.launch.show import console
from notebook_accel.launch.wire.mirrored import notebook_state
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.notebook.cells.variable_sync import VariableSync


@pytest.fixture(autouse=True)
def notices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the user was told."""
    found: list[str] = []
    monkeypatch.setattr(console.current, "notice", found.append)
    return found


class Sending:
    """The variables of a notebook, and two ranks that receive all that is sent."""

    def __init__(self, **namespace: Any) -> None:
        self.namespace = namespace
        self.changed_there: list[str] = []
        """The names whose values the ranks have changed themselves."""
        state = notebook_state.capture_paths()
        self.variables = VariableSync(namespace, lambda name, value: False, (0, 1), self._call, state)

    def __call__(self, *names: str, ranks: Collection[int] = (0, 1)) -> dict[str, set[int]]:
        """Runs a cell that reads these names; returns what was sent, and to which ranks."""
        packed, sent = self.variables.before((print, (), {}), dict.fromkeys(names, ""), ranks)
        packed.close()
        self.variables.after({}, sent, ranks)
        return {variable.name: set(variable.receivers) for variable in sent}

    def _call(self, packed: Payload, members: Sequence[int], name: str) -> list[Any]:
        packed.close()
        values = {"changed": self.changed_there, "push": None, "pull": dict.fromkeys(self.namespace, "pulled")}
        return [values[name] for _ in members]


def test_only_what_has_changed_is_sent_again() -> None:
    send = Sending(options={"lr": 0.1}, other=[1])
    assert send("options", "other") == {"options": {0, 1}, "other": {0, 1}}
    assert send("options", "other") == {}
    send.namespace["options"]["lr"] = 0.01
    assert send("other") == {}
    assert send("options", "other") == {"options": {0, 1}}
    assert send("options", "other") == {}


def test_each_rank_is_sent_what_it_has_missed() -> None:
    send = Sending(options={"lr": 0.1})
    send("options")
    send.namespace["options"]["lr"] = 0.01
    assert send("options", ranks=[1]) == {"options": {1}}
    assert send("options") == {"options": {0}}


def test_one_element_of_a_large_array_counts_once_a_cell_has_named_the_array() -> None:
    send = Sending(large=np.zeros(10**6))
    send("large")
    send.namespace["large"][123_456] = 1
    assert send("large", ranks=[0]) == {}
    send.variables.kernel_ran("large[123_456] = 1")
    assert send("large", ranks=[0]) == {"large": {0}}
    assert send("large") == {"large": {1}}
    send.variables.kernel_ran("large.sum()")
    assert send("large") == {}


def test_variables_that_share_tensors_are_sent_together() -> None:
    model = torch.nn.Linear(2, 2)
    send = Sending(model=model, optimizer=torch.optim.SGD(model.parameters()), other=torch.nn.Linear(2, 2))
    send("model", "optimizer", "other")
    model.eval()
    assert send("model").keys() == {"model", "optimizer"}
    assert send("model", "optimizer", "other") == {}


def test_what_a_rank_keeps_is_not_sent_until_it_is_asked_for(notices: list[str]) -> None:
    model = torch.nn.Linear(2, 2)
    send = Sending(model=model, optimizer=torch.optim.SGD(model.parameters()))
    send("model", "optimizer")
    model.eval()
    send.changed_there = ["model"]
    assert send("model", "optimizer") == {}
    assert notices.pop().startswith("`model` has changed in the notebook, but ranks 0-1 have changed their own copy")
    send.changed_there = []
    model.train()
    assert send("model", "optimizer") == {}
    send.namespace["model"] = torch.nn.Linear(2, 2)
    assert send("model") == {"model": {0, 1}}
    send.namespace["model"].eval()
    assert send("model") == {"model": {0, 1}}


def test_what_the_notebook_assigns_beside_a_name_of_the_ranks_is_named_once(notices: list[str]) -> None:
    send = Sending(rate=0.1, before=1)
    send.variables.after({rank: ["rate", "before", "later"] for rank in (0, 1)})
    assert send("rate", "before", "later") == {}
    assert not notices, "the notebook had these before"
    send.namespace.update(rate=0.2, later=3)
    send.variables.kernel_ran("")
    assert send("rate", "before", "later") == {}
    assert notices.pop().startswith("`rate`, `later` have been assigned in the notebook, but ranks 0-1")
    assert send("rate") == {}
    assert not notices, "it was named already"
    send.variables.pull(["rate"], [0])
    assert send.namespace["rate"] == "pulled"
    assert send("rate") == {}
    assert not notices, "it is the ranks' own value"


def test_what_the_notebook_assigns_again_does_not_replace_what_a_rank_has_made_of_it(notices: list[str]) -> None:
    send = Sending(model=1, plain=2)
    send("model", "plain")
    send.variables.after({1: ["model"]})
    assert send("model") == {}
    send.namespace.update(model=3, plain=4)
    send.variables.kernel_ran("")
    assert send("model", "plain") == {"plain": {0, 1}}, "the ranks would have different models"
    assert notices.pop().startswith("`model` has been assigned in the notebook, but rank 1 has assigned its own")
    assert send.variables.own(1) == ["model"]
    send.variables.push({"model": ""})
    assert send.variables.own(1) == []
    send.namespace["model"] = 5
    assert send("model") == {"model": {0, 1}}, "they have the notebook's again"


class Awkward:
    """Can be sent, but has no fingerprint."""

    def __reduce__(self) -> Any:
        return list, (list(range(2_000_000)),)


def test_what_cannot_be_told_is_reported_once_and_only_after_a_cell_has_named_it(notices: list[str]) -> None:
    send = Sending(awkward=Awkward())
    send("awkward")
    for source, reports in [("other = 1", 0), ("awkward.x = 1", 1), ("awkward.x = 2", 1)]:
        send.variables.kernel_ran(source)
        assert send("awkward") == {}
        assert len(notices) == reports
    assert notices[0].startswith("can't tell quickly whether `awkward` has changed")


def test_what_is_sent_on_request_is_not_reported(notices: list[str]) -> None:
    send = Sending(awkward=Awkward())
    send("awkward")
    send.variables.kernel_ran("awkward.x = 1")
    send.variables.push({"awkward": ""})
    assert send("awkward") == {}
    assert not notices


def test_a_cell_that_calls_a_function_names_what_the_function_reads() -> None:
    send = Sending(large=np.zeros(10**6))
    exec("def change(): large[123_456] = 1\ndef call(): change()", send.namespace)
    send("large")
    send.namespace["call"]()
    send.variables.kernel_ran("call()")
    assert send("large") == {"large": {0, 1}}
