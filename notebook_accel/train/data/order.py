"""The random generators that determine the order of a loader's samples, and their states as a checkpoint keeps them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler

from notebook_accel.train.data.samplers import SeedableRandomSampler, get_sampler, index_sampler
from notebook_accel.train.options.enums import RNGType
from notebook_accel.train.ranks import collectives, random_states
from notebook_accel.train.ranks.seeds import number_of_first, synchronize_rng_state

State = dict[str, Any]
_ABSENT = object()
_END = object()
_KNOWN = ("builtins", "torch.utils.data.", "torchdata.")
"""The modules of samplers that draw from generators which `generators` finds, if they draw at all."""


def capture(loader: DataLoader[Any]) -> State:
    """Captures the random states that determine the order of the next epoch."""
    sampler = get_sampler(loader)
    return {
        "host": random_states.capture_host(),
        "generators": {name: generator.get_state() for name, generator in _named_generators(loader).items()},
        "others": [random_states.state_of(generator) for generator in _other_generators(loader)],
        "seed": sampler.initial_seed if isinstance(sampler, SeedableRandomSampler) else None,
    }


def restore(loader: DataLoader[Any], state: State) -> None:
    """Restores the random states that determine the order of the next epoch, except the global ones.

    A sampler without a generator gets one where several ranks draw its order, so only one of two numbers of ranks may
    have it.
    """
    sampler, saved = get_sampler(loader), state["generators"]
    if "sampler" in saved and getattr(sampler, "generator", _ABSENT) is None:
        sampler.generator = torch.Generator()
    own = _named_generators(loader)
    for name in own.keys() & saved.keys():
        own[name].set_state(saved[name])
    if "sampler" in own.keys() - saved.keys():
        _draw_as_global(own["sampler"], sampler, state)
    for other, saved in zip(_other_generators(loader), state["others"], strict=False):
        random_states.set_state_of(other, saved)
    if isinstance(sampler, SeedableRandomSampler):
        sampler.initial_seed = state["seed"]


def _draw_as_global(generator: torch.Generator, sampler: Any, state: State) -> None:
    """Makes a generator draw an epoch's order as a sampler without one would have drawn it in this state."""
    generator.set_state(state["host"]["torch_manual_seed"])
    if not state.get("has_workers"):
        torch.empty((), dtype=torch.int64).random_(generator=generator)  # the loader's seed for its workers
    if isinstance(sampler, RandomSampler):  # it seeds a generator for each epoch
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_(generator=generator).item()))


def synchronize(loader: DataLoader[Any]) -> None:
    """Gives the next epoch the same order as on rank 0; all ranks must call it."""
    for generator in generators(loader):
        synchronize_rng_state(RNGType.GENERATOR, generator)
    others = _other_generators(loader)
    if others:
        states = collectives.all_objects([random_states.state_of(generator) for generator in others])[0]
        for generator, state in zip(others, states, strict=False):
            random_states.set_state_of(generator, state)
    sampler = get_sampler(loader)
    if isinstance(sampler, SeedableRandomSampler):
        sampler.initial_seed = number_of_first(sampler.initial_seed)


def draws_freely(loader: DataLoader[Any]) -> bool:
    """Whether a sampler of a loader may draw from the global generators, since it is of the user's own class."""
    if isinstance(loader.dataset, IterableDataset):
        return False
    own = (type(sampler) for sampler in _samplers(loader))
    return any(not cls.__module__.startswith((*_KNOWN, __package__)) for cls in own)


def drawn_as_on_first_rank(sampler: Any) -> Iterator[Any]:
    """The elements of a sampler that may draw from the global generators: on each rank, as rank 0 draws them.

    All ranks call it. Ranks whose generators are in other states than those of rank 0 draw the elements with rank 0's
    states, and everything else with their own.
    """
    own = random_states.capture_host()
    shared = collectives.all_objects(own)[0]
    if _are_equal(own, shared):
        yield from sampler
        return
    elements = None
    while True:
        own = random_states.capture_host()
        random_states.restore_host(shared)
        try:
            elements = iter(sampler) if elements is None else elements
            element = next(elements, _END)
            shared = random_states.capture_host()
        finally:
            random_states.restore_host(own)
        if element is _END:
            return
        yield element


def _are_equal(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]
        for name, value in one.items()
    )


def generators(loader: DataLoader[Any]) -> list[torch.Generator]:
    """Torch's generators that determine the order of the samples, other than its global one."""
    return list(_named_generators(loader).values())


def _named_generators(loader: DataLoader[Any]) -> dict[str, torch.Generator]:
    """The same, by whose they are."""
    found: dict[str, torch.Generator] = {}
    dataset = loader.dataset if isinstance(loader.dataset, IterableDataset) else None
    for name, owner in (("loader", loader), ("sampler", get_sampler(loader)), ("dataset", dataset)):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator) and all(generator is not other for other in found.values()):
            found[name] = generator
    return found


def _other_generators(loader: DataLoader[Any]) -> list[Any]:
    """The generators of Python, NumPy, and torch that samplers keep in other attributes, whatever their names."""
    known = {id(generator) for generator in generators(loader)}
    found: list[Any] = []
    for sampler in _samplers(loader):
        for value in getattr(sampler, "__dict__", {}).values():
            if id(value) not in known and random_states.is_generator(value):
                known.add(id(value))
                found.append(value)
    return found


def _samplers(loader: DataLoader[Any]) -> Iterator[Any]:
    """The samplers of a loader, each before those that it wraps."""
    waiting, seen = [index_sampler(loader)], set[int]()
    while waiting:
        sampler = waiting.pop()
        if sampler is None or id(sampler) in seen:
            continue
        seen.add(id(sampler))
        yield sampler
        attributes = getattr(sampler, "__dict__", {})
        waiting += [attributes.get(name) for name in ("shard", "sampler", "batch_sampler")]


@contextlib.contextmanager
def seeded_workers(loader: DataLoader[Any]) -> Iterator[None]:
    """Makes a loader that starts its workers draw their seed without a trace in the generators.

    With `persistent_workers`, a loader draws it in its first epoch only. One that starts its workers later, because a
    training was resumed, must leave the numbers that follow to the samplers.
    """
    generator = loader.generator
    throwaway = torch.Generator()
    throwaway.set_state(torch.get_rng_state() if generator is None else generator.get_state())
    loader.generator = throwaway
    try:
        yield
    finally:
        loader.generator = generator
