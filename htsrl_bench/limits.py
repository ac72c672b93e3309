"""The limit: what every part of a work costs alone, and the steps per second that no arrangement of them can exceed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, get_args

from htsrl.config import Experiment, available_cores
from htsrl.config.algorithm_settings import has_minibatches
from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.hand_over import HandOver, measure_hand_over
from htsrl_bench.part_process import Measured, PartProcesses, part_processes
from htsrl_bench.parts import Kind, Part
from htsrl_bench.record import Summary, Table
from htsrl_bench.works import IN_HALF, WORKS, known

INFERENCE_BATCHES = (1, 4, 8, 16)


class WorkParts(NamedTuple):
    """The parts of one work."""

    simulator: Part
    inference: Part
    learning: Part


@dataclass(frozen=True)
class StepCosts:
    """Milliseconds of one core for one step of a work."""

    simulator: float
    inference: float
    learning: float
    """All epochs."""

    @property
    def total(self) -> float:
        return self.simulator + self.inference + self.learning

    def roofline(self, cores: int) -> float:
        """Steps per second with all cores at work and nothing wasted."""
        return cores * 1000 / self.total


def parts_of(work: str) -> WorkParts:
    """What a work is made of; its inference takes all environments at once, the most that there can be in a batch."""
    experiment = WORKS[work]
    return WorkParts(
        Part("simulator", _of_same_env(work), 1),
        Part("inference", _of_same_env(work), experiment.num_envs),
        Part("learning", work, learning_batch(experiment)),
    )


def learning_batch(experiment: Experiment) -> int:
    """Steps in one gradient."""
    if has_minibatches(experiment.algorithm):
        return experiment.batch_steps // experiment.num_minibatches
    return experiment.num_envs * experiment.unroll_steps


def epochs_of(experiment: Experiment) -> int:
    return getattr(experiment.algorithm, "epochs", 1)


def step_costs(work: str, milliseconds: Mapping[Part, float]) -> StepCosts:
    parts = parts_of(work)
    return StepCosts(
        milliseconds[parts.simulator],
        milliseconds[parts.inference],
        milliseconds[parts.learning] * epochs_of(WORKS[work]),
    )


def measure_work(work: str, seconds: float, processes: PartProcesses) -> StepCosts:
    """The parts of one work, one after another, each on all cores."""
    return step_costs(work, {part: processes.measure(part, seconds).milliseconds for part in parts_of(work)})


def all_parts(works: Iterable[str]) -> list[Part]:
    """Those of all works, each once, and inference in all the batch sizes."""
    parts: dict[Part, None] = {}
    for work in works:
        own = parts_of(work)
        sizes = [Part("inference", own.inference.work, size) for size in INFERENCE_BATCHES]
        parts |= dict.fromkeys([*sizes, *own])
    return sorted(parts, key=lambda part: get_args(Kind).index(part.kind))


@dataclass(frozen=True)
class LimitsBench:
    """How much is measured."""

    work: tuple[str, ...]
    seconds_per_part: float
    repetitions: int

    def __post_init__(self) -> None:
        known(self.work)
        if self.repetitions < 1 or self.seconds_per_part <= 0:
            raise ConfigError(
                f"repetitions={self.repetitions} must be at least 1, seconds_per_part={self.seconds_per_part:g} above 0"
            )


@dataclass(frozen=True)
class Limits:
    """All that was measured, in the order in which it was."""

    parts: Sequence[Measured]
    hand_overs: Sequence[HandOver]

    def of(self, part: Part) -> list[float]:
        return [measured.milliseconds for measured in self.parts if measured.part == part]

    def about(self, work: str) -> Limits:
        """As if no other work had been measured."""
        parts = all_parts((work,))
        return Limits([measured for measured in self.parts if measured.part in parts], self.hand_overs)

    def costs(self, work: str) -> list[StepCosts]:
        """A repetition each."""
        each = {part: self.of(part) for part in parts_of(work)}
        return [step_costs(work, dict(zip(each, values, strict=True))) for values in zip(*each.values(), strict=True)]


def measure(bench: LimitsBench) -> Limits:
    """The parts take turns, so that a busy moment of the machine does not hit one of them alone."""
    parts = all_parts(bench.work)
    announcer = Announcer(bench.repetitions * len(parts))
    measured, hand_overs = [], []
    with part_processes(available_cores()) as processes:
        for _ in range(bench.repetitions):
            hand_overs.append(measure_hand_over())
            for part in parts:
                announcer.begin(label(part))
                measured.append(processes.measure(part, bench.seconds_per_part))
                announcer.end(f"{measured[-1].milliseconds:.4f} ms of one core")
    return Limits(measured, hand_overs)


def summary(bench: LimitsBench, limits: Limits) -> dict[str, Any]:
    cores = available_cores()
    document: dict[str, Any] = {"cores": cores, "parts": {}, "works": {}}
    for part in all_parts(bench.work):
        document["parts"][label(part)] = asdict(Summary.of(limits.of(part)))
    for work in bench.work:
        costs = limits.costs(work)
        middle = sorted(costs, key=lambda of: of.total)[len(costs) // 2]
        document["works"][work] = {
            **asdict(middle),
            "inference_batch": parts_of(work).inference.batch,
            "roofline": asdict(Summary.of([of.roofline(cores) for of in costs])),
        }
    for name in ("microseconds", "cpu_microseconds"):
        values = [getattr(hand_over, name) for hand_over in limits.hand_overs]
        document[f"hand_over_{name}"] = asdict(Summary.of(values))
    return document


def repetitions(limits: Limits) -> list[dict[str, Any]]:
    parts = [
        {"part": label(of.part), "milliseconds": of.milliseconds, "by_process": list(of.by_process)}
        for of in limits.parts
    ]
    return [*parts, *({"part": "hand-over", **asdict(of)} for of in limits.hand_overs)]


def tables(document: Mapping[str, Any], notes: Sequence[str] = ()) -> list[Table]:
    return [_rooflines(document, notes), _parts(document)]


def _rooflines(document: Mapping[str, Any], notes: Sequence[str]) -> Table:
    rows = [
        [
            work,
            f"{of['simulator']:.3f}",
            f"{of['inference']:.3f} (batch {of['inference_batch']})",
            f"{of['learning']:.3f} ({epochs_of(WORKS[work])} x batch {learning_batch(WORKS[work])})",
            str(Summary(**of["roofline"])),
        ]
        for work, of in document["works"].items()
    ]
    return Table(
        ["work", "simulator", "inference", "learning", "roofline, steps/s"],
        rows,
        [
            f"Milliseconds of one core for a step. The roofline is {document['cores']} cores over their sum: every "
            "core busy with nothing else. Inference is counted in the largest batch that the work allows, all "
            "environments at once, which is the cheapest; learning is forward, backward and the optimizer's step "
            "for every epoch, without what prepares a batch. (A2C on images does without the forward pass under hts "
            "and sync, so its own limit is higher.)",
            *notes,
        ],
    )


def _parts(document: Mapping[str, Any]) -> Table:
    rows = [[name, _milliseconds(Summary(**of))] for name, of in document["parts"].items()]
    for name, what in (("microseconds", "by the clock"), ("cpu_microseconds", "CPU time")):
        of = Summary(**document[f"hand_over_{name}"])
        rows.append([f"one hand-over between processes, {what}", _milliseconds(of, 1000)])
    return Table(
        ["part", "ms of one core for a step"],
        rows,
        [
            f"Median (lowest to highest). CPU time of {document['cores']} processes that do the same at the same time, "
            "one thread each, the parts in turn. A simulator is stepped with random actions, through all checks, into "
            "an array; resets are included. A hand-over is half of a round trip between two processes that sleep on "
            "doorbells.",
        ],
    )


def label(part: Part) -> str:
    env = WORKS[part.work].env
    in_half = ", bfloat16" if part.work.endswith(IN_HALF) else ""
    if part.kind == "simulator":
        return f"simulator, {env}{in_half}"
    algorithm = f" ({WORKS[part.work].algorithm.name})" if part.kind == "learning" else ""
    return f"{part.kind}, {env}, batch {part.batch}{algorithm}{in_half}"


def _milliseconds(of: Summary, per_unit: float = 1.0) -> str:
    median, lowest, highest = (value / per_unit for value in (of.median, of.lowest, of.highest))
    return f"{median:.4f} ({lowest:.4f} to {highest:.4f})"


def _of_same_env(work: str) -> str:
    """The first work with this environment and network: what acts is the same in all of them."""
    own = WORKS[work]
    return next(name for name, of in WORKS.items() if (of.env, of.network) == (own.env, own.network))
