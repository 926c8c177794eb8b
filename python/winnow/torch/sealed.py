# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save that end with a digest of themselves, which torch.load skips."""
import hashlib
import os
from typing import Any, BinaryIO

import torch

from winnow._library import UsageError

_MARK = b"WNWSEAL1"  # before the digest: SHA-256 of all bytes before the mark
_END = len(_MARK) + hashlib.sha256().digest_size
_CHUNK = 1 << 20


class _Hashed:
    """A file that torch.save writes to from its beginning to its end, and the digest of that."""

    def __init__(self, file: BinaryIO):
        self._file, self.digest = file, hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def save(content: Any, path: str) -> None:
    """torch.save, and the digest."""
    with open(path, "wb") as file:
        hashed = _Hashed(file)
        torch.save(content, hashed)
        file.write(_MARK + hashed.digest.digest())


def _expect_whole(path: str) -> None:
    """UsageError unless the file has the bytes that were saved."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        left = os.fstat(file.fileno()).st_size - _END
        while left > 0 and (chunk := file.read(min(left, _CHUNK))):
            digest.update(chunk)
            left -= len(chunk)
        end = file.read()
    if not end.startswith(_MARK):
        raise UsageError("no checksum at its end: it is cut or damaged, or it is no file of this Winnow")
    if end != _MARK + digest.digest():
        raise UsageError("damaged: its checksum is another one")


def load(path: str) -> Any:
    """What save was given, in host memory, as it is read. UsageError if a byte has changed since."""
    _expect_whole(path)
    return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
