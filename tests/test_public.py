import inspect
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import accelerate
import pytest

import notebook_accel
from notebook_accel import accelerate_names, errors, exports
from notebook_accel.config import LaunchConfig
from notebook_accel.errors import NotebookAccelError, RankError, RankFailure

GENERATE = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "generate.py"))
KEYWORD_ONLY = {
    "kwargs": None,
    "name": None,
    "notes": None,
    "rules": None,
    "wait": "no",
    "notify": None,
    "gpus": None,
    "device": None,
    "env": None,
    "timeout": None,
    "stall_after": 60.0,
    "min_processes": None,
    "checkpoint": None,
    "every": "5 min",
    "keep": 3,
    "resume": None,
    "time_limit": None,
    "cluster": None,
    "insecure": None,
    "block": None,
    "detach": False,
    "in_process": False,
}


def test_the_reference_names_what_there_is() -> None:
    """Building the documentation fails otherwise, which takes minutes."""
    pages = (Path(__file__).parents[1] / "docs" / "api").glob("*.md")
    named = [name for page in pages for name in re.findall(r"^::: ([\w.]+)", page.read_text(), re.MULTILINE)]
    assert named
    for name in named:
        assert pkgutil.resolve_name(name) is not None


def test_every_public_name_can_be_had() -> None:
    assert notebook_accel.__all__ == sorted(exports.exported())
    assert {"Accelerator", "Job", "attach", "notebook_launcher", "report"} <= {*notebook_accel.__all__}
    assert all(hasattr(notebook_accel, name) for name in notebook_accel.__all__)
    modules = {name for name in (*accelerate_names.WITHOUT_OWN_NAMES, *exports.accelerate_modules()) if "." not in name}
    offered = {name for name in dir(notebook_accel) if not name.startswith("__")}
    assert offered == {*notebook_accel.__all__, *modules}
    with pytest.raises(AttributeError, match="no attribute 'Acelerator'"):
        notebook_accel.Acelerator  # type: ignore[attr-defined]  # noqa: B018


def test_every_name_has_one_module() -> None:
    modules = {(name, row.module) for row in exports.TABLE for name in row.names}
    assert len({name for name, _ in modules}) == len(modules)
    assert all(row.names == sorted(row.exported.split()) + sorted(row.accelerate_only.split()) for row in exports.TABLE)


def test_type_checkers_are_told_of_every_name() -> None:
    stubs = GENERATE["stubs"]()
    told = {path: path.read_text(encoding="utf-8") for path in Path(notebook_accel.__file__).parent.rglob("*.pyi")}
    assert told == stubs, "run scripts/generate"


@pytest.mark.smoke
def test_importing_it_brings_no_torch() -> None:
    code = "import notebook_accel, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_documented() -> None:
    for name in notebook_accel.__all__:
        value = getattr(notebook_accel, name)
        assert isinstance(value, str) or inspect.getdoc(value), name


def test_the_version_is_a_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", notebook_accel.__version__)


def positional(function: object) -> list[tuple[str, object]]:
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.default) for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]


@pytest.mark.parametrize("name", ["notebook_launcher", "debug_launcher"])
def test_a_launcher_can_replace_the_peers(name: str) -> None:
    assert positional(getattr(notebook_accel, name)) == positional(getattr(accelerate, name))


def test_what_the_peer_does_not_have_is_keyword_only() -> None:
    parameters = inspect.signature(notebook_accel.notebook_launcher).parameters.values()
    assert {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY} == KEYWORD_ONLY
    assert not any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters)


def test_a_launch_tells_of_a_stall_after_the_time_that_is_documented() -> None:
    default = inspect.signature(notebook_accel.notebook_launcher).parameters["stall_after"].default
    assert LaunchConfig().stall_after == default == 60.0
    documented = (Path(__file__).parents[1] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert f"has made no progress for {default:g} seconds" in documented


def test_every_argument_is_documented() -> None:
    described = inspect.getdoc(notebook_accel.notebook_launcher) or ""
    for name in inspect.signature(notebook_accel.notebook_launcher).parameters:
        assert f"\n    {name}: " in described, name


def test_every_error_has_one_base_and_one_of_pythons_own() -> None:
    own = [each for each in vars(errors).values() if isinstance(each, type) and each.__module__ == errors.__name__]
    raised = [each for each in own if each is not RankFailure]
    assert all(issubclass(each, NotebookAccelError) for each in raised)
    pythons = {each.__name__: [base for base in each.__mro__ if base.__module__ == "builtins"] for each in raised}
    assert {name: bases[0].__name__ for name, bases in pythons.items()} == {
        "NotebookAccelError": "Exception",
        "UnsupportedNameError": "ImportError",
        "ConfigurationError": "ValueError",
        "UnknownArgumentError": "TypeError",
        "HardwareError": "RuntimeError",
        "PayloadError": "TypeError",
        "LaunchError": "RuntimeError",
        "StreamError": "ConnectionError",
        "JobCancelledError": "RuntimeError",
        "JobLostError": "RuntimeError",
        "JobEndedError": "RuntimeError",
        "CheckpointError": "RuntimeError",
        "PreemptedError": "RuntimeError",
        "DistributedOperationException": "RuntimeError",
        "RankError": "RuntimeError",
        "RankTimeoutError": "RuntimeError",
    }
    assert issubclass(errors.RankTimeoutError, TimeoutError)


def test_an_error_of_ranks_names_the_first() -> None:
    assert RankError("no").rank is None
    assert RankError("no", [RankFailure((3, 1), "died")]).rank == 3


def test_types_are_shipped() -> None:
    assert (Path(notebook_accel.__file__).parent / "py.typed").is_file()


def test_the_extension_loads_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        def warm(self) -> None:
            raise errors.LaunchError("the process that starts the ranks can't be started")

    attached: list[object] = []
    monkeypatch.setattr("notebook_accel.launch.engines.default", Engine)
    monkeypatch.setattr("notebook_accel.notebook.attach", attached.append)
    notebook_accel.load_ipython_extension("a shell")
    assert attached == ["a shell"]
