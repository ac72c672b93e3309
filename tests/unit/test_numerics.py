"""Whether a process computes as others do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from htsrl.numerics import single_threaded

QUESTION = "from htsrl.numerics import computes_like_a_new_process; print(computes_like_a_new_process())"
USES_TORCH = "import torch; torch.ones(64, 64) @ torch.ones(64, 64); "


@pytest.mark.skipif("mkl" not in torch.__config__.show().lower(), reason="the mode is one of Intel's library")
@pytest.mark.parametrize(
    ("first", "answer"), [("", "True"), ("import htsrl; " + USES_TORCH, "True"), (USES_TORCH, "False")]
)
def test_a_process_that_used_torch_before_htsrl_knows_that_its_bits_are_its_own(first: str, answer: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    told = subprocess.run([sys.executable, "-c", first + QUESTION], env=environment, capture_output=True, text=True)
    assert told.stdout.strip() == answer, told.stderr


def test_numpys_matrix_products_have_one_thread_inside_and_as_many_as_before_outside() -> None:
    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with single_threaded():
            assert set(threads()) == {1}
        assert threads() == before
        assert max(before) > 1
