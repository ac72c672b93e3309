"""The two formats: how a program is written in each, and how what was written is run."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor
from torch.export import ExportedProgram

from htsrl.errors import ConfigError
from htsrl.export.check import Arrays, ExportFailed, Run
from htsrl.export.graph import Graph
from htsrl.export.signature import Signature

Format = Literal["onnx", "torch"]

FILES: Mapping[Format, str] = {"onnx": "policy.onnx", "torch": "policy.pt2"}
ONNX_PACKAGES = ("onnx", "onnxruntime", "onnxscript")


def require_onnx() -> None:
    if missing := [package for package in ONNX_PACKAGES if find_spec(package) is None]:
        raise ConfigError(
            f"ONNX needs packages that are not installed ({', '.join(missing)}); pip install 'htsrl[export]', "
            "or choose --format torch"
        )


def traced(graph: Graph, examples: Mapping[str, Tensor]) -> ExportedProgram:
    """The computation of `graph` for any number of rows."""
    batch = torch.export.Dim("batch")
    shapes = {"inputs": {name: {0: batch} for name in examples}}
    try:
        with _quiet(), torch.no_grad():  # or what gradients need would be part of the program
            # Strict, for otherwise `len(x)` of a tensor would make its number of rows a constant.
            return torch.export.export(graph, (dict(examples),), dynamic_shapes=shapes, strict=True)
    except Exception as error:  # the network may be the user's own
        raise ExportFailed(
            f"torch.export cannot trace this policy: {_brief(error)}; a network of your own must not "
            "depend on the values in a tensor, or on the number of rows, for what it computes"
        ) from error


def serialized(program: ExportedProgram, signature: Signature, form: Format) -> bytes:
    try:
        with _quiet():
            return _onnx(program, signature) if form == "onnx" else _torch(program)
    except Exception as error:
        raise ExportFailed(f"the policy cannot be written as {form}: {_brief(error)}") from error


def runner(data: bytes, form: Format) -> Run:
    """Runs what was written."""
    with _quiet():
        return _onnx_runner(data) if form == "onnx" else _torch_runner(data)


def _onnx(program: ExportedProgram, signature: Signature) -> bytes:
    names = [port.name for port in signature.inputs.values()], [port.name for port in signature.outputs]
    exported = torch.onnx.export(program, dynamo=True, verbose=False, input_names=names[0], output_names=names[1])
    assert exported is not None
    model = exported.model_proto
    model.graph.ClearField("value_info")
    for node in model.graph.node:  # source files of this machine, with their lines
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for port in (*model.graph.input, *model.graph.output):
        port.ClearField("metadata_props")
        port.type.tensor_type.shape.dim[0].dim_param = "batch"
    data: bytes = model.SerializeToString()
    return data


def _torch(program: ExportedProgram) -> bytes:
    for node in program.graph.nodes:
        for key in ("stack_trace", "source_fn_stack", "nn_module_stack"):
            node.meta.pop(key, None)
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def _onnx_runner(data: bytes) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _torch_runner(data: bytes) -> Run:
    module = torch.export.load(io.BytesIO(data)).module()

    def run(inputs: Arrays) -> Arrays:
        with torch.inference_mode():
            outputs = module({name: torch.from_numpy(array) for name, array in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    return run


def _brief(error: Exception) -> str:
    """torch explains itself at length; all of it is in the error's cause."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


@contextmanager
def _quiet() -> Iterator[None]:
    """What exporters tell of their progress is of no use here; what goes wrong comes as an exception."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
