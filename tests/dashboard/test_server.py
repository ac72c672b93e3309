"""The server answers only who has the token, shows folders of strangers as data, and never reads outside of them."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_runs import HOSTILE, add_metrics, make_hostile_run, make_run, make_timeline
from dashboard_server import TOKEN, Dashboard, serving

from htsrl.dashboard import catalog
from htsrl.dashboard.run_files import RunFiles
from htsrl.runs.lock import RunLock


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """Without runs, for questions that do not come as far as those."""
    with serving(tmp_path_factory.mktemp("runs")) as made:
        yield made


@pytest.fixture
def dashboard(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dashboard]:
    monkeypatch.setattr(catalog, "REFRESH_SECONDS", 0.0)
    runs.mkdir()
    with serving(runs) as made:
        yield made


PATHS = ["/", "/main.js", "/api/runs", "/api/run/x", "/video/x/0"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", ["", "/", "/wrong", f"/{TOKEN}x", f"/{TOKEN[:-1]}", f"//{TOKEN}", f"/x/../{TOKEN}"])
def test_a_request_without_the_token_is_refused(empty: Dashboard, path: str, token: str) -> None:
    assert empty.ask(path, token=token).status == 403
    assert empty.ask(path, token=token, headers={"Cookie": f"token={TOKEN}"}).status == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.1@evil", "", "0.0.0.0"]
)
def test_a_request_under_a_name_of_another_site_is_refused(empty: Dashboard, host: str) -> None:
    assert empty.ask("/api/runs", headers={"Host": host}).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9999"])
def test_names_of_this_machine_are_served(empty: Dashboard, host: str) -> None:
    assert empty.ask("/api/runs", headers={"Host": host}).status == 200


@pytest.mark.parametrize("path", ["/", "/api/runs", "/nothing"])
def test_every_answer_forbids_inline_scripts_and_other_sites(empty: Dashboard, path: str) -> None:
    headers = empty.ask(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers


def test_the_page_loads_nothing_from_elsewhere() -> None:
    static = Path(catalog.__file__).parent / "static"
    for file in static.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text, file
        assert "https:" not in text, file
        assert "innerHTML" not in text, file
        assert "<script>" not in text, file


@pytest.mark.parametrize(
    "path",
    ["/../app.py", "/..%2fapp.py", "/static/../app.py", "/%2e%2e/app.py", "//etc/passwd", "/app.py", "/.", "/%00",
     "/api/run/..%2f..%2fetc", "/video/..%2f..%2fetc%2fpasswd/0", "/video/x/-1"],
)  # fmt: skip
def test_no_path_leads_out_of_the_page(empty: Dashboard, path: str) -> None:
    assert empty.ask(path).status in (400, 404)


@pytest.mark.parametrize("body", [b"", b"[", b"[]", b"7", b"[" * 100_000, b'{"metric": 1}', b"\xff", b" " * 2**21])
def test_a_question_that_is_none_is_refused(empty: Dashboard, body: bytes) -> None:
    for path in ("/api/curves", "/api/metrics"):
        assert empty.ask(path, body=body).status in (400, 413)


def test_runs_are_found_at_any_depth_and_not_through_links(dashboard: Dashboard, runs: Path, tmp_path: Path) -> None:
    make_run(runs / "a")
    make_run(runs / "sweep" / "trial-1" / "b")
    make_run(tmp_path / "secret")
    (runs / "link").symlink_to(tmp_path / "secret")
    assert {row["name"] for row in dashboard.rows()} == {"a", "sweep/trial-1/b"}


@pytest.mark.parametrize(
    "analysis",
    ["[", "7", "[]", '{"importance": 3, "slices": [1]}', '{"importance": {"a": NaN, "b": "x"}, "slices": {"a": 1}}',
     '{"slices": {"a": [1, {"objective": NaN}, {"objective": 1e999, "value": []}, {"objective": 2}]}}'],
)  # fmt: skip
def test_a_sweep_of_anybody_is_shown_as_far_as_it_can_be_read(dashboard: Dashboard, runs: Path, analysis: str) -> None:
    (runs / "search").mkdir()
    (runs / "search" / "analysis.json").write_text(analysis)
    assert [name for name, _ in dashboard.ask("/api/runs").document["sweeps"]] == ["search"]
    for sweep in dashboard.ask("/api/sweeps").document:
        assert sweep["importance"] == []
        assert all(objective == 2.0 for of in sweep["slices"] for _, _, objective, _ in of["trials"])


def test_a_sweep_under_way_shows_the_trials_that_have_ended(dashboard: Dashboard, runs: Path) -> None:
    sweep, settings = runs / "search", {"learning_rate": 0.01}
    sweep.mkdir()
    (sweep / "sweep.json").write_text('{"sweep": {"trials": 20}}')
    before = dashboard.ask("/api/runs").document["sweeps"]
    assert dashboard.ask("/api/sweeps").document[0]["under_way"] == "0 of 20 trials have ended."
    journal = [{"number": i, "settings": settings, "value": 2.0 * i, "state": "complete"} for i in range(3)]
    lines = [*map(json.dumps, journal), "not json", "[]", '{"settings": 3}', '{"number": 4, "unfinished']
    (sweep / "trials.jsonl").write_text("\n".join(lines))
    assert dashboard.ask("/api/runs").document["sweeps"] != before
    shown = dashboard.ask("/api/sweeps").document[0]
    points = [[i, 0.01, 2.0 * i, "complete"] for i in range(3)]
    assert shown["slices"] == [{"setting": "learning_rate", "trials": points}]
    (sweep / "analysis.json").write_text('{"importance": {"learning_rate": 1.0}, "slices": {}}')
    assert dashboard.ask("/api/sweeps").document[0]["importance"] == [["learning_rate", 1.0]]


def test_links_in_a_folder_are_not_followed(dashboard: Dashboard, runs: Path, tmp_path: Path) -> None:
    run = make_run(runs / "a")
    (tmp_path / "secret.json").write_text('{"secret": "seen"}')
    (tmp_path / "secret.mp4").write_bytes(b"seen")
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "b.mp4").write_bytes(b"seen")
    for name in ("fingerprint.json", "timeline.json"):
        (run / name).symlink_to(tmp_path / "secret.json")
    (run / "videos").mkdir()
    (run / "videos" / "a.mp4").symlink_to(tmp_path / "secret.mp4")
    about = dashboard.details()
    assert about["fingerprint"] is None
    assert about["videos"] == []
    (run / "videos" / "a.mp4").unlink()
    (run / "videos").rmdir()
    (run / "videos").symlink_to(tmp_path / "videos")
    about = dashboard.details()
    assert about["videos"] == []
    assert dashboard.ask(f"/video/{about['id']}/0").status == 404


def test_pipes_and_names_that_lead_up_are_no_files(runs: Path) -> None:
    run = make_run(runs / "a")
    os.mkfifo(run / "pipe")
    files = RunFiles(runs, ("a",))
    for names in (("pipe",), ("..", "a", "config.json"), ("../a/config.json",), ("/etc/passwd",), ("",)):
        with pytest.raises(OSError, match=r"not a plain file|not the name of a file"):
            files.open(*names)
        assert files.stamp(*names) is None


def test_a_hostile_folder_is_shown_as_data(dashboard: Dashboard, runs: Path) -> None:
    make_hostile_run(runs)
    about = dashboard.details()
    run_id = about["id"]
    metrics = dashboard.ask("/api/metrics", {"runs": [run_id]}).document
    assert HOSTILE in {metric["name"] for metric in metrics}
    curves = dashboard.ask("/api/curves", {"metric": HOSTILE, "known": [[run_id, ""]], "buckets": 10}).document
    assert curves["curves"][run_id]["curve"]["mean"] == [1.0]
    timeline = dashboard.ask(f"/api/run/{run_id}/timeline").document
    assert len(timeline["workers"]) == 1
    assert any("lines are not metrics" in text for text in dashboard.details()["warnings"])


@pytest.mark.parametrize(
    "content", ["[" * 100_000, "{", "[]", '"x"', '{"experiment": 7}', '{"experiment": {"seed": 1e999}}']
)
@pytest.mark.parametrize(
    "name", ["config.json", "result.json", "timeline.json", "fingerprint.json", "numerics_changes.json"]
)
def test_malformed_documents_are_noted_and_break_nothing(
    dashboard: Dashboard, runs: Path, name: str, content: str
) -> None:
    (make_run(runs / "a") / name).write_text(content)
    about = dashboard.details()
    assert dashboard.ask(f"/api/run/{about['id']}/timeline").status == 200
    if content in ("{", "[" * 100_000) and name != "timeline.json":
        assert any(f"{name} is not JSON" in text for text in dashboard.details()["warnings"])


def test_a_huge_document_is_noted_and_not_read(dashboard: Dashboard, runs: Path) -> None:
    os.truncate(make_run(runs / "a") / "config.json", 2**35)
    assert any("bytes are too many" in text for text in dashboard.details()["warnings"])


def test_a_row_is_sent_again_only_after_it_changed(dashboard: Dashboard, runs: Path) -> None:
    run = make_run(runs / "a", finished=False)
    make_run(runs / "b")
    first = dashboard.ask("/api/runs?since=0").document
    assert len(first["rows"]) == 2
    assert dashboard.ask(f"/api/runs?since={first['generation']}").document["rows"] == []
    add_metrics(run, [{"rollout/ep_rew_mean": 77.0}])
    second = dashboard.ask(f"/api/runs?since={first['generation']}").document
    assert [(row["name"], row["return"]) for row in second["rows"]] == [("a", 77.0)]


def test_curves_are_sent_again_only_after_they_changed(dashboard: Dashboard, runs: Path) -> None:
    run = make_run(runs / "a")
    (row,) = dashboard.rows()
    question = {"metric": "rollout/ep_rew_mean", "known": [[row["id"], ""]], "buckets": 100}
    first = dashboard.ask("/api/curves", question).document["curves"][row["id"]]
    assert first["curve"]["mean"] == [10.0, 20.0, 30.0]
    question["known"] = [[row["id"], first["version"]]]
    assert "curve" not in dashboard.ask("/api/curves", question).document["curves"][row["id"]]
    add_metrics(run, [{"rollout/ep_rew_mean": 40.0}])
    again = dashboard.ask("/api/curves", question).document["curves"][row["id"]]
    assert again["curve"]["mean"] == [10.0, 20.0, 30.0, 40.0]


def test_the_state_of_a_run_follows_its_lock_and_its_result(dashboard: Dashboard, runs: Path) -> None:
    run = make_run(runs / "a", finished=False)
    assert dashboard.rows()[0]["state"] == "failed"
    with RunLock.acquire(run):
        assert dashboard.rows()[0]["state"] == "running"
    assert dashboard.rows()[0]["state"] == "failed"
    (run / "result.json").write_text('{"interrupted": true}')
    assert dashboard.rows()[0]["state"] == "interrupted"
    (run / "result.json").write_text('{"interrupted": true, "stop_reason": "enough"}')
    row = dashboard.rows()[0]
    assert (row["state"], row["stop_reason"]) == ("stopped", "enough")
    (run / "result.json").write_text('{"interrupted": false, "goal_reached": true}')
    assert dashboard.rows()[0]["state"] == "stopped"
    (run / "result.json").write_text('{"interrupted": false}')
    assert dashboard.rows()[0]["state"] == "finished"


def test_looking_at_a_run_keeps_nobody_out_of_it(dashboard: Dashboard, runs: Path) -> None:
    """A lock that was only tried would for a moment be held."""
    run = make_run(runs / "a", finished=False)
    RunLock.acquire(run).release()
    tried: list[str] = []
    flock, fcntl.flock = fcntl.flock, lambda *_: tried.append("flock")
    try:
        dashboard.rows()
    finally:
        fcntl.flock = flock
    assert tried == []


def test_a_run_of_another_machine_is_running_while_it_writes(dashboard: Dashboard, runs: Path) -> None:
    run = make_run(runs / "a", finished=False)
    (run / ".lock").write_text(f"process 12 on not-{socket.gethostname()} since 2026-01-01 00:00:00\n")
    assert dashboard.rows()[0]["state"] == "running"
    os.utime(run / "metrics.jsonl", (0, 0))
    assert dashboard.rows()[0]["state"] == "failed"


def test_the_straggler_and_the_restart_of_a_timeline_are_named(dashboard: Dashboard, runs: Path) -> None:
    make_timeline(make_run(runs / "a"))
    timeline = dashboard.ask(f"/api/run/{dashboard.rows()[0]['id']}/timeline").document
    assert timeline["stragglers"] == [
        "environment 11 in executor 2: 0.4 ms a step, 4.0 times the median of 16",
    ]
    assert timeline["events"] == [{"kind": "restart", "seconds": 1.5, "subject": "executor 1"}]
    assert [env["env"] for env in timeline["environments"] if env["is_straggler"]] == [11]


def test_what_a_held_up_run_waits_for_is_shown_for_as_long_as_it_runs(dashboard: Dashboard, runs: Path) -> None:
    run = make_run(runs / "a", finished=False)
    make_timeline(run)
    document = json.loads((run / "timeline.json").read_text()) | {"started_at": 1000.0}
    (run / "timeline.json").write_text(json.dumps(document))
    stall = {"written_at": 1100.0, "seconds": 42.4, "reason": HOSTILE, "env": 7, "call": "reset", "call_seconds": 41.0}
    (run / "stall.json").write_text(json.dumps(stall))
    assert dashboard.rows()[0]["waits"] is None
    with RunLock.acquire(run):
        row = dashboard.rows()[0]
        assert row["waits"] == f"no update for 42 s: {HOSTILE}"
        assert dashboard.ask(f"/api/run/{row['id']}").document["warnings"] == [row["waits"]]
        timeline = dashboard.ask(f"/api/run/{row['id']}/timeline").document
        assert timeline["waits"] == row["waits"]
        open_spans = {
            worker["name"]: worker["spans"][-1] for worker in timeline["workers"] if len(worker["spans"][-1]) > 4
        }
        assert open_spans == {"executor 1": ["reset", 59.0, 41.0, 7.0, "so far"]}
        (run / "stall.json").unlink()
        assert dashboard.rows()[0]["waits"] is None


def test_the_command_reproduces_the_run_whatever_its_name(dashboard: Dashboard, runs: Path) -> None:
    run = make_run(runs / "a b; rm -rf '$HOME'")
    about = dashboard.details()
    command = shlex.split(about["commands"]["reproduce"])
    assert command == ["htsrl", "train", "--config", f"{run}/config.json", "--run-dir", f"{run}-again"]
    assert about["digest"] == f"{1:032x}"


def test_no_command_is_offered_that_a_terminal_would_obey(dashboard: Dashboard, runs: Path) -> None:
    make_run(runs / "a\x1b]0;x\x07\nb")
    assert dashboard.details()["commands"] == {}


def test_videos_are_served_in_parts(dashboard: Dashboard, runs: Path) -> None:
    run = make_run(runs / "a")
    (run / "videos").mkdir()
    (run / "videos" / "best.mp4").write_bytes(bytes(range(100)))
    (run / "videos" / "page.html").write_text("<script>")
    about = dashboard.details()
    assert about["videos"] == ["best.mp4"]
    path = f"/video/{about['id']}/0"
    whole = dashboard.ask(path)
    assert (whole.status, whole.body, whole.headers["content-type"]) == (200, bytes(range(100)), "video/mp4")
    part = dashboard.ask(path, headers={"Range": "bytes=10-19"})
    assert (part.status, part.body) == (206, bytes(range(10, 20)))
    assert part.headers["content-range"] == "bytes 10-19/100"
    assert dashboard.ask(path, headers={"Range": "bytes=90-"}).body == bytes(range(90, 100))
    assert dashboard.ask(path, headers={"Range": "bytes=500-"}).status == 200
    assert dashboard.ask(f"/video/{about['id']}/1").status == 404


def test_a_folder_that_is_itself_a_run_is_shown(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with serving(tmp_path / "run") as dashboard:
        assert [row["name"] for row in dashboard.rows()] == ["run"]
    assert json.loads((tmp_path / "run" / "config.json").read_text())
