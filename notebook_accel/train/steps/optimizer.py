"""A prepared optimizer: does nothing while gradients accumulate, and detects whether the scaler skipped a step."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.amp.grad_scaler import OptState
from torch.optim import Optimizer

from notebook_accel import events
from notebook_accel.train.data.uneven_inputs import refuse_uneven
from notebook_accel.train.ranks import collectives
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.ranks.step_observers import CONTROLS


def inner(optimizer: Optimizer) -> Optimizer:
    """The user's own optimizer, also of one that is prepared."""
    return optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer


def _of_own(name: str, doc: str) -> property:
    """An attribute of a prepared optimizer that is the user's own optimizer's."""

    def get(prepared: AcceleratedOptimizer) -> Any:
        return getattr(prepared.optimizer, name)

    def set_(prepared: AcceleratedOptimizer, value: Any) -> None:
        setattr(prepared.optimizer, name, value)

    return property(get, set_, doc=doc)


class AcceleratedOptimizer(Optimizer):
    """Wraps the user's optimizer.

    While gradients are being accumulated, `step` and `zero_grad` do nothing.

    Args:
        optimizer: The user's optimizer.
        device_placement: Whether to move its state to the devices of its parameters.
        scaler: The gradient scaler; only for fp16.
        clip: Limits the gradients of the parameters that it is given, before each step; `None`: nothing does.
    """

    _is_accelerate_prepared = True
    check: Callable[[Optimizer], None] | None = None
    """Refuses a step with gradients that are not ready; not in a copy of it."""

    def __init__(
        self,
        optimizer: Optimizer,
        device_placement: bool = True,
        scaler: torch.amp.GradScaler | None = None,
        clip: Callable[[Iterable[torch.Tensor]], Any] | None = None,
    ) -> None:
        # Do not call Optimizer.__init__, which would create separate parameter groups.
        self.optimizer = optimizer
        self.scaler = scaler
        self._clip = clip
        self.gradient_state = GradientState()
        if device_placement and optimizer.state:
            optimizer.load_state_dict(optimizer.state_dict())  # moves it to the devices of the parameters
        self._begin()

    def _begin(self) -> None:
        """Makes its steps known to the controls, and registers a hook that detects whether the scaler skipped one.

        Called again after unpickling, which drops the hook.
        """
        self._skipped = self._has_stepped = self._stepped = False
        if events.step_control() is not None:
            self.gradient_state.observers.add(CONTROLS)
        if self.scaler is not None:
            this = weakref.ref(self)
            self.optimizer.register_step_post_hook(lambda optimizer, *_: _record_step(this(), optimizer))

    def __getstate__(self) -> dict[str, Any]:
        names = ("optimizer", "scaler", "_clip", "gradient_state")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    state: Any = _of_own("state", "The state of each parameter.")
    param_groups: Any = _of_own("param_groups", "The parameter groups with their options.")
    defaults: Any = _of_own("defaults", "The options of parameter groups that do not set their own.")

    @property
    def step_was_skipped(self) -> bool:
        """Whether the scaler skipped the last step because gradients had overflowed."""
        return self._skipped

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Clears the gradients, unless they are being accumulated."""
        if self.gradient_state.sync_gradients:
            if set_to_none is None:
                self.optimizer.zero_grad()
            else:
                self.optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Updates the parameters, unless gradients are being accumulated; returns the loss of the closure, if any.

        The loss is its mean over the ranks, all of which call the closure: an optimizer such as `LBFGS` decides by it
        how far to go, and when to stop.

        Raises:
            ConfigurationError: Gradients aren't averaged, or the ranks can't agree on the loss, because some may have
                run out of batches.
        """
        if not self.gradient_state.sync_gradients:
            return None
        if not self._has_stepped:
            self._has_stepped = True
            self._check_gradients(closure)
        if self.check is not None and closure is None:
            self.check(self.optimizer)
        if self._clip is not None:
            self._clip_gradients(self._clip)
        observers = self.gradient_state.observers
        for begin in observers.before_step:
            begin()
        loss = self._step(_averaged(closure))
        for end in observers.after_step:
            end(self)
        return loss

    def _clip_gradients(self, clip: Callable[[Iterable[torch.Tensor]], Any]) -> None:
        if self.scaler is not None:
            stage = self.scaler._per_optimizer_states[id(self.optimizer)]["stage"]
            if stage is OptState.READY:  # not if the user's code has removed the scaling already
                self.scaler.unscale_(self.optimizer)
        clip([parameter for group in self.param_groups for parameter in group["params"]])

    def _step(self, closure: Callable[[], float] | None) -> Any:
        if self.scaler is not None:
            return self._scaled_step(self.scaler, closure)
        return self.optimizer.step() if closure is None else self.optimizer.step(closure)

    def _check_gradients(self, closure: Callable[[], float] | None) -> None:
        if closure is None and all(each.grad is None for group in self.param_groups for each in group["params"]):
            warnings.warn(
                "optimizer.step() found no gradients, so it changes nothing: call accelerator.backward(loss) before it",
                stacklevel=3,
            )

    def _scaled_step(self, scaler: torch.amp.GradScaler, closure: Callable[[], float] | None) -> Any:
        self._stepped = False
        loss = scaler.step(self.optimizer) if closure is None else scaler.step(self.optimizer, closure)
        scaler.update()
        self._skipped = not self._stepped
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optimizer.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state_dict)

    def train(self) -> None:
        """Switches to training mode, for optimizers that have modes, such as schedule-free ones."""
        if hasattr(self.optimizer, "train"):
            self.optimizer.train()

    def eval(self) -> None:
        """Switches to evaluation mode; see `train`."""
        if hasattr(self.optimizer, "eval"):
            self.optimizer.eval()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.optimizer!r})"


def _averaged(closure: Callable[[], Any] | None) -> Callable[[], Any] | None:
    """A closure that returns the mean of the ranks' losses."""
    if closure is None or not PartialState().use_distributed:
        return closure
    refuse_uneven("the loss of a closure is averaged over all ranks", "call step() without one")

    def averaged() -> Any:
        loss = closure()
        if loss is None:
            return None
        mean = collectives.mean_of(float(loss.detach() if isinstance(loss, torch.Tensor) else loss))
        return loss.detach().new_tensor(mean) if isinstance(loss, torch.Tensor) else mean

    return averaged


def _record_step(prepared: AcceleratedOptimizer | None, optimizer: Optimizer) -> None:
    # The scaler calls fused optimizers even after an overflow, since they check for it themselves.
    found = getattr(optimizer, "found_inf", None)
    if prepared is not None:
        prepared._stepped = found is None or not found.item()
