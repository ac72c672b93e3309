"""Who may import whom, read from the source and seen in a fresh interpreter."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import htsrl
from htsrl.source_hashes import is_left_out

PACKAGE = Path(htsrl.__file__).parent
LOWER_LAYERS = ("algorithms", "policies", "envs")
UPPER_LAYERS = ("roles", "placements")
WITHOUT_TORCH = (
    "htsrl.placements.worker",
    "htsrl.placements.blueprint",
    "htsrl.placements.assignment",
    "htsrl.policies.light",
    "htsrl.roles.actor",
    "htsrl.roles.answers",
    "htsrl.roles.executor",
    "htsrl.roles.env_runner",
    "htsrl.envs.make",
    "htsrl.envs.agents",
    "htsrl.envs.atari",
    "htsrl.envs.check.child",
    "htsrl.envs.contract",
    "htsrl.envs.football",
    "htsrl.envs.toy",
    "htsrl.roles.shared",
    "htsrl.seeding",
)


def modules() -> dict[str, Path]:
    """Every module of htsrl by its dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


class WithoutTypes(ast.NodeTransformer):
    """Leaves what is imported when code runs."""

    def visit_If(self, node: ast.If) -> ast.If | list[ast.stmt]:
        return node.orelse if ast.unparse(node.test) == "TYPE_CHECKING" else node


