"""Arrays over one block of memory that starts zeroed and that others map through its file descriptor."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htsrl import ConfigError
from htsrl.dataflow.shared_arrays import ALIGNMENT, ArraySpec, SharedArrays

SPECS = [
    ArraySpec("flags", (3,), "bool"),
    ArraySpec("empty", (0, 4), "float32"),
    ArraySpec("frames", (2, 3, 5), "uint8"),
    ArraySpec("scalar", (), "float64"),
    ArraySpec("numbers", (17,), "int64"),
]
lists_of_specs = st.lists(
    st.tuples(st.lists(st.integers(0, 5), max_size=3), st.sampled_from(["bool", "uint8", "float32", "int64"])),
    min_size=1,
    max_size=6,
)


@given(lists_of_specs)
def test_every_array_is_zeroed_aligned_and_apart_from_the_others(shapes: list[tuple[list[int], str]]) -> None:
    specs = [ArraySpec(f"array{i}", tuple(shape), dtype) for i, (shape, dtype) in enumerate(shapes)]
    block = SharedArrays(specs)
    for spec in specs:
        array = block[spec.name]
        assert (array.shape, array.dtype) == (spec.shape, np.dtype(spec.dtype))
        assert array.ctypes.data % ALIGNMENT == 0
        assert not array.any()  # and so no earlier array reaches into this one
        array[...] = 1
    assert all((block[spec.name] == 1).all() for spec in specs)
    block.close_fd()


def test_alignment_is_a_cache_line() -> None:
    assert ALIGNMENT == 64


def test_a_second_mapping_shows_what_the_first_one_writes_and_back() -> None:
    ours = SharedArrays(SPECS)
    theirs = SharedArrays(SPECS, os.dup(ours.fd))
    ours["numbers"][:] = np.arange(17)
    theirs["frames"][1, 2, 4] = 77
    assert theirs["numbers"].tolist() == list(range(17))
    assert ours["frames"][1, 2, 4] == 77
    ours.close_fd()
    theirs.close_fd()
    theirs["scalar"][...] = 0.5
    assert ours["scalar"] == 0.5, "a mapping outlives its file descriptor"


def test_another_process_maps_the_block_through_its_file_descriptor() -> None:
    block = SharedArrays(SPECS)
    block["numbers"][:] = 3
    script = (
        "from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays\n"
        f"block = SharedArrays({SPECS!r}, {block.fd})\n"
        "block['numbers'][:] *= 7\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], pass_fds=[block.fd], env=environment, check=True, timeout=120)
    assert block["numbers"].tolist() == [21] * 17
    block.close_fd()


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.ENOMEM])
def test_a_machine_without_enough_memory_says_so_before_anything_starts(
    reason: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, offset: int, num_bytes: int) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(ConfigError, match=r"needs 8 MiB of shared memory.*lower num_envs"):
        SharedArrays([ArraySpec("big", (2**20,), "float64")])
