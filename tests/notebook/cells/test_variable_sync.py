"""Which variables are sent with a cell."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch

from notebook_accel.notebook.cells.variable_sync import Variables


class Sending:
    """The variables of a notebook, and two ranks that receive all that is sent."""

    def __init__(self, **namespace: Any) -> None:
        self.namespace = namespace
        self.variables = Variables(namespace, lambda name, value: False, 2)

    def __call__(self, *names: str, ranks: Collection[int] = (0, 1), kept: Collection[str] = ()) -> dict[str, set[int]]:
        """Runs a cell that reads these names; returns what was sent, and to which ranks."""
        packed, sent = self.variables.pack((print, (), {}), dict.fromkeys(names, ""), ranks, kept=kept)
        packed.close()
        for rank in ranks:
            self.variables.mark_sent(sent, rank)
        return {variable.name: set(variable.receivers) for variable in sent}


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
    send.variables.touch("large[123_456] = 1")
    assert send("large", ranks=[0]) == {"large": {0}}
    assert send("large") == {"large": {1}}
    send.variables.touch("large.sum()")
    assert send("large") == {}


def test_variables_that_share_tensors_are_sent_together() -> None:
    model = torch.nn.Linear(2, 2)
    send = Sending(model=model, optimizer=torch.optim.SGD(model.parameters()), other=torch.nn.Linear(2, 2))
    send("model", "optimizer", "other")
    model.eval()
    assert send("model").keys() == {"model", "optimizer"}
    assert send("model", "optimizer", "other") == {}


def test_what_a_rank_keeps_is_not_sent_until_it_is_asked_for() -> None:
    model = torch.nn.Linear(2, 2)
    send = Sending(model=model, optimizer=torch.optim.SGD(model.parameters()))
    send("model", "optimizer")
    model.eval()
    kept = send.variables.keep(["model"], [0, 1])
    assert kept == {"model", "optimizer"}
    assert send("model", "optimizer", kept=kept) == {}
    model.train()
    assert send("model", "optimizer") == {}
    send.namespace["model"] = torch.nn.Linear(2, 2)
    assert send("model") == {"model": {0, 1}}
    send.namespace["model"].eval()
    assert send("model") == {"model": {0, 1}}


def test_what_the_notebook_assigns_beside_a_name_of_the_ranks_is_named_once() -> None:
    send = Sending(rate=0.1, before=1)
    for rank in (0, 1):
        send.variables.bind(["rate", "before", "later"], rank)
    assert send("rate", "before", "later") == {}
    assert send.variables.newly_assigned() == {}, "the notebook had these before"
    send.namespace.update(rate=0.2, later=3)
    send.variables.forget()
    assert send("rate", "before", "later") == {}
    assert send.variables.newly_assigned() == {"rate": [0, 1], "later": [0, 1]}
    assert send("rate") == {}
    assert send.variables.newly_assigned() == {}, "it was named already"
    send.namespace["rate"] = 0.3
    send.variables.pulled("rate")
    assert send("rate") == {}
    assert send.variables.newly_assigned() == {}, "it is the ranks' own value"


def test_what_the_notebook_assigns_again_does_not_replace_what_a_rank_has_made_of_it() -> None:
    send = Sending(model=1, plain=2)
    send("model", "plain")
    send.variables.bind(["model"], 1)
    assert send("model") == {}
    send.namespace.update(model=3, plain=4)
    send.variables.forget()
    assert send("model", "plain") == {"plain": {0, 1}}, "the ranks would have different models"
    assert send.variables.newly_assigned() == {"model": [1]}
    assert send.variables.known[1].own() == ["model"]
    packed, sent = send.variables.pack((print, (), {}), {"model": ""}, [0, 1], resend=True)
    packed.close()
    for rank in (0, 1):
        send.variables.mark_sent(sent, rank)
    send.namespace["model"] = 5
    assert send("model") == {"model": {0, 1}}, "they have the notebook's again"


class Awkward:
    """Can be sent, but has no fingerprint."""

    def __reduce__(self) -> Any:
        return list, (list(range(2_000_000)),)


def test_what_cannot_be_told_is_reported_once_and_only_after_a_cell_has_named_it() -> None:
    send = Sending(awkward=Awkward())
    send("awkward")
    for source, unclear in [("other = 1", []), ("awkward.x = 1", ["awkward"]), ("awkward.x = 2", [])]:
        send.variables.touch(source)
        assert send("awkward") == {}
        assert send.variables.newly_unclear() == unclear


def test_what_is_sent_on_request_is_not_reported() -> None:
    send = Sending(awkward=Awkward())
    send("awkward")
    send.variables.touch("awkward.x = 1")
    packed, sent = send.variables.pack((print, (), {}), {"awkward": ""}, [0, 1], resend=True)
    packed.close()
    assert [variable.name for variable in sent] == ["awkward"]
    assert send.variables.newly_unclear() == []


def test_a_cell_that_calls_a_function_names_what_the_function_reads() -> None:
    send = Sending(large=np.zeros(10**6))
    exec("def change(): large[123_456] = 1\ndef call(): change()", send.namespace)
    send("large")
    send.namespace["call"]()
    send.variables.touch("call()")
    assert send("large") == {"large": {0, 1}}
