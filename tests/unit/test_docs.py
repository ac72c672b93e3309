"""The examples in the documents run as they stand."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from helpers import run

import htsrl
from htsrl.metrics.sinks import read_json_lines

ROOT = Path(htsrl.__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples(document: Path) -> list[str]:
    """The self-contained blocks of Python: those that import what they use."""
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    return [block for block in blocks if block.startswith(("import", "from"))]


def smaller(experiment: htsrl.Experiment) -> htsrl.Experiment:
    """As little as shows that it runs; sequences of a recurrent policy are left as long as they are."""
    if experiment.network.recurrent != "none":
        assert isinstance(experiment.algorithm, htsrl.PPO)
        return replace(
            experiment, algorithm=replace(experiment.algorithm, epochs=1), total_steps=experiment.batch_steps
        )
    return replace(experiment, num_envs=2, sync_interval=16, total_steps=32)


EXAMPLES = [
    pytest.param(block, id=f"{document.stem}-{i}")
    for document in DOCUMENTS
    for i, block in enumerate(examples(document))
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "example", "exec"), names)
    for experiment in [value for value in names.values() if isinstance(value, htsrl.Experiment)]:
        run(smaller(experiment))
    if "Meeting" in names:
        run(htsrl.Experiment(names["Meeting"], num_envs=2, sync_interval=64, total_steps=256))


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files that docs/extending.md shows, on the path."""
    shown = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)
    for name, content in shown:
        (tmp_path / name).write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name, _ in shown:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_the_files_of_extending_train(own_modules: Path) -> None:
    auxiliary, observer = import_module("my_auxiliary"), import_module("my_observer")
    algorithm, network = auxiliary.PredictsRewards.Settings(), htsrl.Network(policy="my_auxiliary:Predictor")
    experiment = htsrl.Experiment(
        "CartPole-v1", algorithm=algorithm, network=network, gradient_shards=2, num_envs=2, total_steps=96
    )
    inline = htsrl.Placement("inline", tensorboard=False, progress="off", run_dir=own_modules / "run")
    notes, losses = observer.Notes(), set(auxiliary.PredictsRewards.loss_names)
    result = htsrl.train(htsrl.Config(experiment, inline), observers=[notes], strict_observers=True)
    assert result.updates == 3
    assert notes.best > 0
    assert all(losses < line.keys() for line in read_json_lines(own_modules / "run" / "metrics.jsonl"))


def test_the_tutorials_program_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    inline = htsrl.Placement("inline", tensorboard=False, progress="off", run_dir=Path("runs/first"))
    htsrl.train(htsrl.Config(smaller(htsrl.Experiment("CartPole-v1")), inline))
    (program,) = re.findall(r"```python\n# play.py\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL)
    exec(compile(program, "play.py", "exec"), {"__name__": "play"})
    assert "version 1 scores" in capsys.readouterr().out


def test_there_are_examples() -> None:
    assert {
        "README-0",
        "baselines-0",
        "teams-0",
        "normalization-0",
        "spaces-0",
        "masks-0",
        "recurrent-0",
        "policies-0",
        "export-0",
        "export-2",
        "using-a-policy-0",
    } <= {str(example.id) for example in EXAMPLES}


@pytest.mark.parametrize("document", LINKED, ids=lambda document: str(document.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]*))?\)", document.read_text())
    targets = [(document.parent / link if link else document, anchor) for link, anchor in links]
    assert [str(target) for target, _ in targets if not target.exists()] == []
    assert [(target.name, anchor) for target, anchor in targets if anchor and anchor not in anchors(target)] == []


def anchors(document: Path) -> set[str]:
    """Those of its headings, as GitHub and MkDocs make them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_the_site_has_every_document() -> None:
    named = set(re.findall(r":\s+(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert named == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}


SOURCES = [ROOT, *(ROOT / place for place in ("tests", "htsrl", "htsrl/algorithms"))]
"""Where a path that a document names may begin."""


@pytest.mark.parametrize("document", LINKED, ids=lambda document: str(document.relative_to(ROOT)))
def test_every_source_that_a_document_names_exists(document: Path) -> None:
    named = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.py)\b", document.read_text()))
    assert [name for name in sorted(named) if not any((place / name).exists() for place in SOURCES)] == []
