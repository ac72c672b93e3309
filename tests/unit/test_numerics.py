"""Whether a process computes as others do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

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
