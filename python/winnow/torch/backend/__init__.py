# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The backend "winnow" of torch.distributed: a process group that compresses sums of gradients."""
import functools

import torch.distributed as dist

from winnow.torch.backend.make import create, process_group
from winnow.torch.backend.options import GroupOptions

__all__ = ["GroupOptions", "process_group", "register"]


@functools.lru_cache(maxsize=None)
def register() -> None:
    """Makes "winnow" a backend: `import winnow.torch` does, and torch 2.15 by itself, when a program names
    it."""
    if "WINNOW" not in dist.Backend._plugins:
        dist.Backend.register_backend("winnow", create, extended_api=True, devices=["cpu", "cuda"])
