"""Minari's datasets (https://minari.farama.org), read and written by its own package, which is an extra."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.datasets.dataset import Dataset
from htsrl.datasets.write import Recorded
from htsrl.errors import DatasetError
from htsrl.spaces import Interface
from htsrl.spaces.observations import parts_of

ID = re.compile(r"([\w-]+/)*[\w-]+-v[0-9]+")
DT = "dt"

Array = NDArray[Any]


def _minari() -> Any:
    try:
        import minari
    except ImportError as error:
        raise DatasetError(f"Minari is not installed ({error}); install it with pip install 'htsrl[minari]'") from error
    return minari


def check_id(name: str) -> None:
    """Whether a dataset of this name can be made."""
    minari = _minari()
    if ID.fullmatch(name) is None:
        raise DatasetError(f"{name!r} is no Minari id; use one such as pendulum/expert-v0")
    if name in minari.list_local_datasets():
        raise DatasetError(f"Minari has a local dataset {name!r} already; choose another id, or another version")


def read_minari(name: str) -> Dataset:
    """A local dataset, by its id or the folder that holds it."""
    minari, where = _minari(), f"minari:{name}"
    try:
        path = Path(name)
        dataset = minari.MinariDataset(path / "data") if (path / "data").is_dir() else minari.load_dataset(name)
        episodes = list(dataset.iterate_episodes())
    except Exception as error:  # whatever its reader raises of what it finds
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise DatasetError(
            f"{where} cannot be read ({reason}); name a local dataset (`minari list local`) or its folder"
        ) from error
    interface = Interface(dataset.spec.observation_space, dataset.spec.action_space)
    if not episodes:
        raise DatasetError(f"{where} holds no episodes")
    try:
        recorded = _recorded(interface, episodes, str(dataset.spec.dataset_id))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DatasetError(f"{where} does not hold what its spaces say ({type(error).__name__}: {error})") from error
    return recorded.as_dataset(where)


def _recorded(interface: Interface, episodes: Sequence[Any], dataset_id: str) -> Recorded:
    layout = interface.actions
    rewards = [np.asarray(episode.rewards, np.float32) for episode in episodes]
    arrays: dict[str, Array] = {
        "actions": np.concatenate([_action_rows(layout.space, episode.actions) for episode in episodes]),
        "rewards": np.concatenate(rewards),
        "terminated": np.concatenate([np.asarray(episode.terminations, np.bool_) for episode in episodes]),
        "truncated": np.concatenate([np.asarray(episode.truncations, np.bool_) for episode in episodes]),
    }
    arrays["actions"] = arrays["actions"].astype(layout.dtype).reshape(-1, *layout.shape)
    arrays["truncated"] &= ~arrays["terminated"]
    for name, leaf in interface.observations.items():
        seen = [np.asarray(_at(episode.observations, leaf.path)) for episode in episodes]
        arrays[name] = np.concatenate(seen).astype(leaf.dtype).reshape(-1, *leaf.shape)
    if all(isinstance(episode.infos, dict) and DT in episode.infos for episode in episodes):
        # Minari keeps the info of the reset, too.
        arrays[DT] = np.concatenate([np.asarray(episode.infos[DT], np.float32)[1:] for episode in episodes])
    origin = {"policy": "minari", "dataset": dataset_id, "episodes": len(episodes)}
    return Recorded(interface, [len(own) for own in rewards], arrays, {"id": None, "args": {}}, [origin])


def write_minari(dataset: Dataset, name: str) -> None:
    """Make a local dataset under this id."""
    minari = _minari()
    check_id(name)
    from minari.data_collector.episode_buffer import EpisodeBuffer

    buffers = []
    for number, (start, end) in enumerate(_spans(dataset)):
        steps = np.arange(start, end)
        seen = slice(start + number, end + number + 1)
        observations = {leaf: dataset.arrays[leaf][seen] for leaf in dataset.interface.observations}
        infos = {DT: np.concatenate([[np.nan], dataset.arrays[DT][steps]]).astype(np.float32)} if dataset.has_dt else {}
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=_in_space(dataset.interface.observation_space, dataset.interface, observations),
                actions=_env_actions(dataset, steps),
                rewards=dataset.arrays["rewards"][steps].tolist(),
                terminations=dataset.arrays["terminated"][steps].tolist(),
                truncations=_with_an_end(dataset, steps),
                infos=infos or None,
            )
        )
    origins = dataset.manifest.origins
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that there is no environment: a dataset makes none
        minari.create_dataset_from_buffers(
            name,
            buffers,
            observation_space=dataset.interface.observation_space,
            action_space=dataset.interface.action_space,
            algorithm_name=", ".join(sorted({str(origin.get("policy")) for origin in origins})),
            description=f"collected by htsrl; identity {dataset.manifest.identity}",
            author="htsrl",
            author_email="unknown",
            code_permalink="unknown",
            jpeg_encoding=False,
        )


def _with_an_end(dataset: Dataset, steps: NDArray[np.int64]) -> list[bool]:
    """Minari wants every episode to end somehow; one that was cut short ends like one at a time limit."""
    truncated = dataset.arrays["truncated"][steps].copy()
    truncated[-1] |= not dataset.arrays["terminated"][steps[-1]]
    return [bool(flag) for flag in truncated]


def _spans(dataset: Dataset) -> Iterator[tuple[int, int]]:
    start = 0
    for end in dataset.episode_ends.tolist():
        yield start, end
        start = end


def _at(values: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        values = values[key]
    return values


def _action_rows(space: spaces.Space[Any], actions: Any) -> Array:
    """Actions of a whole episode as rows: choices first, then continuous dimensions."""
    choices, boxes = [], []
    for part, values in _leaves(space, actions):
        rows = np.asarray(values).reshape(len(values), -1)
        if isinstance(part, spaces.Box):
            boxes.append(rows)
        else:
            start = getattr(part, "start", 0)
            choices.append(rows - np.asarray(start).reshape(-1))
    return np.concatenate([*choices, *boxes], axis=1)


def _leaves(space: spaces.Space[Any], values: Any) -> Iterator[tuple[spaces.Space[Any], Any]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in parts_of(space):
            yield from _leaves(part, values[key])
    else:
        yield space, values


def _env_actions(dataset: Dataset, steps: NDArray[np.int64]) -> Any:
    """Rows as Minari keeps them: arrays with a step for each row, nested as the space is."""
    to_env = dataset.interface.actions.to_env
    return _stacked(dataset.interface.action_space, [to_env(row) for row in dataset.arrays["actions"][steps]])


def _stacked(space: spaces.Space[Any], rows: Sequence[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _stacked(part, [row[key] for row in rows]) for key, part in parts_of(space)}
    if isinstance(space, spaces.Tuple):
        return tuple(_stacked(part, [row[key] for row in rows]) for key, part in parts_of(space))
    return np.array(rows, space.dtype)


def _in_space(space: spaces.Space[Any], interface: Interface, leaves: dict[str, Array]) -> Any:
    """Leaves nested as the observation space is."""
    by_path = {leaf.path: leaves[name] for name, leaf in interface.observations.items()}

    def nested(part: spaces.Space[Any], path: tuple[Any, ...]) -> Any:
        if isinstance(part, spaces.Dict):
            return {key: nested(inner, (*path, key)) for key, inner in parts_of(part)}
        if isinstance(part, spaces.Tuple):
            return tuple(nested(inner, (*path, key)) for key, inner in parts_of(part))
        return by_path[path]

    return nested(space, ())
