# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The state of an optimizer as a program without Winnow takes it."""
import contextlib
from typing import Any, Dict, Iterator, Sequence

import torch

from winnow.torch.pairing import pairing_of
from winnow.torch.rules import CLIP, UPDATES, are_updates


def plain(optimizer: torch.optim.Optimizer, saved: Dict[str, Any]) -> Dict[str, Any]:
    """state_dict() of `optimizer` with moments in torch's units, by those of this rank, in host
    memory."""
    pairing = pairing_of(optimizer)
    if pairing is None:
        return saved
    state = dict(saved["state"])
    for group in saved["param_groups"]:
        for index in group["params"]:
            moments = state.get(index) or {}
            if UPDATES not in moments and CLIP not in moments:
                continue
            state[index] = {name: value.detach().to("cpu", copy=True)
                            if isinstance(value, torch.Tensor) else value
                            for name, value in moments.items() if name != CLIP}
            if are_updates(state[index]):
                pairing.rule.to_gradients(group, state[index], pairing.scale)
            state[index].pop(UPDATES, None)
    return {**saved, "state": state}


@contextlib.contextmanager
def saving_plain(optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[None]:
    """Inside, state_dict() of these optimizers is plain."""
    handles = [one.register_state_dict_post_hook(plain) for one in optimizers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
