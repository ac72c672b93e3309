"""Which configurations htsrl wrote for this user: a keyed hash beside the file, with a key that only the user has.

The key is made at the first use, in `$XDG_STATE_HOME/htsrl/key` (`~/.local/state/htsrl/key`). A folder that somebody
else made, or changed, was not signed with it, and a folder that is given away does not take it along.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path

from htsrl.plain_files import read_plain

KEY_BYTES = 32
PURPOSE = b"htsrl config 1\0"
SIGNATURE_FILE_LIMIT_BYTES = 4096


class NoKey(Exception):
    """There is no key that can be relied on, and why."""


def state_folder() -> Path:
    """Where htsrl keeps what belongs to this user rather than to a run."""
    state = os.environ.get("XDG_STATE_HOME", "")
    # As the XDG specification says, a path that is not absolute counts as none.
    return (Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()) / "htsrl"


def key_file() -> Path:
    return state_folder() / "key"


def signature_file(config_file: Path) -> Path:
    return config_file.with_name(config_file.name + ".signature")


def sign(data: bytes) -> str | None:
    """The signature of a configuration; None where this account can have no key."""
    try:
        return hmac.new(_key(create=True), PURPOSE + data, "sha256").hexdigest()
    except NoKey:
        return None


def why_unsigned(config_file: Path, data: bytes) -> str | None:
    """None where the signature beside the file is this account's for these bytes; else what is wrong, in words."""
    try:
        lines = read_plain(signature_file(config_file), SIGNATURE_FILE_LIMIT_BYTES).split()
    except OSError:
        return "it has no signature"
    try:
        expected = hmac.new(_key(create=False), PURPOSE + data, "sha256").hexdigest().encode()
    except NoKey as error:
        return str(error)
    return None if any(hmac.compare_digest(line, expected) for line in lines) else "its signature is not yours"


def _key(create: bool) -> bytes:
    try:
        path = key_file()
        if create and not path.exists():
            _make(path)
        return _read(path)
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody knows where home is
        raise NoKey(f"you have no key ({error})") from error


def _read(path: Path) -> bytes:
    status = path.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise NoKey(f"{path} can be read or written by others; remove it, and a new one is made")
    key = read_plain(path, KEY_BYTES)
    if len(key) != KEY_BYTES:
        raise NoKey(f"{path} does not hold a key; remove it, and a new one is made")
    return key


def _make(path: Path) -> None:
    """All of it at once, whoever else does the same at this moment."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".key-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        pass  # another process was faster, and its key is as good
    finally:
        temporary.unlink(missing_ok=True)
