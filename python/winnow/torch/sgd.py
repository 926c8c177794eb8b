# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""SGD whose learning rate is in what waits."""
from typing import Any, Dict, Optional

import torch
import torch.distributed as dist

from winnow.torch.attach import Attached
from winnow.torch.backend.pairing import pair
from winnow.torch.rules import Sgd
from winnow.torch.untied import note_copy
from winnow.torch.watch import watch


class SGD(torch.optim.SGD):
    """torch.optim.SGD for gradients that Winnow reduces and a learning rate that changes:

        optimizer = winnow.torch.SGD(ddp.parameters(), lr=0.1, momentum=0.9, model=ddp)

    What a rank has not sent waits for later steps. Here each rank multiplies its gradient by the
    learning rate before it is compressed, so that it counts with the rate of its own step, and not
    with that of the step in which it is sent:

        u = lr g                                  on each rank
        v = m v + (1 - dampening) (mean(u) + lr weight_decay w),  w -= v

    Set the rate before the backward pass, as schedulers do. With a constant rate this is
    torch.optim.SGD to rounding, and where the compressor loses nothing ("none", "topk:1") it is
    torch.optim.SGD. Replicas stay equal, and no byte more travels.

    `model`: what Winnow is attached to, or its State. `group` in its place: a group of the backend winnow
    over which the program sums gradients itself, as winnow.torch.AdamW says. The other arguments and
    the groups are those of torch.optim.SGD. p.grad holds the mean of u after the backward pass; clip_grad_norm_ of torch
    clips by the norm of gradients all the same. A gradient that did not pass the hook takes torch's
    ordinary step; one that passes it twice before a step is a UsageError, as is maximize.
    """

    def __init__(self, params: Any, lr: float = 1e-3, *, model: Optional[Attached] = None,
                 group: Optional[dist.ProcessGroup] = None, **settings: Any):
        super().__init__(params, lr=lr, **settings)
        pair(self, Sgd(), model, group)

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)  # load_state_dict comes here, too
        note_copy(self)
        watch()
