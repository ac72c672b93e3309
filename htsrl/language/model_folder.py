"""Model folders: what is in them, whether it can be trained, and how a result becomes one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from htsrl.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

READ_BYTES = 1 << 24
KINDS_OF_FILES = (".json", ".jinja", ".safetensors", ".txt", ".model")
"""Those that tell what a model computes."""


def folder_hash(folder: Path) -> str:
    """Of all that tells what the model computes."""
    hasher = xxhash.xxh3_128()
    for path in sorted(path for path in folder.iterdir() if path.suffix in KINDS_OF_FILES and path.is_file()):
        hasher.update(f"{path.name}\0".encode())
        hasher.update(file_hash(path).encode())
    return hasher.hexdigest()


def file_hash(path: Path) -> str:
    hasher = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while part := file.read(READ_BYTES):
            hasher.update(part)
    return hasher.hexdigest()


def check_folder(folder: str, what: str) -> Path:
    """The folder of a model, if it looks like one."""
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError(f"{what}={folder} is no folder; give a local folder with config.json and safetensors")
    if not (path / "config.json").is_file():
        raise ConfigError(f"{what}={folder} is not the folder of a model: it holds no config.json")
    if not list(path.glob("*.safetensors")):
        raise ConfigError(
            f"{what}={folder} holds no safetensors; save the model again with `model.save_pretrained(folder)`"
        )
    return path


def read_model_config(folder: str, what: str = "model") -> Any:
    """A decoder-only model's configuration; ConfigError for any other kind."""
    transformers = import_transformers()
    path = check_folder(folder, what)
    with _blaming(what, folder):
        config = transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    if getattr(config, "is_encoder_decoder", False):
        raise ConfigError(
            f"{what}={folder} is an encoder-decoder model ({config.model_type}); htsrl trains decoder-only models, "
            "such as those of Llama, Qwen or GPT-2"
        )
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        raise ConfigError(
            f"{what}={folder} has layers of {', '.join(sorted(kinds))}; htsrl trains models whose layers all have full "
            "attention"
        )
    return config


def load_causal_model(folder: str, what: str = "model") -> nn.Module:
    """In float32, with the attention whose bits are the same however a text is cut into passes."""
    import torch

    from htsrl.language.attention import FIXED_WIDTH

    read_model_config(folder, what)
    with _blaming(what, folder), quietly():
        model: nn.Module = import_transformers().AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation=FIXED_WIDTH,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    return model.eval()


def load_tokenizer(folder: str) -> Any:
    """With an end of text, which every completion needs; where it has no padding, the end of text stands in."""
    with _blaming("the tokenizer of model", folder), quietly():
        tokenizer = import_transformers().AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    if tokenizer.eos_token_id is None:
        raise ConfigError(
            f"the tokenizer in {folder} has no eos_token, so no completion could end; set tokenizer.eos_token and save "
            "it again with `tokenizer.save_pretrained(folder)`"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # no token of a text ever sees the padding behind it
    return tokenizer


def save_folder(target: Path, model: Any, tokenizer: Any) -> None:
    """An ordinary Hugging Face folder; a kill leaves the one before, or this one, or in between the one before aside,
    from where the next call puts it back."""
    temporary, aside = target.with_name(f".{target.name}.tmp"), target.with_name(f".{target.name}.old")
    if aside.exists() and not target.exists():
        os.rename(aside, target)
    for leftover in (temporary, aside):
        shutil.rmtree(leftover, ignore_errors=True)
    with quietly():
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    if target.exists():
        os.rename(target, aside)
    os.rename(temporary, target)
    shutil.rmtree(aside, ignore_errors=True)


def import_transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"models of text need transformers ({error}); install it with `pip install 'htsrl[language]'`"
        ) from error
    return transformers


@contextmanager
def _blaming(what: str, folder: str) -> Iterator[None]:
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # transformers raises many kinds
        reason = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
        raise ConfigError(f"{what}={folder} cannot be loaded: {type(error).__name__}: {reason}") from error


@contextmanager
def quietly(new_head: bool = False) -> Iterator[None]:
    """Without a progress bar for every shard of the weights; `new_head`: nor a warning of weights that are not there
    yet."""
    logging = import_transformers().utils.logging
    was_shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    if new_head:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if was_shown:
            logging.enable_progress_bar()
