"""A policy as a file of its own: the tensors by name, and its version in the header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def policy_bytes(policy: nn.Module, version: int) -> bytes:
    """The file's bytes."""
    import torch
    from safetensors.torch import save

    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in policy.state_dict().items()
    }
    return save(tensors, metadata={"version": str(version)})


def with_facts(data: bytes, facts: Mapping[str, str]) -> bytes:
    """The same file with more in its header, which readers of such files may ask for."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = {**header.get("__metadata__", {}), **facts}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]
