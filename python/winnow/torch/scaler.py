# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Residuals under a loss scale."""
import functools
from typing import Any

import torch

from winnow._library import UsageError
from winnow.torch.attach import Attached, state_of


def attach_scaler(model: Attached, scaler: torch.amp.GradScaler) -> None:
    """Lets the residuals of `model` follow a GradScaler, from the next backward pass on:

        winnow.torch.attach(ddp, "topk:0.01")
        winnow.torch.attach_scaler(ddp, scaler)

    A residual is in the units of the scaled loss, so it is scaled with it; and a step that the
    scaler skips leaves no trace in the residuals, whichever buckets were finite. A step is what
    comes between two calls of scaler.update(), where a smaller scale says that it was skipped.
    Costs a copy of the residuals. Collective: ranks meet, and all attach.

    Raises UsageError for a scaler that is attached already.
    """
    state = state_of(model)
    reducer = state.reducer
    if hasattr(scaler.update, "__wrapped__"):
        raise UsageError("Winnow follows this scaler already")
    update = scaler.update

    @functools.wraps(update)
    def followed(*arguments: Any, **keywords: Any) -> None:
        before = scaler.get_scale()
        update(*arguments, **keywords)
        factor = scaler.get_scale() / before
        if factor < 1:
            reducer.discard_step()
            state.marks.clear()
        if factor != 1:
            reducer.scale_residuals(factor)
        reducer.begin_step()

    scaler.update = followed
    state.loss_scale = scaler.get_scale
    reducer.begin_step()
