# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What callers pass, checked: ctypes would cut numbers that do not fit, and text at a null byte."""
import contextlib
import enum
import operator
import os
import re
import sys
from typing import Any, Dict, Iterator

from winnow._library import REDUCE_OPS, UsageError

_OP_NAMES = {"mean": "average", "avg": "average", "prod": "product", "minimum": "min",
             "maximum": "max"}
_OPS_OF_MPI = {"SUM": "sum", "MIN": "min", "MAX": "max", "PROD": "product"}


@contextlib.contextmanager
def named(what: str) -> Iterator[None]:
    """A UsageError from within says first what it is about."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None


def shown(value: Any) -> str:
    """A value for an error: as it is written, unless that is long."""
    most = 80
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"a number of {value.bit_length()} bits"
    written = repr(value)
    return written if len(written) <= most else written[:most - 3] + "..."


def integer(value: Any, what: str, low: int = 0, high: int = 2**64 - 1) -> int:
    """A whole number of Python or numpy; UsageError for anything else."""
    try:
        found = operator.index(value)
    except TypeError as error:
        raise UsageError(f"{what} is {shown(value)}: must be a whole number") from error
    if not low <= found <= high:
        raise UsageError(f"{what} is {shown(found)}: must be a whole number from {low} to {high}")
    return found


def number(value: Any, what: str) -> float:
    """A real number of Python or numpy, or an array of one; UsageError for anything else."""
    if type(value) is float:
        return value
    if not isinstance(value, (str, bytes)):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
    raise UsageError(f"{what} is {shown(value)}: must be a number")


def text(value: Any, what: str) -> bytes:
    """UTF-8 for the library; UsageError for anything but text."""
    if not isinstance(value, str):
        raise UsageError(f"{what} is {shown(value)}: must be text")
    if "\0" in value:
        raise UsageError(f"{what} is {shown(value)}: must be text without null bytes")
    return value.encode(errors="replace")


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")  # numpy's, too


def flag(value: Any, what: str) -> bool:
    """True or False, of Python or numpy; UsageError for anything else, which a condition would take."""
    if not _is_flag(value):
        raise UsageError(f"{what} is {shown(value)}: must be True or False")
    return bool(value)


def path(value: Any, what: str) -> str:
    """A path as text; UsageError for anything else."""
    try:
        found = os.fspath(value)
    except TypeError:
        found = None
    if not isinstance(found, str):
        raise UsageError(f"{what} is {shown(value)}: must be a path, as text or a pathlib.Path")
    return found


def op_name(op: Any) -> str:
    """The library's name of an operation: a string, one of mpi4py's operations, or an enumeration
    whose names are those, as torch's ReduceOp. UsageError for others."""
    name = op if isinstance(op, str) else getattr(op, "name", None)
    if type(op).__module__.partition(".")[0] == "mpi4py":
        name = next((ours for theirs, ours in _OPS_OF_MPI.items()
                     if op == getattr(sys.modules["mpi4py.MPI"], theirs)), None)
    if isinstance(name, str):
        name = _OP_NAMES.get(name.strip().lower(), name.strip().lower())
        if name in REDUCE_OPS:
            return name
    raise UsageError(f"operation {shown(op)}: must be one of sum, average (or mean, avg), min, max, product")


def native_op(op: Any) -> int:
    """The number of an operation. None: that of the option `op`."""
    return -1 if op is None else REDUCE_OPS[op_name(op)]


def _word(key: str, value: Any) -> str:
    """The value of an option as the library reads it."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None:
        raise UsageError(f"option {key} is None: leave it out for the default")
    if isinstance(value, (list, tuple)):
        return ",".join(_word(key, item) for item in value)
    if isinstance(value, str):
        found = re.sub(r"\s*([,:])\s*", r"\1", value.strip())
        if key == "min_bytes":  # the unit
            found = re.sub(r"(?<=\d)\s+(?=[A-Za-z]+$)", "", found)
        if key == "links":
            found = re.sub(r"\s+(?=[a-z]+\s*=)", "+", found)
        return found
    if _is_flag(value):
        return str(int(value))
    try:
        whole = operator.index(value)
        if whole.bit_length() > 64:
            raise UsageError(f"option {key} is {shown(whole)}: must be a number of at most 64 bits")
        return str(whole)
    except TypeError:
        pass
    try:
        real = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"option {key} is {shown(value)}: must be text, a number or a list") from None
    if real.is_integer() and abs(real) < 2**53:
        return str(int(real))
    shortest = str(value)  # numpy's float32 has fewer digits than the float that it is
    return shortest if re.fullmatch(r"[-+.e\d]+", shortest) else repr(real)


def option_words(compressor: Any, options: Dict[str, Any]) -> str:
    """Options as the library reads them: "compressor=topk:0.01 min_bytes=0"."""
    words, begin = {"compressor": compressor, **options}, []
    if isinstance(compressor, str) and re.match(r"\s*\w+\s*=", compressor):
        begin = [words.pop("compressor")]  # "preset=dgc": options as they are written elsewhere
    if "op" in words:
        try:
            words["op"] = op_name(words["op"])
        except UsageError:
            if not isinstance(words["op"], str):  # otherwise the library has a hint
                raise
    found = {key: _word(key, value) for key, value in words.items()}
    for key, word in found.items():
        if "\0" in word or (key != "compressor" and re.search(r"[\s;]", word)):
            raise UsageError(f"option {key} is {shown(word)}: must not contain blanks or ';'")
    if any("\0" in word for word in begin):
        raise UsageError(f"options are {shown(compressor)}: must be text without null bytes")
    return " ".join(begin + [f"{key}={word}" for key, word in found.items()])
