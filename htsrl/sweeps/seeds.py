"""Seeds as a user writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from htsrl.errors import ConfigError

MAX_SEEDS = 10_000
WAY_OUT = "write them as 1..5 or 1,2,7"


def parse_seeds(given: Any) -> tuple[int, ...]:
    """`1..5`, `1,2,7`, a number or a list of them: in the order given, each once."""
    seeds = [seed for part in _parts(given) for seed in _range(part, given)]
    if not seeds:
        raise ConfigError(f"seeds={given!r} names no seed; {WAY_OUT}")
    if len(set(seeds)) < len(seeds):
        twice = next(seed for seed in seeds if seeds.count(seed) > 1)
        raise ConfigError(f"seeds={given!r} names {twice} twice, which would be the same run; leave one out")
    return tuple(seeds)


def shown_seeds(seeds: Sequence[int]) -> str:
    """As short as `parse_seeds` reads it back."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}..{seeds[-1]}"
    return ",".join(map(str, seeds))


def _parts(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [part.strip() for part in given.split(",")]
    return list(given) if isinstance(given, list | tuple | range) else [given]


def _range(part: Any, given: Any) -> Sequence[int]:
    first, dots, last = part.partition("..") if isinstance(part, str) else (part, "", "")
    try:
        low, high = _seed(first), _seed(last if dots else first)
    except ValueError:
        raise ConfigError(f"seeds={given!r}: {part!r} is no whole number from 0 to 2**63 - 1; {WAY_OUT}") from None
    if low > high:
        raise ConfigError(f"seeds={given!r}: {part!r} runs backwards; write {last}..{first}")
    if high - low >= MAX_SEEDS:
        raise ConfigError(f"seeds={given!r} are {high - low + 1:,}; use {MAX_SEEDS:,} or fewer")
    return range(low, high + 1)


def _seed(text: Any) -> int:
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise ValueError(text)
    seed = int(text)
    if not 0 <= seed < 2**63:
        raise ValueError(text)
    return seed
