"""Run by a test in a process with an MKL_CBWR of its own: prints digests over batch sizes, with and without padding."""

from __future__ import annotations

import json
from dataclasses import replace

from helpers import run
from small_experiments import EXPERIMENTS, NUM_ENVS, small_experiment

from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.policies import reference_probe

ACTOR_COUNTS = (1, 2, NUM_ENVS)


def digests(name: str) -> list[str]:
    """One environment per executor and turn by turn, so an actor's batches are as large as its share."""
    experiment = replace(small_experiment(name), total_steps=EXPERIMENTS[name].total_steps // 2)
    outcomes = [run(experiment, num_executors=NUM_ENVS, num_actors=actors) for actors in ACTOR_COUNTS]
    return [outcome.digest for outcome in outcomes]


def main() -> None:
    padded = {name: digests(name) for name in EXPERIMENTS}
    worker_layout = {"num_executors": 2, "num_actors": 1, "jitter_seconds": 2e-3}
    experiment = replace(small_experiment("cartpole_a2c"), total_steps=EXPERIMENTS["cartpole_a2c"].total_steps // 2)
    padded["cartpole_a2c"].append(run(experiment, backend="processes", **worker_layout).digest)
    reference_probe.find_reference_shape = lambda *_: ReferenceShape(tuple(range(1, 65)))
    print(json.dumps({"padded": padded, "unpadded": {name: digests(name) for name in EXPERIMENTS}}))


if __name__ == "__main__":
    main()
