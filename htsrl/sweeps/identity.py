"""A specification as JSON: what makes a sweep the one it is, kept in its folder."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from htsrl.config.file import to_json
from htsrl.sweeps.space import Choices
from htsrl.sweeps.spec import SweepSpec


def identity_of(spec: SweepSpec) -> dict[str, Any]:
    """All that trials depend on: of the placement that is how often metrics are written, which values are read from."""
    train = json.loads(to_json(spec.config))
    space = {
        name: list(dimension.values) if isinstance(dimension, Choices) else asdict(dimension)
        for name, dimension in spec.space.items()
    }
    document = {
        "sweep": asdict(spec.search),
        "pruning": asdict(spec.pruning),
        "experiment": train["experiment"],
        "log_every_steps": spec.config.placement.log_every_steps,
        "space": space,
    }
    return dict(json.loads(json.dumps(document)))
