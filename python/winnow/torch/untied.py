# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Copies of optimizers of winnow.torch."""
import weakref

import torch

from winnow._library import UsageError
from winnow.torch.pairing import pairing_of

_copies: "weakref.WeakSet[torch.optim.Optimizer]" = weakref.WeakSet()


def note_copy(optimizer: torch.optim.Optimizer) -> None:
    """Called when it gets a state: by load_state_dict; or since it was copied or pickled, and so moves
    other parameters than those of the model whose gradients Winnow reduces."""
    if pairing_of(optimizer) is None:
        _copies.add(optimizer)


def expect_tied(optimizer: torch.optim.Optimizer) -> None:
    """UsageError before a step of a copy."""
    if optimizer in _copies:
        raise UsageError("this optimizer of winnow.torch is a copy, which belongs to no model: make one "
                         "with model= or group= and give it state_dict() of the copy by load_state_dict")
