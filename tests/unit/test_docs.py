"""The examples in the documents run as they stand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import run

import htsrl

ROOT = Path(htsrl.__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(document: Path) -> list[str]:
    """The self-contained blocks of Python: those that import what they use."""
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    return [block for block in blocks if block.startswith(("import", "from"))]


def smaller(experiment: htsrl.Experiment) -> htsrl.Experiment:
    """As little as shows that it runs; sequences for a memory are left as long as they are."""
    if experiment.network.memory != "none":
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


def test_there_are_examples() -> None:
    assert {
        "README-0",
        "baselines-0",
        "teams-0",
        "normalization-0",
        "spaces-0",
        "masks-0",
        "memory-0",
        "policies-0",
        "export-0",
        "export-2",
    } <= {str(example.id) for example in EXAMPLES}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_every_link_between_documents_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text())
    missing = [link for link in links if not (document.parent / link).exists()]
    assert not missing


def test_every_test_that_a_document_names_exists() -> None:
    named = {name for document in DOCUMENTS for name in re.findall(r"\b(\w+/test_\w+\.py)", document.read_text())}
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / "tests" / name).exists()] == []
