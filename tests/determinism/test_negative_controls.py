"""What the design forbids does turn the comparison of digests red."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import numpys_rows_are_stable, run
from small_experiments import EXPERIMENTS, small_experiment

from htsrl.digest import first_difference

Digests = dict[str, dict[str, list[str]]]


def test_noise_drawn_by_the_actor_makes_the_digest_depend_on_who_acts() -> None:
    sabotaged = replace(small_experiment("cartpole_a2c"), imports=("sabotage_noise",), total_steps=400)
    one, two = (run(sabotaged, backend="processes", num_executors=1, num_actors=actors) for actors in (1, 2))
    difference = first_difference(one.links, two.links)
    assert difference is not None
    assert "actions" in difference
    assert one.policy != two.policy


@pytest.fixture(scope="module")
def digests_without_strict_products() -> Digests:
    """Digests over batch sizes where the matrix library may choose its kernel by the size of the batch."""
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        pytest.skip("this torch has no MKL, whose modes the control switches")
    script = Path(__file__).with_name("digests_by_batch_size.py")
    environment = {**os.environ, "MKL_CBWR": "AUTO", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    digests: Digests = json.loads(done.stdout)
    return digests


def test_unpadded_batches_make_the_digest_depend_on_their_sizes(digests_without_strict_products: Digests) -> None:
    assert len(set(digests_without_strict_products["unpadded"]["pixels_a2c"])) > 1


@pytest.mark.skipif(numpys_rows_are_stable(), reason="NumPy gives a row the same bits in any batch here")
def test_so_they_do_where_policies_act_in_numpy(digests_without_strict_products: Digests) -> None:
    assert len(set(digests_without_strict_products["unpadded"]["normalized_ppo"])) > 1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_padded_batches_give_one_digest_even_where_sizes_matter(
    name: str, digests_without_strict_products: Digests
) -> None:
    assert len(set(digests_without_strict_products["padded"][name])) == 1
