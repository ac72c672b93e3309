"""The README's table: six short rows, each from all records of its kind, those that disappoint too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from htsrl_bench.report import Published

ON_POLICY = ("ppo", "a2c")
Records = Sequence[Published]


def readme_table(records: Records) -> str:
    """A row for each question that there are records of."""
    lines = ["| question | answer |", "| --- | --- |"]
    for begins, question, answer in ROWS:
        own = [record for record in records if record.name.startswith(begins)]
        if own and (found := answer(own)):
            lines.append(f"| {question} | {found} |")
    return "\n".join(lines) + "\n"


def _peers_on_policy(records: Records) -> str:
    return _peers([record for record in records if record.name.endswith(ON_POLICY)])


def _peers_off_policy(records: Records) -> str:
    return _peers([record for record in records if not record.name.endswith(ON_POLICY)])


def _peers(records: Records) -> str:
    """What was measured on a busy machine is a ratio of CPU times, which docs/results.md has."""
    works = [of for record in records if not record.summary.get("busy") for of in record.summary["work"].values()]
    medians = [of["ratio"]["median"] for of in works if of["fastest"] is not None]
    if not medians:
        return ""
    return f"{_span([f'{median:.2f}' for median in (min(medians), max(medians))])} times, {_count(medians, 'work')}"


def _headline(records: Records) -> str:
    ratio = records[0].summary["headline"]["ratio"]
    return f"{ratio['median']:.2f} times ({ratio['lowest']:.2f} to {ratio['highest']:.2f})"


def _determinism(records: Records) -> str:
    works = {name: of for record in records for name, of in record.summary["works"].items()}
    return "; ".join(f"{name}: {_cost(of['cost'], *of['cost_range'])}" for name, of in works.items())


def _cost(median: float, low: float, high: float) -> str:
    return "lost in the noise" if low <= 0 <= high else f"{median:.1%}"


def _learning(records: Records) -> str:
    """By the intervals over paired seeds of mean return over the run, hts less sync."""
    found = {record.name: record.summary["over_run"]["differences"].get("sync") for record in records}
    known = {name: of for name, of in found.items() if of}
    higher = [name for name, of in known.items() if of["low"] > 0]
    lower = [name for name, of in known.items() if of["high"] < 0]
    undecided = len(known) - len(higher) - len(lower)
    words = [f"better on {_named(higher)}", f"worse on {_named(lower)}", f"undecided on {undecided}"]
    if unknown := len(found) - len(known):
        words.append(f"{unknown} with one seed, which shows nothing")
    return "; ".join(words)


def _named(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(name.removeprefix('learning-') for name in names)})" if names else "none"


def _chaos(records: Records) -> str:
    kills = sum(sum(record.summary["kills"].values()) for record in records)
    different = [record for record in records if not record.summary["equal"]]
    verdict = f"{len(different)} differ" if different else "every bit is the same"
    return f"{kills} in {_count(records, 'run')}: {verdict}"


def _span(words: Sequence[str]) -> str:
    return words[0] if len(set(words)) == 1 else " to ".join(words)


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'s'[: len(things) > 1]}"


ROWS: Sequence[tuple[str, str, Callable[[Records], str]]] = (
    (
        "peers-",
        "Steps per second while learning, PPO and A2C, over the fastest [other framework](docs/peers.md)",
        _peers_on_policy,
    ),
    ("peers-", "The same with SAC", _peers_off_policy),
    (
        "variance-headline",
        "32 environments that wait, over a [barrier at every step](docs/benchmarks.md#variance)",
        _headline,
    ),
    ("determinism-", "Speed that equal bits cost", _determinism),
    ("learning-", "Return per step, against `--schedule sync`, which has no lag", _learning),
    ("chaos-", "Processes [killed at random](docs/reliability.md), against the run undisturbed", _chaos),
)
"""How names of records begin, the question, and what all of them together answer."""
