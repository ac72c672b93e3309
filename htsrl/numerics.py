"""What the bits of a result depend on besides the experiment, and how htsrl pins it down."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache, partial
from importlib.metadata import version
from typing import Any, NamedTuple

from htsrl.fingerprint import Fingerprint
from htsrl.source_hashes import code_hashes

# Intel's matrix library then gives a row the same bits in a batch of any size, on Intel's processors. It is read at the
# library's first use.
MKL_MODE = {"MKL_CBWR": "AUTO,STRICT"}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

# What is freed is kept: the same arrays are wanted again at every step, and fresh pages cost more than filling them.
KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


MIN_NORMAL = sys.float_info.min
_torch_came_first = False


def prepare_process() -> None:
    """Ask for row-independent matrix products; called when htsrl is imported, before torch computes anything."""
    global _torch_came_first
    _torch_came_first = "torch" in sys.modules
    for name, value in MKL_MODE.items():
        os.environ.setdefault(name, value)


def use_one_thread() -> None:
    """One torch thread, deterministic kernels and all bits of float32 from here on.

    The last bits of a sum depend on how many threads share it; parallelism comes from processes instead.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    _set_torch(OURS)


class TorchSettings(NamedTuple):
    """What changes the bits of torch's results on the CPU, or whether there are any, and code may set at any time."""

    threads: int
    deterministic_mode: int
    """2 is "error". Set so, and not by use_deterministic_algorithms(True), which would also import torch's compiler: a
    second at every start."""
    default_type: str
    products: str
    """How products of float32 are rounded: `torch.set_float32_matmul_precision` makes it bf16."""
    convolutions: str
    recurrences: str
    uses_onednn: bool
    records_gradients: bool
    casts_by_itself: bool


OURS = TorchSettings(1, 2, "torch.float32", "ieee", "ieee", "ieee", True, True, False)
ONEDNN = "mkldnn"  # as torch calls it


class Numerics(NamedTuple):
    """The settings of a process, and of the thread that asks."""

    torch: TorchSettings | None
    blas_threads: list[int]
    flushes_denormals: bool


