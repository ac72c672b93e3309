"""What the bits of a result depend on besides the experiment, and how htsrl pins it down."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version

# Intel's matrix library then gives a row the same bits in a batch of any size. It is read at the library's first use.
MKL_MODE = {"MKL_CBWR": "AUTO,STRICT"}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

# What is freed is kept: the same arrays are wanted again at every step, and fresh pages cost more than filling them.
KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


def prepare_process() -> None:
    """Ask for row-independent matrix products; called when htsrl is imported, before torch computes anything."""
    for name, value in MKL_MODE.items():
        os.environ.setdefault(name, value)


def use_one_thread() -> None:
    """One torch thread and deterministic kernels from here on.

    The last bits of a sum depend on how many threads share it; parallelism comes from processes instead.
    """
    import torch

    torch.set_num_threads(1)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # The same as use_deterministic_algorithms(True), which would also import torch's compiler: a second at every start.
    torch.set_deterministic_debug_mode("error")


@contextmanager
def single_threaded() -> Iterator[None]:
    """The same inside, and the caller's settings again outside."""
    import torch

    threads, deterministic_mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    use_one_thread()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(deterministic_mode)


@dataclass(frozen=True)
class Fingerprint:
    """Two runs can be expected to agree to the bit only where these are equal."""

    htsrl: str
    python: str
    gymnasium: str
    numpy: str
    torch: str
    machine: str
    cpu_capability: str
    device: str
    mkl_mode: str
    computation: str
    """Hash of a short forward and backward pass of fixed numbers."""

    def differences(self, other: Fingerprint) -> list[str]:
        mine, theirs = asdict(self), asdict(other)
        return [f"{name}: {mine[name]} / {theirs[name]}" for name in mine if mine[name] != theirs[name]]


def take_fingerprint(device: str) -> Fingerprint:
    import torch

    import htsrl

    return Fingerprint(
        htsrl=htsrl.__version__,
        python=platform.python_version(),
        gymnasium=version("gymnasium"),
        numpy=version("numpy"),
        torch=torch.__version__,
        machine=platform.machine(),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        device=device if device == "cpu" else torch.cuda.get_device_name(device),
        mkl_mode=os.environ.get("MKL_CBWR", ""),
        computation=_computation_hash(device),
    )


def _computation_hash(device: str) -> str:
    """A convolution, two matrix products and their gradients, on numbers that every machine has exactly."""
    import torch
    import xxhash
    from torch import nn

    def ramp(*shape: int) -> torch.Tensor:
        count = torch.Size(shape).numel()
        return ((torch.arange(count, device=device) * 7919 % 1013).float() / 1013 - 0.5).view(shape)

    with single_threaded(), torch.random.fork_rng(devices=[]):  # layers draw weights, if only to be overwritten
        network = nn.Sequential(
            nn.Conv2d(4, 16, 8, 4), nn.Tanh(), nn.Flatten(), nn.Linear(16 * 64, 32), nn.Linear(32, 3)
        )
        network.to(device)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.copy_(ramp(*parameter.shape))
        output = network(ramp(8, 4, 36, 36))
        output.square().sum().backward()
        hasher = xxhash.xxh3_128(output.detach().cpu().numpy().tobytes())
        for parameter in network.parameters():
            assert parameter.grad is not None
            hasher.update(parameter.grad.cpu().numpy().tobytes())
    return hasher.hexdigest()


def is_row_stable() -> bool:
    """Whether this process's matrix products give a row the same bits in batches of any size."""
    import torch

    with torch.inference_mode(), single_threaded():
        weights, rows = torch.sin(torch.arange(128.0)).view(2, 64), torch.cos(torch.arange(1024.0)).view(16, 64)
        together = rows @ weights.T
        alone = torch.cat([rows[i : i + 1] @ weights.T for i in range(16)])
    return torch.equal(together, alone)


def warn_if_torch_was_used_before() -> None:
    """Say so when the matrix library started without the mode above: this process then has bits of its own."""
    import torch

    if torch.backends.mkl.is_available() and not is_row_stable():  # type: ignore[no-untyped-call]
        warnings.warn(
            f"torch computed something before htsrl was imported, or MKL_CBWR={os.environ.get('MKL_CBWR')!r} asks for "
            "another mode: this run repeats exactly in the same situation, but its digest differs from that of other "
            "processes. Import htsrl first, or use placement processes.",
            stacklevel=3,
        )


def fingerprint_of_a_new_process(device: str) -> Fingerprint:
    """What a worker's would be, whatever has happened in this process."""
    command = [sys.executable, "-P", "-m", "htsrl.numerics", device]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return Fingerprint(**json.loads(answer.stdout))


if __name__ == "__main__":
    prepare_process()
    print(json.dumps(asdict(take_fingerprint(sys.argv[1]))))
