"""The bench of starts: what counts as a first step, and what the record says."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from htsrl.errors import ConfigError
from htsrl_bench.highlights import highlights_of
from htsrl_bench.start import Start, measure, stamped_env, summary, table


def test_the_first_step_of_a_process_leaves_its_time(tmp_path: Path) -> None:
    env = stamped_env("CartPole-v1", str(tmp_path))
    env.reset(seed=0)
    assert not list(tmp_path.iterdir())
    begun = time.monotonic()

    env.step(0)
    (file,) = tmp_path.iterdir()
    stamp = file.read_text()
    env.step(0)
    other = stamped_env("CartPole-v1", str(tmp_path))
    other.reset(seed=0)
    other.step(0)

    assert file.name == str(os.getpid())
    assert begun <= float(file.read_text()) <= time.monotonic()
    assert file.read_text() == stamp


def test_a_work_without_stamps_has_a_first_update_only() -> None:
    document = summary([Start("a", 1.0, 2.0, 3.0), Start("b", None, 4.0, 5.0), Start("a", 1.5, 2.5, 3.5)])

    cells = [[cell.strip() for cell in line.split("|")] for line in table(document, 2).markdown().splitlines()[2:4]]

    assert cells[0][1:4] == ["a", "1.2 (1.0 to 1.5)", "2.2 (2.0 to 2.5)"]
    assert cells[1][1:4] == ["b", "", "4.0 (4.0 to 4.0)"]
    assert highlights_of("start", document)[1] == ("b: seconds from the command to the first update", "4.0")


def test_unknown_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="work 'pong' is not known"):
        measure(["pong"], 1)
