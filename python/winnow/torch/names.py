# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Names and ids of parameters, which wrappers of a model do not change."""
import fnmatch
import hashlib
from typing import Any, Iterable, List

from winnow.torch.warn import warn

# What wrappers call the module that they wrap: torch.compile, checkpoint_wrapper, FSDP, Lightning.
_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_forward_module")


def id_of(name: str) -> int:
    """The id of a model's parameter: the same on all ranks and after a restart."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def unwrapped(name: str) -> str:
    """A qualified name as it is in the model without wrappers."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def listed(names: Iterable[Any]) -> str:
    """The first few of many names or numbers, for a message."""
    found: List[str] = [repr(name) for name in names]
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def warn_of_unmatched(patterns: Any, names: Iterable[str]) -> None:
    """Warns of patterns of the option `exempt` that match none of a model's parameters."""
    given = patterns if isinstance(patterns, (list, tuple)) else str(patterns).split(",")
    known = list(names)
    wrong = [pattern for pattern in (str(one).strip() for one in given)
             if pattern and not any(fnmatch.fnmatchcase(name, pattern) for name in known)]
    if wrong:
        warn(f"exempt {wrong}", f"exempt={','.join(wrong)} matches no parameter of this model, which has "
             f"{listed(known)}")
