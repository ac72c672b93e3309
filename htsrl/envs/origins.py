"""Where an environment, or a network or algorithm of the user's own, comes from: installed packages and own files.

They are found from the objects themselves: the modules of their classes, wrappers and parts, and what those import. A
module of an installed package is known by the package's version, any other by its source.
"""

from __future__ import annotations

import dis
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium

from htsrl.source_hashes import source_hash

IDENTIFIED_ELSEWHERE = frozenset({"htsrl", "gymnasium", "numpy", "torch"})
"""The fingerprint has them anyway."""
SCRIPTS = frozenset({"__main__", "__mp_main__"})
"""A script that trains may be another one than that which resumes, and changes with every setting."""
MAX_DEPTH, MAX_OBJECTS, MAX_ITEMS = 4, 2000, 64
IMPORT_NAME = dis.opmap["IMPORT_NAME"]
IMPORTERS = frozenset({"import_module", "import_simulator"})


@dataclass(frozen=True)
class Origins:
    """What must be the same for an environment to be the same."""

    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of installed packages."""
    own_modules: Mapping[str, str] = field(default_factory=dict)
    """Hashes of the sources of modules that are part of none."""

    def __or__(self, other: Origins) -> Origins:
        packages, own = {**self.packages, **other.packages}, {**self.own_modules, **other.own_modules}
        return Origins(dict(sorted(packages.items())), dict(sorted(own.items())))


def origins_of(*things: object) -> Origins:
    """Of objects, classes and functions with all that they hold; of text like MODULE or MODULE:NAME, the module."""
    packages, own_modules = {}, {}
    waiting, seen = deque(_modules_behind(things)), set[str]()
    while waiting:
        name = waiting.popleft()
        top_level, module = name.partition(".")[0], sys.modules.get(name)
        if name in seen or module is None or top_level in IDENTIFIED_ELSEWHERE | SCRIPTS | sys.stdlib_module_names:
            continue
        seen.add(name)
        if package := _package_of(top_level):
            packages[package.name] = package.version
        elif file := getattr(module, "__file__", None):
            own_modules[name] = source_hash(Path(file))
            waiting.extend(_imported_by(module))
    return Origins(packages, own_modules) | Origins()


def _modules_behind(things: tuple[object, ...]) -> list[str]:
    """The modules that things, their parts and their classes come from, and what those modules import."""
    names: dict[str, None] = {}
    waiting, seen = deque((thing, 0) for thing in things), dict[int, object]()  # kept, so that no number is used again
    while waiting and len(seen) < MAX_OBJECTS:
        thing, depth = waiting.popleft()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        names.update(dict.fromkeys(_named_by(thing)))
        if depth < MAX_DEPTH:
            waiting.extend((part, depth + 1) for part in _parts(thing))
    modules = [sys.modules[name] for name in names if name in sys.modules and not _is_library(name)]
    return [*names, *(name for module in modules for name in _imported_by(module))]


def _named_by(thing: object) -> Iterator[str]:
    """The names of the modules that one thing comes from."""
    if isinstance(thing, str):
        yield thing.partition(":")[0]
    elif isinstance(thing, ModuleType):
        yield thing.__name__
    elif isinstance(thing, FunctionType | BuiltinFunctionType | MethodType):
        yield str(thing.__module__)
    else:
        for cls in (thing if isinstance(thing, type) else type(thing)).__mro__:
            yield cls.__module__
            # Constructors have been called; what else could be imported later may or may not have been.
            if isinstance(constructor := vars(cls).get("__init__"), FunctionType) and not _is_library(cls.__module__):
                yield from _imported_inside(constructor.__code__)


def _is_library(module: str) -> bool:
    """Whether it imports much that has nothing to do with one environment."""
    top_level = module.partition(".")[0]
    return top_level in ("gymnasium", "numpy", "torch") or top_level in sys.stdlib_module_names


def _parts(thing: object) -> list[Any]:
    """What it holds; not the characters, numbers and tensors."""
    if isinstance(thing, list | tuple):
        return [part for part in thing[:MAX_ITEMS] if not isinstance(part, str)]
    if isinstance(thing, dict):
        return [part for part in list(thing.values())[:MAX_ITEMS] if not isinstance(part, str)]
    if isinstance(thing, partial):
        return [thing.func, list(thing.args), thing.keywords]
    if isinstance(thing, MethodType):
        return [thing.__self__]
    if isinstance(thing, FunctionType):
        return [cell.cell_contents for cell in thing.__closure__ or () if _is_filled(cell)]
    is_wrapper = isinstance(thing, gymnasium.Env)  # Gymnasium's own, perhaps, but of something else
    if isinstance(thing, type | ModuleType) or (_is_library(type(thing).__module__) and not is_wrapper):
        return []
    return [part for part in getattr(thing, "__dict__", {}).values() if not isinstance(part, str)]


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _imported_by(module: ModuleType) -> Iterator[str]:
    """The modules that a module's global names come from."""
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(value, FunctionType | type):
            yield value.__module__


def _imported_inside(code: CodeType) -> Iterator[str]:
    """The modules that a function imports when it is called."""
    if IMPORT_NAME in code.co_code[::2]:
        yield from (str(step.argval) for step in dis.get_instructions(code) if step.opcode == IMPORT_NAME)
    if not IMPORTERS.isdisjoint(code.co_names):
        yield from (text for text in code.co_consts if isinstance(text, str) and text in sys.modules)


@cache
def _package_of(top_level: str) -> Distribution | None:
    """The installed package that a top-level module is part of; None for the user's own."""
    module = sys.modules.get(top_level)
    places = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None) or ""]
    folder = Path(places[0]).parent
    if folder.name not in ("site-packages", "dist-packages"):
        return None
    for package in distributions(name=top_level, path=[str(folder)]):
        return package
    others = list(distributions(path=[str(folder)]))
    by_name = (package for package in others if top_level in (package.read_text("top_level.txt") or "").split())
    by_file = (package for package in others if f"\n{top_level}/" in f"\n{package.read_text('RECORD')}")
    return next(by_name, None) or next(by_file, None)  # few say the first, all the second, at length
