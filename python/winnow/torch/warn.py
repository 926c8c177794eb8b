# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Warnings that arrive, once a job."""
import sys
import warnings
from typing import Set

import torch.distributed as dist

# Whose frames no warning names: filters of frameworks drop what comes from there.
_FRAMEWORKS = ("torch", "winnow", "accelerate", "lightning", "lightning_fabric", "pytorch_lightning",
               "transformers", "contextlib", "functools", "runpy")
_said: Set[str] = set()


def warn(topic: str, text: str) -> None:
    """On rank 0, the first time that a topic comes up: a UserWarning at the line of the program that
    has led here."""
    if topic in _said:
        return
    _said.add(topic)
    if dist.is_initialized() and dist.get_rank() != 0:
        return
    frame = found = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _FRAMEWORKS:
            found = frame
            break
        frame = frame.f_back
    warnings.warn_explicit(text, UserWarning, found.f_code.co_filename, found.f_lineno,
                           found.f_globals.get("__name__", "winnow"))