def imports_of(module: str, for_types: bool = True) -> set[str]:
    """The modules of htsrl that one imports by name, anywhere: at its top, in functions, for types."""
    found: set[str] = set()
    tree = ast.parse(MODULES[module].read_text())
    for node in ast.walk(tree if for_types else WithoutTypes().visit(tree)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively, which this test does not follow"
            assert node.module is not None
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found & MODULES.keys()


def everything_imported_by(module: str) -> dict[str, str]:
    """All that a module imports, directly or not, each with a module that names it.

    The package itself imports everything; that `htsrl/__init__.py` runs first does not count as anyone's import.
    """
    importer_of: dict[str, str] = {}
    waiting = [module]
    while waiting:
        importer = waiting.pop()
        for imported in sorted(imports_of(importer) - importer_of.keys() - {"htsrl"}):
            importer_of[imported] = importer
            waiting.append(imported)
    return importer_of


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("layer", LOWER_LAYERS)
def test_mathematics_networks_and_environments_import_neither_roles_nor_placements(layer: str) -> None:
    members = [module for module in MODULES if layer_of(module) == layer]
    assert len(members) > 1
    offences = [
        f"{module} reaches {imported} through {importer}"
        for module in members
        for imported, importer in everything_imported_by(module).items()
        if layer_of(imported) in UPPER_LAYERS
    ]
    assert not offences


@pytest.mark.parametrize("layer", LOWER_LAYERS)
def test_mathematics_networks_and_environments_do_not_reach_for_the_whole_package(layer: str) -> None:
    """`import htsrl` would hand them everything."""
    for module in MODULES:
        if layer_of(module) == layer:
            tree = ast.walk(ast.parse(MODULES[module].read_text()))
            sources = [node.module for node in tree if isinstance(node, ast.ImportFrom)]
            assert "htsrl" not in sources, f"{module} imports from the package itself"


# What the code hash of a fingerprint leaves out (htsrl/source_hashes.py).

CANNOT_CHANGE_BITS_BECAUSE = {
    "what they decide is among the settings of the experiment": (
        "htsrl.config.preset",
        "htsrl.algorithms.a2c.presets",
        "htsrl.algorithms.discrete_sac.presets",
        "htsrl.algorithms.dqn.presets",
        "htsrl.algorithms.ppo.presets",
        "htsrl.algorithms.sac.presets",
        "htsrl.algorithms.td3.presets",
    ),
    "they say where and for how long a run continues, not what it computes": (
        "htsrl.planning.tune",
        "htsrl.runs.evaluations",
    ),
    "they admit or refuse, before anything is computed": (
        "htsrl.envs.looked_at",
        "htsrl.envs.repeats",
        "htsrl.metrics.trackers",
        "htsrl.runs.lock",
        "htsrl.runs.signatures",
        "htsrl.runs.trust",
    ),
    "they keep processes alive, named, informed and quiet": (
        "htsrl.processes.interrupts",
        "htsrl.processes.liveness",
        "htsrl.processes.parent_death",
        "htsrl.processes.process_name",
        "htsrl.processes.warnings_once",
    ),
    "they are told what was computed": (
        "htsrl",  # its version
        "htsrl.checkpoint.snapshots",
        "htsrl.metrics.curve",
        "htsrl.metrics.evaluation",
        "htsrl.metrics.gauges",
        "htsrl.metrics.line_file",
        "htsrl.metrics.pace",
        "htsrl.metrics.readings",
        "htsrl.metrics.sinks",
        "htsrl.observers.dispatch",
        "htsrl.observers.observer",
        "htsrl.observers.parameters",
        "htsrl.placements.instruments",
        "htsrl.runs.beside_training",
        "htsrl.runs.filming",
        "htsrl.runs.recorder",
        "htsrl.runs.reproducer",
        "htsrl.stderr",
        "htsrl.timeline.arrays",
        "htsrl.timeline.document",
    ),
}


def test_what_computes_imports_nothing_that_the_code_hash_leaves_out_but_for_a_reason() -> None:
    left_out = {module for module, path in MODULES.items() if is_left_out(path.relative_to(PACKAGE))}
    imports = {(imported, by) for by in MODULES.keys() - left_out for imported in imports_of(by, for_types=False)}
    needed = {imported: by for imported, by in sorted(imports) if imported in left_out}
    with_reason = {module for modules in CANNOT_CHANGE_BITS_BECAUSE.values() for module in modules}
    assert {imported: by for imported, by in needed.items() if imported not in with_reason} == {}
    assert with_reason - needed.keys() == set(), "nobody who computes imports these any more"


# Packages: the folders of htsrl and the modules beside them.

Edges = Mapping[str, Mapping[str, str]]
"""By package, those that it imports, each with the modules that do."""


def package_edges() -> Edges:
    """From all imports there are: at the top, in functions, for types. `htsrl` itself, which has everything, is none.

    Algorithms are found by name, so that `config` can ask one to check its settings without importing any.
    """
    edges: dict[str, dict[str, str]] = {}
    for module in sorted(MODULES.keys() - {"htsrl"}):
        own = edges.setdefault(layer_of(module), {})
        for imported in sorted(imports_of(module) - {"htsrl"}):
            if layer_of(imported) != layer_of(module):
                own.setdefault(layer_of(imported), f"{module} imports {imported}")
    return edges


def shortest_cycle(edges: Edges) -> list[str]:
    """The imports that lead from a package back to itself; none where packages are in layers."""
    found = [cycle for package in edges if (cycle := _way(edges, package, package))]
    return min(found, key=len, default=[])


def _way(edges: Edges, begin: str, end: str) -> list[str]:
    """The shortest way from one package to another, import by import."""
    ways: dict[str, list[str]] = {begin: []}
    waiting = [begin]
    for package in waiting:
        for imported, why in edges[package].items():
            if imported == end:
                return [*ways[package], why]
            if imported not in ways:
                ways[imported] = [*ways[package], why]
                waiting.append(imported)
    return []


def test_no_packages_import_one_another() -> None:
    assert shortest_cycle(package_edges()) == []


def test_a_cycle_would_be_found() -> None:
    edges = {"roles": {"dataflow": "1"}, "dataflow": {"errors": "2", "sources": "3"}, "sources": {"roles": "4"}}
    assert shortest_cycle({**edges, "errors": {}, "cli": {"roles": "5"}}) in (["1", "3", "4"], ["3", "4", "1"])
    assert shortest_cycle({**edges, "sources": {}, "errors": {}}) == []


def test_this_file_follows_imports_that_exist() -> None:
    assert "htsrl.algorithms.returns" in imports_of("htsrl.algorithms.a2c.algorithm")
    assert "htsrl.dataflow.shared_arrays" in everything_imported_by("htsrl.algorithms.a2c.algorithm")
    assert "htsrl.roles.learner" in everything_imported_by("htsrl.placements.worker")


def test_what_executors_run_imports_no_torch() -> None:
    """A torch in every executor would cost seconds at the start and hundreds of megabytes."""
    script = "\n".join(
        f"import {module}; assert 'torch' not in sys.modules, '{module} imports torch'" for module in WITHOUT_TORCH
    )
    completed = subprocess.run(
        [sys.executable, "-c", f"import sys\n{script}"], capture_output=True, text=True, cwd=PACKAGE.parent, timeout=120
    )
    assert completed.returncode == 0, completed.stderr


# What is made and asked.

MANY_ARGUMENTS = {"htsrl.envs.atari.environment.Atari"}
"""An environment's arguments are its settings."""


def classes_of(module: str) -> dict[str, ast.ClassDef]:
    found = [node for node in ast.walk(ast.parse(MODULES[module].read_text())) if isinstance(node, ast.ClassDef)]
    return {f"{module}.{node.name}": node for node in found}


def test_no_constructor_takes_more_than_six_arguments() -> None:
    classes = {name: node for module in MODULES for name, node in classes_of(module).items()}
    made = {
        name: len(member.args.args) + len(member.args.kwonlyargs) - 1
        for name, node in classes.items()
        for member in node.body
        if isinstance(member, ast.FunctionDef) and member.name == "__init__"
    }
    assert {name for name, number in made.items() if number > 6} == MANY_ARGUMENTS


def test_nobody_asks_which_algorithm_schedule_or_source_it_is() -> None:
    closed = ("algorithms", "schedules", "sources")
    names = {name.rpartition(".")[2] for m in MODULES if layer_of(m) in closed for name in classes_of(m)}
    asked = [
        f"{module} asks for {ast.unparse(node)}"
        for module in MODULES
        if layer_of(module) not in closed
        for node in ast.walk(ast.parse(MODULES[module].read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
        if names & set(re.findall(r"\w+", ast.unparse(node.args[1])))
    ]
    assert not asked


DEEDS = {"advance", "append", "close", "pop", "put", "release", "remove", "send", "step", "take", "update", "write"}


def test_no_deed_is_done_within_an_assertion() -> None:
    """`python -O` leaves assertions out, and everything that is called in them."""
    found = []
    for module, path in MODULES.items():
        assertions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Assert)]
        calls = [node.func for one in assertions for node in ast.walk(one.test) if isinstance(node, ast.Call)]
        found += [(module, name) for func in calls if (name := getattr(func, "attr", getattr(func, "id", ""))) in DEEDS]
    assert found == []
