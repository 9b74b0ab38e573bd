"""A cell as a function without arguments, which can be launched as any other."""

from __future__ import annotations

import ast
import builtins
import symtable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.wire import stack_frames
from notebook_accel.notebook.cells import free_names

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_MAGIC = "%%accelerate"
_NAME = "cell"
_IPYTHON = "get_ipython()"
_LAUNCHERS = ("notebook_launcher", "debug_launcher")
_NONE = object()


def as_function(shell: InteractiveShell, text: str, name: str) -> FunctionType:
    """Makes a function that runs a cell, with what the notebook has defined under the names that it reads.

    The names that it assigns are global there, as in the cell, so that functions that it defines see them. A line
    `%%accelerate` is left out.

    Args:
        shell: The notebook's.
        text: The cell as its user has written it.
        name: What to call it in tracebacks, such as `In[3]`.

    Raises:
        ConfigurationError: It is not Python, or contains what only IPython runs.
    """
    first, _, rest = text.partition("\n")
    if first.startswith(_MAGIC):
        text = f"#\n{rest}"  # the lines keep their numbers
    source: str = shell.transform_cell(text)  # type: ignore[no-untyped-call]
    stack_frames.cache_cell_sources({name: source})
    try:
        if _IPYTHON in source and _IPYTHON not in text:
            raise ConfigurationError("the cell has magics or shell lines, which only the kernel runs: leave them out")
        tree = ast.parse(source, name)
        _check(tree)
        assigned = sorted(
            each.get_name()
            for each in symtable.symtable(source, name, "exec").get_symbols()
            if each.is_assigned() or each.is_imported()
        )
        body = [*([ast.Global(assigned)] if assigned else []), *(tree.body or [ast.Pass()])]
        function = ast.parse(f"def {_NAME}(): pass").body[0]
        assert isinstance(function, ast.FunctionDef)
        function.body = body
        module = compile(ast.fix_missing_locations(ast.Module([function], [])), name, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise ConfigurationError(f"line {error.lineno} of the cell can't run as a job: {error.msg}") from error
    [code] = (each for each in module.co_consts if isinstance(each, CodeType))
    read = free_names.read_names(tree)
    hidden = shell.user_ns_hidden  # IPython's own
    own = {
        each: value for each, value in shell.user_ns.items() if each in read and value is not hidden.get(each, _NONE)
    }
    made = FunctionType(code, {**own, "__name__": "__main__", "__builtins__": builtins}, _NAME)
    made.__module__ = "__main__"
    return made


def _check(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _LAUNCHERS:
            raise ConfigurationError(
                f"line {node.lineno} of the cell launches ranks itself: start the function that it launches instead"
            )
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            raise ConfigurationError(
                f"line {node.lineno} of the cell imports all names of {node.module}: import those that it uses"
            )
