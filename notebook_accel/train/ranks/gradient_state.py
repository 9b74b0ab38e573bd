"""The position of a training loop, shared by the prepared objects that take part in its steps."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from notebook_accel import rank_local
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.plugins import GradientAccumulationPlugin
from notebook_accel.train.ranks.rank_aware import OneOfRank
from notebook_accel.train.ranks.step_observers import StepObservers

_FIELDS = ("num_steps", "adjust_scheduler", "sync_with_dataloader", "sync_each_batch")
"""Those of a `GradientAccumulationPlugin`."""


class ActiveLoader:
    """That a prepared loader is being iterated over.

    Args:
        loader: The loader. Neither it nor its workers are kept alive by a loop that was left early.
        enclosing: The loaders that were active when its iterator was made, each with its number of batches by then.
        state: Where it is registered.
    """

    __slots__ = ("_state", "batch", "batches", "enclosing", "loader", "turn")

    def __init__(self, loader: Any, enclosing: Mapping[ActiveLoader, int], state: GradientState) -> None:
        self.loader = weakref.ref(loader)
        self.enclosing = enclosing
        self._state = state
        self.batch: Any = None
        """The current one."""
        self.batches = 0
        """How many it has delivered."""
        self.turn = state.turn
        """The turn in which it has delivered the last one."""

    def deliver(self, batch: Any) -> Any:
        """Records that the loader delivers a batch, and returns it."""
        self.batch = batch
        self.batches += 1
        self.turn = self._state.turn
        return batch

    def encloses(self, other: ActiveLoader) -> bool:
        """Whether its current batch was there already when the iterator of the other was made."""
        return other.enclosing.get(self) == self.batches


class GradientState(OneOfRank):
    """The position of a training loop: whether this batch ends in a step, and which loader it came from.

    Like `PartialState`, all instances on a rank are the same object.
    """

    _key = f"{__name__}.state"
    sync_gradients: bool
    """Whether this batch ends an accumulation: gradients are averaged, and optimizers and schedulers step."""
    num_steps: int
    """How many batches are accumulated. This and the following are those of the `GradientAccumulationPlugin`."""
    adjust_scheduler: bool
    sync_with_dataloader: bool
    sync_each_batch: bool
    has_looped: bool
    """Whether batches have come from a prepared loader."""
    observers: StepObservers
    """What watches the steps."""
    has_cut_sequences: bool
    """Whether ranks have computed with parts of sequences since the last prepared loader began an epoch."""
    turn: int
    """Changes whenever the loop uses batches: those that were delivered in one turn are used together."""
    _loaders: list[ActiveLoader]
    """The last one is that whose iteration began last."""

    def __new__(cls, gradient_accumulation_plugin: GradientAccumulationPlugin | None = None) -> GradientState:
        state = cls.settled()
        if state is None:
            state = super().__new__(cls)
            state.sync_gradients = True
            state.has_looped = False
            state.observers = StepObservers()
            state.has_cut_sequences = False
            state.turn = 0
            state._loaders = []
            state._take(GradientAccumulationPlugin(num_steps=1))
            rank_local.space()[cls._key] = state
        if gradient_accumulation_plugin is not None:
            state._take(gradient_accumulation_plugin)
        return state

    def _take(self, plugin: GradientAccumulationPlugin) -> None:
        self.num_steps = plugin.num_steps or 1
        self.adjust_scheduler = plugin.adjust_scheduler
        self.sync_with_dataloader = plugin.sync_with_dataloader
        self.sync_each_batch = plugin.sync_each_batch

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = {
            name: value for name, value in self.__dict__.items() if name != "observers" and not name.startswith("_")
        }
        return GradientState, (), attributes

    @property
    def active_dataloader(self) -> Any:
        """The prepared loader that is being iterated over, the innermost of several; `None` outside.

        Of several that are read together, it is one that has ended, if there is one.
        """
        found = self.loaders_in_use
        return next((loader for loader in found if loader.end_of_dataloader), found[-1] if found else None)

    @property
    def loaders_in_use(self) -> list[Any]:
        """The prepared loaders whose batches the loop uses together: several in `zip(one, other)`, otherwise one."""
        active = [(each, loader) for each in self._loaders if (loader := each.loader()) is not None]
        if len(active) > 1:
            turn = max(each.turn for each, _ in active)
            latest = [each for each, _ in active if each.turn == turn]
            active = [found for found in active if found[0].turn == turn and not any(map(found[0].encloses, latest))]
        return [loader for _, loader in active]

    @property
    def dataloader_references(self) -> list[Any]:
        """The prepared loaders that are being iterated over, the innermost last."""
        return [None, *(each.loader() for each in self._loaders)]  # Accelerate's list begins with `None` too

    @property
    def in_dataloader(self) -> bool:
        """Whether a prepared loader is being iterated over."""
        return self.active_dataloader is not None

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the current batch is the last of its loader; of several that are read together, of any."""
        if len(self._loaders) == 1:
            loader = self._loaders[0].loader()
            return loader is not None and loader.end_of_dataloader
        return any(loader.end_of_dataloader for loader in self.loaders_in_use)

    @property
    def remainder(self) -> int:
        """How many samples of the last global batch are not repetitions; -1 where that is not known."""
        loader = self.active_dataloader
        return -1 if loader is None else loader.remainder

    @property
    def plugin_kwargs(self) -> PluginKwargs:
        """The fields of the `GradientAccumulationPlugin`, which can be changed during training."""
        return PluginKwargs(self)

    def _set_sync_gradients(self, sync_gradients: bool) -> None:
        """Sets `sync_gradients`, as loops do that count the batches themselves."""
        self.sync_gradients = sync_gradients

    def batches_by_loader(self) -> dict[ActiveLoader, int]:
        """The active loaders, each with how many batches it has delivered."""
        return {each: each.batches for each in self._loaders}

    def _add_dataloader(self, loader: Any, enclosing: Mapping[ActiveLoader, int] | None = None) -> ActiveLoader:
        self.has_looped = True
        active = ActiveLoader(loader, self.batches_by_loader() if enclosing is None else enclosing, self)
        self._loaders.append(active)
        self.has_cut_sequences = False
        return active

    def _remove_dataloader(self, loader: Any) -> None:
        self._loaders = [each for each in self._loaders if each.loader() not in (loader, None)]

    def __repr__(self) -> str:
        return (
            f"Sync Gradients: {self.sync_gradients}\n"
            f"At end of current dataloader: {self.end_of_dataloader}\n"
            f"Extra samples added: {self.remainder}\n"
            f"Accumulation steps: {self.num_steps}\n"
        )


class PluginKwargs(MutableMapping[str, Any]):
    """The fields of a `GradientAccumulationPlugin` by name: what is set here is set in the `GradientState`."""

    def __init__(self, state: GradientState) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Any:
        if name not in _FIELDS:
            raise KeyError(name)
        return getattr(self._state, name)

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in _FIELDS:
            raise ConfigurationError(f"plugin_kwargs has no {name!r}: choose from {', '.join(_FIELDS)}")
        self._state._take(GradientAccumulationPlugin(**{**self, name: value}))

    def __delitem__(self, name: str) -> None:
        self[name] = getattr(GradientAccumulationPlugin(), name)

    def __iter__(self) -> Iterator[str]:
        return iter(_FIELDS)

    def __len__(self) -> int:
        return len(_FIELDS)

    def __repr__(self) -> str:
        return repr(dict(self))
