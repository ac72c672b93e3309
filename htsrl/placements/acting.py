"""How a policy will be asked for actions: in NumPy or in torch, and in batches of which sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor

from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.reference_shape import AS_ASKED, ReferenceShape
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.trajectory import RECURRENT_STATE, TrajectorySpec
from htsrl.policies import reference_probe
from htsrl.policies.half_probe import with_cancelling_sums
from htsrl.policies.light import LightPlan
from htsrl.policies.policy import Policy
from htsrl.policies.reference_probe import MIN_ROWS, example_inputs, example_states

HEAD_GAIN = 100.0

Inputs = Mapping[str, Tensor]


class Acting(NamedTuple):
    """What actors do."""

    light: LightPlan | None
    """None: they act in torch."""
    shape: ReferenceShape


def choose_acting(
    policy: Policy, light: LightPlan | None, specs: Sequence[ArraySpec], trajectory: TrajectorySpec, device: str
) -> Acting:
    """In NumPy, if there is a plan for it, but not beside another device, where it was never measured, and not where
    every answer would have to be for all environments, as NumPy's products ask for where there are hundreds.

    Policies are probed as the actors will hold them: on their device, in the memory layout of a parameter slot. Lanes
    need no probe: each is answered alone, and always asks for the same rows.
    """
    if trajectory.is_lane:
        return Acting(light if device.startswith("cpu") else None, AS_ASKED)
    block = SharedArrays(specs)
    try:
        held, examples = _held(policy, block, device), _examples(policy, trajectory.num_columns, device)
        if light and device.startswith("cpu"):
            in_numpy = light.policies(block)[0]
            shape = reference_probe.find_reference_shape(
                lambda inputs: torch.from_numpy(in_numpy.probe({name: x.numpy() for name, x in inputs.items()})),
                examples,
                trajectory.num_columns,
            )
            if not shape.pinned:
                return Acting(light, shape)
        keeps = bool(trajectory.activation_names)
        outputs, examples = with_cancelling_sums(
            held, lambda inputs: held.probe(inputs, inputs["noise"], keeps), examples
        )
        return Acting(None, reference_probe.find_reference_shape(outputs, examples, trajectory.num_columns))
    finally:
        block.close()


def _held(policy: Policy, block: SharedArrays, device: str) -> Policy:
    ring = ParameterRing(block, lambda: deepcopy(policy), torch.device(device))
    ring.initialise(policy)
    held = ring.module(version=0)
    assert isinstance(held, Policy)
    return _with_loud_head(held)


def _with_loud_head(policy: Policy) -> Policy:
    with torch.no_grad():
        # The action head starts tiny, and would round differences away that show once it has learned.
        policy.action_head.weight.mul_(HEAD_GAIN)
    return policy


def batch_sizes(policy: Policy, max_rows: int) -> tuple[int, ...]:
    """Sizes of batches, the last for at least `max_rows` rows, in which a row's answer is the same whoever else is in
    the batch; rows alone where no others are found."""
    probed, examples = _with_loud_head(deepcopy(policy)), _observed_examples(policy, max(max_rows, MIN_ROWS))
    outputs, asked = with_cancelling_sums(probed, probed.outputs, examples)
    return reference_probe.find_batch_sizes(outputs, asked, max_rows) or (1,)


def _examples(policy: Policy, num_columns: int, device: str) -> Inputs:
    num_rows = max(num_columns, MIN_ROWS)
    examples = _observed_examples(policy, num_rows)
    noise = policy.interface.actions.noise.draw(0, env=0, first_step=0, num_steps=num_rows)
    return {name: x.to(device) for name, x in {**examples, "noise": torch.from_numpy(noise)}.items()}


def _observed_examples(policy: Policy, num_rows: int) -> dict[str, Tensor]:
    examples = example_inputs(policy.interface, num_rows)
    if policy.core is not None:
        examples[RECURRENT_STATE] = example_states(num_rows, policy.state_size)
    return examples
