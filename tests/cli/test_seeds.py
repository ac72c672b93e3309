"""`htsrl train --seeds` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run_htsrl

from htsrl.digest import read_links

SMALL = ("train", "CartPole-v1", "--num-envs", "2", "--sync-interval", "32", "--total-steps", "64", "--epochs", "1")


def test_seeds_are_runs_of_one_group_and_each_has_its_digest(tmp_path: Path) -> None:
    outcome = run_htsrl(tmp_path, *SMALL, "--no-tensorboard", "--seeds", "3,5", "--run-dir", "group")
    assert outcome.exit_code == 0, outcome.stderr
    for seed in (3, 5):
        folder = tmp_path / "group" / f"seed-{seed}"
        assert json.loads((folder / "config.json").read_text())["experiment"]["seed"] == seed
        assert f"digest    {read_links(folder)[-1].chain}  seed {seed}" in outcome.stdout
    assert "htsrl report group" in outcome.stdout


@pytest.mark.parametrize("seeds", ["5..1", "1,1", "one", ""])
def test_seeds_that_are_none_are_refused_before_anything_starts(tmp_path: Path, seeds: str) -> None:
    outcome = run_htsrl(tmp_path, *SMALL, "--seeds", seeds, "--run-dir", "group")
    assert outcome.exit_code == 2
    assert "seeds" in outcome.stderr
    assert not (tmp_path / "group").exists()
