# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers that hold others."""
import torch


def holds_others(optimizer: torch.optim.Optimizer) -> bool:
    """Whether `optimizer` moves its parameters by the steps of those in its `optimizers`, as torchtitan's
    OptimizersContainer does. Hooks of torch see its step around theirs."""
    held = getattr(optimizer, "optimizers", None)
    if not isinstance(held, (list, tuple)) or not all(isinstance(one, torch.optim.Optimizer) for one in held):
        return False
    moved = {id(p) for one in held for group in one.param_groups for p in group["params"]}
    return len(held) > 0 and all(id(p) in moved for group in optimizer.param_groups for p in group["params"])
