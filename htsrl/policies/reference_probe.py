"""Finds the reference shape of a policy by trying.

Which rows happen to be ready together depends on timing, and the last bits of a row can depend on the size of the
batch it is computed in. So batches only ever have sizes in which, on this device and for this very network, no row's
bits depend on the size, on its position or on its neighbours. Kernels take rows by twos, fours or more, and what is
left over in another way; so those are often the multiples of some number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.errors import ConfigError
from htsrl.spaces import Interface, ObservationLeaf

STEPS = (1, 2, 4, 8, 16, 32, 64)
MAX_SIZES = 24
MIN_ROWS = 128
"""That a size is tried with, in as many batches as it takes: few rows may agree by luck."""
MIN_ORDERS = 4

Outputs = Callable[[Mapping[str, Tensor]], Tensor]
"""A policy's raw outputs, a row each: what its distributions and values are made from."""


def example_inputs(interface: Interface, num_rows: int) -> dict[str, Tensor]:
    """Rows of plausible numbers, all different, the same on every machine."""
    generator = _generator()
    return {name: _example(leaf, num_rows, generator) for name, leaf in interface.observations.items()}


def example_states(num_rows: int, state_size: int) -> Tensor:
    """Rows of what a recurrent state could be."""
    return torch.rand((num_rows, state_size), generator=_generator()) * 2 - 1


def _example(leaf: ObservationLeaf, num_rows: int, generator: torch.Generator) -> Tensor:
    shape, dtype = (num_rows, *leaf.shape), getattr(torch, leaf.dtype)
    if leaf.categories is not None:
        starts, counts = (torch.tensor(numbers).view(leaf.shape) for numbers in (leaf.starts, leaf.categories))
        return (starts + (torch.rand(shape, generator=generator) * counts).long()).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    if leaf.dtype == "uint8":
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


@torch.inference_mode()
def find_reference_shape(outputs: Outputs, examples: Mapping[str, Tensor], num_envs: int) -> ReferenceShape:
    """The sizes to use for batches of up to `num_envs` rows, after a try with the examples."""
    if sizes := find_batch_sizes(outputs, examples, num_envs):
        return ReferenceShape(sizes)
    if _rows_agree_in_place(outputs, examples, num_envs):
        return ReferenceShape((num_envs,), pinned=True)
    raise ConfigError(
        "this policy gives a row other values beside other rows, so no two runs could be alike; "
        "batch normalisation does that, and any mean over rows: use layer normalisation, or none"
    )


@torch.inference_mode()
def find_batch_sizes(outputs: Outputs, examples: Mapping[str, Tensor], num_rows: int) -> tuple[int, ...] | None:
    """Sizes, the last for at least `num_rows` rows, in which a row's bits depend on nothing but the row."""
    for step in STEPS:
        sizes = _multiples(step, num_rows)
        if _rows_agree(outputs, examples, sizes):
            return sizes
    return None


def _multiples(step: int, num_envs: int) -> tuple[int, ...]:
    """Of `step`, up to all environments, in even strides that leave few enough sizes to try each."""
    num_steps = -(-num_envs // step)
    stride = -(-num_steps // MAX_SIZES)
    return tuple(step * count for count in (*range(stride, num_steps, stride), num_steps))


def _rows_agree(outputs: Outputs, examples: Mapping[str, Tensor], sizes: tuple[int, ...]) -> bool:
    """Whether every row has the same bits in a batch of any of these sizes, wherever it stands and beside whom."""
    num_examples, most, generator = _num_rows(examples), sizes[-1], _generator()
    try:
        in_order = torch.arange(-(-num_examples // most) * most) % num_examples
        reference = torch.cat([_run(outputs, examples, rows) for rows in in_order.view(-1, most)])[:num_examples]
        for size in sizes:
            for _ in range(max(MIN_ORDERS, MIN_ROWS // size)):
                rows = torch.randperm(max(num_examples, size), generator=generator)[:size] % num_examples
                if not torch.equal(_run(outputs, examples, rows), reference[rows]):
                    return False
    except ValueError:  # batch normalisation refuses to learn from a single row
        return False
    return True


def _rows_agree_in_place(outputs: Outputs, examples: Mapping[str, Tensor], num_rows: int) -> bool:
    """Whether a row keeps its bits in its own place, whatever its neighbours."""
    reference = _run(outputs, examples, torch.arange(num_rows))
    for row in range(num_rows):
        rows = torch.full((num_rows,), (row + 1) % num_rows)
        rows[row] = row
        if not torch.equal(_run(outputs, examples, rows)[row], reference[row]):
            return False
    return True


def _run(outputs: Outputs, examples: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    return outputs({name: example[rows.to(example.device)] for name, example in examples.items()}).cpu()


def _num_rows(examples: Mapping[str, Tensor]) -> int:
    return len(next(iter(examples.values())))


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
