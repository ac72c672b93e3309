"""Finds the reference shape of a policy by trying.

Which rows happen to be ready together depends on timing, and the last bits of a row can depend on the size of the
batch it is computed in. So batches only ever have sizes in which, on this device and for this very network, no row's
bits depend on the size, on its position or on its neighbours. Kernels take rows by twos, fours or more, and what is
left over in another way; so those are often the multiples of some number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.errors import ConfigError
from htsrl.spaces import Interface, ObservationLeaf

ROUNDED_UP_TO = (1, 2, 4, 8, 16, 32, 64)
MOST_SIZES = 24
LITTLE_PADDING = 1.5
"""If batches have so many times the rows that are asked for, on average, there is no need to look on."""

Outputs = Callable[[Mapping[str, Tensor]], Tensor]
"""A policy's raw outputs, a row each: what its distributions and values are made from."""


def example_inputs(interface: Interface, num_rows: int) -> dict[str, Tensor]:
    """Rows of plausible numbers, all different, the same on every machine."""
    generator = _generator()
    return {name: _example(leaf, num_rows, generator) for name, leaf in interface.observations.items()}


def example_states(num_rows: int, state_size: int) -> Tensor:
    """Rows of what a memory could hold."""
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
def find_reference_shape(outputs: Outputs, examples: Mapping[str, Tensor]) -> ReferenceShape:
    """The sizes to use for batches of up to as many rows as there are examples."""
    num_envs = len(next(iter(examples.values())))
    found: list[tuple[int, ...]] = []
    for most in sorted({-(-num_envs // step) * step for step in ROUNDED_UP_TO}):
        if sizes := _sizes_that_agree(outputs, examples, most):
            found.append(sizes)
            if _padding(sizes, num_envs) <= LITTLE_PADDING:
                break
    if found:
        return ReferenceShape(min(found, key=lambda sizes: _padding(sizes, num_envs)))
    if _rows_agree_in_place(outputs, examples, num_envs):
        return ReferenceShape((num_envs,), pinned=True)
    raise ConfigError(
        "this policy gives a row other values beside other rows, so no two runs could be alike; "
        "batch normalisation does that, and any mean over rows: use layer normalisation, or none"
    )


def _sizes_to_try(most: int) -> tuple[int, ...]:
    """All, if they are few; else powers of two and multiples of one, which is what kernels care for."""
    stride = 1 << max(0, -(-most // MOST_SIZES) - 1).bit_length()
    return tuple(sorted({1 << i for i in range(stride.bit_length())} | {*range(stride, most, stride), most}))


def _sizes_that_agree(outputs: Outputs, examples: Mapping[str, Tensor], most: int) -> tuple[int, ...]:
    """The sizes in which every row has the bits that it has in a batch of `most`, wherever it stands and beside whom;
    none, where it may have others even there."""
    num_examples, in_order = len(next(iter(examples.values()))), torch.arange(most)
    orders = [in_order, in_order.roll(1), in_order.flip(0), torch.randperm(most, generator=_generator())]
    try:
        reference = _run(outputs, examples, in_order % num_examples)
    except ValueError:  # batch normalisation refuses to learn from a single row
        return ()

    def agree(size: int) -> bool:
        try:
            return all(
                torch.equal(_run(outputs, examples, order[:size] % num_examples), reference[order[:size]])
                for order in orders
            )
        except ValueError:
            return False

    return (*(size for size in _sizes_to_try(most) if size < most and agree(size)), most) if agree(most) else ()


def _padding(sizes: tuple[int, ...], num_envs: int) -> float:
    """Rows that are computed for one that is asked for, if any number of environments may be ready."""
    asked_for = range(1, num_envs + 1)
    return sum(sizes[bisect_left(sizes, count)] for count in asked_for) / sum(asked_for)


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


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
