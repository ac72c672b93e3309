"""What `--until` looks for: a quantity, a comparison, a number; parsed here, never evaluated as code."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.errors import ConfigError

PATTERN = re.compile(r"\s*(?P<quantity>[A-Za-z_][\w/.-]*?)\s*(?P<sign>>=|<=|==|!=|>|<|=)\s*(?P<number>\S+)\s*")
SIGNS: Mapping[str, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
OF_STEPS = {"reward": "rewards", "value": "values", "log_prob": "log_probs", "bootstrap_value": "bootstrap_values"}
"""Quantities of single steps, and the fields that hold them."""
OF_EPISODES = {"return": "episode_returns", "length": "episode_lengths"}
"""Quantities of episodes, found where those end."""

Fields = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Condition:
    """Whether something is so: in a step, in an episode that ends with it, or in an update."""

    text: str
    quantity: str
    sign: str = "=="
    number: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Condition:
        """`nan`, or QUANTITY SIGN NUMBER."""
        if text.strip().lower() == "nan":
            return cls("nan", "nan")
        match = PATTERN.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"until={text!r} must be `nan`, or a quantity, one of {' '.join(SIGNS)} and a number, such as "
                f"'return>300'; quantities are {', '.join([*OF_EPISODES, *OF_STEPS])} and metrics by name"
            )
        try:
            number = float(match["number"])
        except ValueError as error:
            raise ConfigError(f"until={text!r} compares with {match['number']!r}, which is not a number") from error
        return cls(text.strip(), match["quantity"], match["sign"], number)

    @property
    def is_of_metric(self) -> bool:
        """Whether it can only be told once the update is made."""
        return self.quantity not in (*OF_STEPS, *OF_EPISODES, "nan")

    def steps_where(self, fields: Fields) -> NDArray[np.bool_]:
        """The steps of a batch in which it holds."""
        if self.quantity == "nan":
            return _not_finite(fields)
        if self.quantity in OF_EPISODES:
            holds = SIGNS[self.sign](fields[OF_EPISODES[self.quantity]], self.number)
            return np.asarray(holds & (fields["episode_lengths"] > 0))
        return np.asarray(SIGNS[self.sign](fields[OF_STEPS[self.quantity]], self.number))

    def holds_for(self, metrics: Mapping[str, float]) -> bool:
        """Of a metric; one that an update does not report yet holds for nothing."""
        value = metrics.get(self.quantity)
        return value is not None and bool(SIGNS[self.sign](value, self.number))


def _not_finite(fields: Fields) -> NDArray[np.bool_]:
    """Of all that was seen, done and computed; numbers of infos are not numbers where environments tell none."""
    found = np.zeros(fields["rewards"].shape, np.bool_)
    for name, array in fields.items():
        if array.dtype.kind == "f" and not name.startswith("info/"):
            found |= ~np.isfinite(array).reshape(*found.shape, -1).all(axis=-1)
    return found
