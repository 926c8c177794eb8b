# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Warnings that arrive, once a job."""
import contextlib
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
    has led here. On the other ranks, too, where warnings are errors."""
    if topic in _said:
        return
    _said.add(topic)
    frame = found = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _FRAMEWORKS:
            found = frame
            break
        frame = frame.f_back
    is_told = not dist.is_initialized() or dist.get_rank() == 0
    with contextlib.nullcontext() if is_told else warnings.catch_warnings(record=True):
        warnings.warn_explicit(text, UserWarning, found.f_code.co_filename, found.f_lineno,
                               found.f_globals.get("__name__", "winnow"))
