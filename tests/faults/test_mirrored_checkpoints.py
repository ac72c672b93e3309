"""A run whose machine is lost with its folder continues from the copies at another address."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers import Outcome, assert_same_run
from small_run import oracle, quiet_placement, resume_inline, small_experiment

from htsrl import Config, ConfigError, RunFolderError, train
from htsrl.observers import mirror as mirroring
from htsrl.observers.mirror import Mirror, fetch
from htsrl.observers.observer import CheckpointEvent

pytest.importorskip("fsspec")
NUM_UPDATES, LAST_COPY = 20, 12


class LostMidway(Mirror):
    """Copies nothing that comes later: by then the machine is lost."""

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        if event.version <= LAST_COPY:
            super().on_checkpoint(event)


def test_a_run_goes_on_from_its_copies_to_the_same_bits(tmp_path: Path) -> None:
    address = f"memory://{tmp_path.name}"
    placement = quiet_placement(backend="inline", run_dir=tmp_path / "run", checkpoint_every_updates=4)
    train(Config(small_experiment(NUM_UPDATES), placement), observers=[LostMidway(address)])
    shutil.rmtree(tmp_path / "run")
    fetched = fetch(f"{address}/run", tmp_path / "fetched")
    assert [path.name for path in sorted((fetched / "checkpoints").iterdir())] == ["000000008", "000000012"]
    resume_inline(fetched)
    assert_same_run(Outcome.read(fetched), oracle(NUM_UPDATES))


def test_an_address_that_cannot_be_reached_costs_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("no folder")
    placement = quiet_placement(backend="inline", run_dir=tmp_path / "run", checkpoint_every_updates=4)
    mirror = Mirror(str(tmp_path / "file"))
    train(Config(small_experiment(8), placement), observers=[mirror], strict_observers=True)
    assert "was not copied" in capfd.readouterr().err


def test_what_is_no_address_or_no_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HTSRL_MIRROR", raising=False)
    with pytest.raises(ConfigError, match="HTSRL_MIRROR=s3"):
        Mirror()
    with pytest.raises(ConfigError, match="cannot be opened"):
        Mirror("nowhere://bucket")
    with pytest.raises(RunFolderError, match="holds no config"):
        fetch("memory://nothing", tmp_path / "run")
    with pytest.raises(ConfigError, match="exists already"):
        fetch("memory://nothing", tmp_path)


def test_a_fetch_that_breaks_off_leaves_nothing_behind_and_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "config.json").write_text("{}")

    def breaks_off(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(mirroring, "_fetch_files", breaks_off)
        assert mirroring.main([f"{tmp_path}/kept", f"{tmp_path}/new/run"]) == "error: no space left on device"
    assert list((tmp_path / "new").iterdir()) == []
    assert mirroring.main([f"{tmp_path}/kept", f"{tmp_path}/new/run"]) is None
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["run"]
    assert "exists already" in str(mirroring.main([f"{tmp_path}/kept", f"{tmp_path}/new/run"]))
