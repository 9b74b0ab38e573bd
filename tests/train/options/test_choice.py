"""Members of Accelerate's enums: each is here, or says what to use instead."""

import enum

import pytest
from accelerate.utils import dataclasses as accelerate_enums

from notebook_accel import utils
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks.seeds import synchronize_rng_state

ENUMS = ["DDPCommunicationHookType", "DynamoBackend", "FP8BackendType", "LoggerType", "PrecisionType", "RNGType"]


def lacking(name: str) -> list[str]:
    theirs: type[enum.Enum] = getattr(accelerate_enums, name)
    return sorted({*theirs.__members__} - {*getattr(utils, name).__members__})


@pytest.mark.parametrize("name", ENUMS)
def test_each_member_of_accelerates_is_here_or_explained(name: str) -> None:
    for member in lacking(name):
        with pytest.raises(AttributeError, match=rf"notebook_accel has no {name}\.{member}\. \w+"):
            getattr(getattr(utils, name), member)
        assert not hasattr(getattr(utils, name), member)


def test_some_members_are_lacking() -> None:
    assert "XLA" in lacking("RNGType")
    assert "TVM" in lacking("DynamoBackend")


def test_other_names_are_plainly_unknown() -> None:
    with pytest.raises(AttributeError, match=r"^LoggerType has no member 'XYZZY'$"):
        utils.LoggerType.XYZZY  # type: ignore[attr-defined]  # noqa: B018


def test_a_string_for_a_lacking_member_is_explained_too() -> None:
    with pytest.raises(ConfigurationError, match=r"'xla' must be one of torch, .* call set_seed"):
        synchronize_rng_state("xla")
