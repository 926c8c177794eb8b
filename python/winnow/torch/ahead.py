# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Weights where they would be if what this rank has not sent were applied."""
import torch

from winnow.torch.state import State


def look(state: State, parameter: torch.Tensor, weights: torch.Tensor, ahead: torch.Tensor,
         share: float) -> None:
    """ahead = weights - share * residual, of what this rank has of the parameter. All have their
    elements where the gradient in a bucket has them: in the order of the parameter's memory, in
    whatever order of dimensions; of a shard, with padding behind it."""
    source, padding = weights.float(), state.padding_of(parameter)
    in_place = (ahead.dtype == torch.float32 and ahead.stride() == source.stride() and padding == 0)
    if padding > 0:
        source = torch.nn.functional.pad(source.flatten(), (0, padding))
    target = ahead if in_place else torch.empty_like(source)
    reducer = state.reducer
    with state.place_at(ahead.device).in_turn():
        reducer.look_ahead_at(state.parameter_id(parameter), source.data_ptr(), target.data_ptr(),
                              source.numel(), share)
    if padding > 0:
        target = target[:ahead.numel()].view_as(ahead)
    if not in_place:
        ahead.copy_(target)


def share_of(state: State, momentum: float, weight: float) -> float:
    """The share of a residual by which to look ahead, in the units of the loss's scale."""
    return state.reducer.look_ahead_share(momentum) * float(weight) / state.loss_scale()
