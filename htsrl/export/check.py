"""Whether what was exported does what the policy does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.dataflow.trajectory import RECURRENT_STATE
from htsrl.errors import HtsrlError
from htsrl.export.signature import NEXT_STATE, ActionPart, Port, Signature
from htsrl.spaces.observations import MASK_KEY

if TYPE_CHECKING:
    from htsrl.policies.policy import Policy

Arrays = Mapping[str, NDArray[Any]]
Run = Callable[[Arrays], Arrays]
"""Runs an exported policy once."""

NUM_STEPS, NUM_SEQUENCES = 25, 40
NUM_OBSERVATIONS = NUM_STEPS * NUM_SEQUENCES
GROUPS = (slice(0, 1), slice(1, NUM_SEQUENCES))
"""Sequences that are computed together: a row alone, as whoever plays one game has it, and all others."""
TOLERANCE = 1e-4
"""How far numbers may be apart, as a part of 1 plus their size: both compute in single precision."""


class ExportFailed(HtsrlError):
    """A policy could not be exported, or what was exported does something else; nothing was left behind."""


def check(policy: Policy, signature: Signature, runs: Mapping[str, Run]) -> dict[str, float]:
    """The largest difference between the policy and what each of `runs` makes of 1,000 observations.

    Sequences of random observations, in which the recurrent state after one step goes into the next, each side's own.
    ExportFailed where a difference is too large.
    """
    observations = example_observations(policy)
    largest = dict.fromkeys(runs, 0.0)
    for group in GROUPS:
        blank = np.zeros((group.stop - group.start, signature.state_size), np.float32)
        remembered, state_of = blank, dict.fromkeys(runs, blank)
        for step in range(NUM_STEPS):
            seen = {field: np.ascontiguousarray(array[step, group]) for field, array in observations.items()}
            expected = _answers(policy, signature, _with_state(seen, remembered))
            inputs = {signature.inputs[field].name: array for field, array in seen.items()}
            for name, run in runs.items():
                outputs = run(_with_state(inputs, state_of[name]))
                largest[name] = max(largest[name], *_differences(signature, expected, outputs, name))
                state_of[name] = outputs.get(NEXT_STATE, blank)
            remembered = expected.get(NEXT_STATE, blank)
    return largest


def _with_state(inputs: Arrays, state: NDArray[np.float32]) -> Arrays:
    return {**inputs, RECURRENT_STATE: state} if state.size else inputs


def example_observations(policy: Policy) -> dict[str, NDArray[Any]]:
    """Plausible ones, `[step, sequence, ...]`, by field."""
    from htsrl.policies.normalization import ObservationScale
    from htsrl.policies.reference_probe import example_inputs

    interface = policy.interface
    examples = {name: tensor.numpy() for name, tensor in example_inputs(interface, NUM_OBSERVATIONS).items()}
    if policy.observation_scales is not None:  # as far apart as what the policy has seen
        floats = [name for name, leaf in interface.observations.items() if leaf.dtype.startswith("float")]
        for name, scale in zip(floats, policy.observation_scales.scales, strict=True):
            assert isinstance(scale, ObservationScale)
            scaled = examples[name] * scale.deviation().numpy() + scale.mean.numpy()
            examples[name] = scaled.astype(examples[name].dtype)
    if MASK_KEY in examples:
        _allow_something(examples[MASK_KEY], interface.actions.categories)
    return {name: array.reshape(NUM_STEPS, NUM_SEQUENCES, *array.shape[1:]) for name, array in examples.items()}


def _allow_something(masks: NDArray[np.bool_], categories: tuple[int, ...]) -> None:
    """In every choice, a value that goes round with the rows."""
    rows, first = np.arange(len(masks)), 0
    for num_values in categories:
        masks[rows, first + rows % num_values] = True
        first += num_values


def _answers(policy: Policy, signature: Signature, observations: Arrays) -> dict[str, NDArray[Any]]:
    """What the policy itself makes of observations, as evaluation would take it to the environment."""
    import torch

    from htsrl.policies.distributions import masked

    tensors = {field: torch.from_numpy(array) for field, array in observations.items()}
    actions = policy.interface.actions
    num_logits = sum(actions.categories)
    widths = [num_logits, policy.action_head.out_features - num_logits, 1, signature.state_size]
    with torch.inference_mode():
        distribution, values, states = policy.respond(tensors)
        logits, continuous, _, _ = torch.split(policy.outputs(tensors), widths, dim=1)
        made = {"logits": masked(logits, tensors.get(MASK_KEY)), "value": values}
        if actions.num_continuous:
            made["mean"], log_std = policy.means_and_log_stds(continuous)
            made["log_std"] = log_std.detach().expand_as(made["mean"])
        if states is not None:
            made[NEXT_STATE] = states
        in_env = [actions.to_env(row) for row in distribution.mode().numpy()]
    parts = {part.port.name: np.stack([_at(action, part.path) for action in in_env]) for part in signature.parts}
    return {name: tensor.numpy() for name, tensor in made.items()} | parts


def _at(action: Any, path: tuple[Any, ...]) -> NDArray[Any]:
    for key in path:
        action = action[key]
    return np.asarray(action)


def _differences(signature: Signature, expected: Arrays, outputs: Arrays, name: str) -> Iterator[float]:
    """Of every output that is made of real numbers; ExportFailed where one is not what it should be."""
    for port in signature.outputs:
        _require_form(port, expected[port.name], outputs.get(port.name), name)
    for port in signature.raw:
        yield _require_close(port, _difference(expected[port.name], outputs[port.name]), name)
    for part in signature.parts:
        ours, theirs = expected[part.port.name], outputs[part.port.name]
        if part.is_choice:
            decided = _is_decided(part, expected["logits"]).reshape(ours.shape)
            if wrong := int(np.sum((ours != theirs) & decided)):
                raise ExportFailed(f"{name} chooses other values than the policy in {wrong} cases of {ours.size}")
        else:
            yield _require_close(part.port, _difference(ours, theirs, _half_range(part)), name)


def _require_form(port: Port, expected: NDArray[Any], found: NDArray[Any] | None, name: str) -> None:
    shape = (len(expected), *port.shape)
    if found is None or found.shape != shape or found.dtype.name != port.dtype:
        shown = "nothing" if found is None else f"{found.dtype} {found.shape}"
        raise ExportFailed(f"{name} gives {shown} for {port.name}, which should be {port.dtype} {shape}")


def _require_close(port: Port, difference: float, name: str) -> float:
    if not difference <= TOLERANCE:  # so that nan is refused as well
        raise ExportFailed(
            f"{name} computes another {port.name} than the policy: they differ by {difference:.1e}, "
            f"where {TOLERANCE:.0e} is allowed"
        )
    return difference


def _difference(ours: NDArray[Any], theirs: NDArray[Any], scale: NDArray[np.float64] | float = 0.0) -> float:
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    return float(np.max(np.abs(ours - theirs) / (1 + np.abs(ours) + scale), initial=0.0))


def _half_range(part: ActionPart) -> NDArray[np.float64]:
    """A tanh spreads a rounding error over the whole range."""
    assert isinstance(part.space, spaces.Box)
    half = (part.space.high.astype(np.float64) - part.space.low) / 2
    return np.where(np.isfinite(half), half, 0.0)


def _is_decided(part: ActionPart, logits: NDArray[Any]) -> NDArray[np.bool_]:
    """For every choice of every row, whether its best value is further ahead than the tolerance could turn round."""
    decided, first = [], part.columns.start
    for num_values in part.categories:
        ranked = np.sort(logits[:, first : first + num_values].astype(np.float64), axis=1)
        best = ranked[:, -1]
        lead = best - ranked[:, -2] if num_values > 1 else np.full_like(best, np.inf)
        decided.append(lead > 2 * TOLERANCE * (1 + np.abs(best)))
        first += num_values
    return np.stack(decided, axis=1)