class NumericsOfProcess:
    """Reads and sets them."""

    def __init__(self, uses_torch: bool = True) -> None:
        from threadpoolctl import ThreadpoolController

        self._uses_torch = uses_torch
        self._blas = [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
        self.ours = Numerics(OURS if uses_torch else None, [1] * len(self._blas), False)
        self._num_threads = [_num_threads_of(library) for library in self._blas]
        self._looks = [*(_torch_looks() if uses_torch else ()), *self._num_threads, _flushes_denormals]
        self._seen_as_ours: list[Any] = []  # what the looks show where all is as we set it

    def are_ours(self) -> bool:
        """Whether all is as we set it; to read it properly takes four times as long as a look at whether it changed."""
        seen = [look() for look in self._looks]
        if seen != self._seen_as_ours:
            if self.read() != self.ours:
                return False
            self._seen_as_ours = seen
        return True

    def read(self) -> Numerics:
        threads = [number() for number in self._num_threads]
        return Numerics(_torch_settings() if self._uses_torch else None, threads, _flushes_denormals())

    def write(self, numerics: Numerics) -> None:
        if numerics.flushes_denormals != _flushes_denormals():
            import torch

            torch.set_flush_denormal(numerics.flushes_denormals)
        if numerics.torch is not None:
            _set_torch(numerics.torch)
        for library, threads in zip(self._blas, numerics.blas_threads, strict=True):
            library.set_num_threads(threads)


class OwnNumerics:
    """A context in which we compute with one thread, deterministic kernels and all bits of float32, whatever an
    environment or a module of the user's set in this process, for torch or for NumPy; outside, they find what they set.

    Where nobody set anything, as almost always, it is a look at a dozen values.
    """

    def __init__(self, uses_torch: bool = True) -> None:
        self._settings = NumericsOfProcess(uses_torch)
        self._theirs: Numerics | None = None

    def __enter__(self) -> None:
        if not self._settings.are_ours():
            self._theirs = self._settings.read()
            self._settings.write(self._settings.ours)

    def __exit__(self, *_: object) -> None:
        if self._theirs is not None:
            self._settings.write(self._theirs)
            self._theirs = None


def _num_threads_of(library: Any) -> Callable[[], int]:
    """The function that says how many threads a BLAS uses; threadpoolctl looks OpenBLAS's up anew at every call."""
    names = [f"{a}openblas_get_num_threads{z}" for a in ("", "scipy_") for z in ("", "64_", "_64")]
    found = (getattr(library.dynlib, name) for name in names if hasattr(library.dynlib, name))
    looked_up: Callable[[], int] = library.get_num_threads
    is_known = library.internal_api == "openblas" and library.threading_layer != "openmp"
    return next(found, looked_up) if is_known else looked_up


def _torch_looks() -> list[Callable[[], Any]]:
    """All that `_torch_settings` are told from, as it is found."""
    import torch

    rounding = partial(torch._C._get_fp32_precision_getter, ONEDNN)
    return [
        torch.get_num_threads,
        torch._C._get_deterministic_algorithms,
        torch._C._get_deterministic_algorithms_warn_only,
        torch.get_default_dtype,
        *(partial(rounding, operation) for operation in ("matmul", "conv", "rnn")),
        torch._C._get_mkldnn_enabled,
        torch.is_grad_enabled,
        partial(torch.is_autocast_enabled, "cpu"),
    ]


def _torch_settings() -> TorchSettings:
    import torch

    # Not torch.get_float32_matmul_precision(), which raises where it was set by operation.
    asked = torch._C._get_fp32_precision_getter
    return TorchSettings(
        torch.get_num_threads(),
        torch.get_deterministic_debug_mode(),
        str(torch.get_default_dtype()),
        _rounding(asked(ONEDNN, "matmul")),
        _rounding(asked(ONEDNN, "conv")),
        _rounding(asked(ONEDNN, "rnn")),
        torch._C._get_mkldnn_enabled(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
    )


def _rounding(asked: str) -> str:
    return "ieee" if asked == "none" else asked


def _set_torch(settings: TorchSettings) -> None:
    import torch

    torch.set_num_threads(settings.threads)
    torch.set_deterministic_debug_mode(settings.deterministic_mode)
    torch.set_default_dtype(getattr(torch, settings.default_type.removeprefix("torch.")))
    roundings = {"matmul": settings.products, "conv": settings.convolutions, "rnn": settings.recurrences}
    for operation, rounding in roundings.items():
        if _rounding(torch._C._get_fp32_precision_getter(ONEDNN, operation)) != rounding:
            torch._C._set_fp32_precision_setter(ONEDNN, operation, rounding)
    torch._C._set_mkldnn_enabled(settings.uses_onednn)
    torch.set_grad_enabled(settings.records_gradients)
    torch.set_autocast_enabled("cpu", settings.casts_by_itself)


def _flushes_denormals() -> bool:
    """Whether the processor takes the smallest numbers for zero, as libraries built with -ffast-math make it do."""
    return MIN_NORMAL / 2 == 0.0


@contextmanager
def single_threaded() -> Iterator[None]:
    """The same inside, for NumPy's matrix products too, and the caller's settings again outside."""
    from threadpoolctl import threadpool_limits

    before = _torch_settings()
    use_one_thread()
    try:
        with threadpool_limits(1, user_api="blas"):  # workers are started with `ONE_THREAD`
            yield
    finally:
        _set_torch(before)


def take_fingerprint(device: str, in_half: bool = False) -> Fingerprint:
    """Of this process, without what is behind the environment; `in_half`: for a run that computes in bfloat16."""
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
        code=code_hashes(),
        bfloat16=_half_computation() if in_half else None,
    )


def _computation_hash(device: str) -> str:
    """Torch's convolution, matrix products and gradients, and NumPy's product, of numbers that all machines have."""
    import numpy as np
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
        for rows, outputs in ((1, 64), (3, 64), (16, 64), (16, 1), (64, 6)):  # each may have a kernel of its own
            product = ramp(rows, 64).cpu().numpy().dot(ramp(outputs, 64).cpu().numpy().T)
            hasher.update(np.exp(np.tanh(product)).tobytes())
    return hasher.hexdigest()


def bfloat16_instructions() -> str | None:
    """Those that this CPU multiplies in bfloat16 with; without them bfloat16 takes longer than float32."""
    import torch

    has = torch.cpu.get_capabilities()
    return next((name for name in ("amx_bf16", "avx512_bf16") if has.get(name, False)), None)


def _half_computation() -> str:
    """The instructions for bfloat16, and the hash of convolutions and products in it, with their gradients."""
    import torch
    import xxhash

    def numbers(*shape: int) -> torch.Tensor:
        made = torch.sin(torch.arange(1.0, torch.Size(shape).numel() + 1)).view(shape).to(torch.bfloat16)
        order = torch.channels_last if len(shape) == 4 else torch.contiguous_format
        return made.contiguous(memory_format=order).requires_grad_()

    hasher = xxhash.xxh3_64()
    with single_threaded():
        for channels, size, stride in ((4, 8, 4), (32, 4, 2), (64, 3, 1)):
            x, weight = numbers(4, channels, 20, 20), numbers(64, channels, size, size)
            made = torch.nn.functional.conv2d(x, weight, stride=stride).relu().flatten(1)
            matrix = numbers(64, made.shape[1])
            products = torch.nn.functional.linear(made, matrix)
            torch.autograd.backward(products.square().sum())
            for part in (made, products, x.grad, weight.grad, matrix.grad):
                assert part is not None
                hasher.update(part.detach().contiguous().view(torch.int16).numpy().tobytes())
    return f"{bfloat16_instructions() or 'no instructions'}, {hasher.hexdigest()}"


@cache
def computes_like_a_new_process() -> bool:
    """Whether matrix products have the bits here that they have in worker processes.

    If torch was there before htsrl, the matrix library may have started in another mode.
    """
    return not _torch_came_first or _products_hash() == _asked_in_a_new_process("cpu")["products"]


def warn_if_torch_was_used_before() -> None:
    """Say so when the matrix library started without the mode above: this process then has bits of its own."""
    if not computes_like_a_new_process():
        warnings.warn(
            "torch computed something before htsrl was imported: this run repeats exactly in the same situation, but "
            "its digest differs from that of other processes. Import htsrl first, or use placement processes.",
            stacklevel=3,
        )


def fingerprint_of_a_new_process(device: str, in_half: bool = False) -> Fingerprint:
    """What a worker's would be, whatever has happened in this process."""
    return Fingerprint(**_asked_in_a_new_process(device, in_half)["fingerprint"])


def _products_hash() -> str:
    """Of matrix products of many sizes: which kernel takes which, and so its last bits, is a matter of the mode."""
    import torch
    import xxhash

    hasher = xxhash.xxh3_128()
    with torch.inference_mode(), single_threaded():
        for width, outputs in ((64, 2), (64, 64), (512, 1)):
            weights, rows = torch.sin(torch.arange(1.0, width * outputs + 1)), torch.cos(torch.arange(40.0 * width))
            for count in range(1, 41):
                hasher.update((rows.view(40, width)[:count] @ weights.view(width, outputs)).numpy().tobytes())
                hasher.update((rows.view(40, width)[:count] @ weights.view(outputs, width).T).numpy().tobytes())
    return hasher.hexdigest()


@cache
def _asked_in_a_new_process(device: str, in_half: bool = False) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "htsrl.numerics", device, *(["in half"] if in_half else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)  # type: ignore[no-any-return]


if __name__ == "__main__":
    prepare_process()
    print(
        json.dumps(
            {"fingerprint": asdict(take_fingerprint(sys.argv[1], len(sys.argv) > 2)), "products": _products_hash()}
        )
    )
