# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""AdamW behind compressed sums."""
import math
from typing import Any, Dict, Optional

import torch
import torch.distributed as dist

from winnow._library import UsageError
from winnow.arguments import number
from winnow.torch.attach import Attached
from winnow.torch.backend.pairing import pair
from winnow.torch.rules import Adam
from winnow.torch.untied import note_copy
from winnow.torch.watch import watch


class AdamW(torch.optim.AdamW):
    """torch.optim.AdamW for gradients that Winnow reduces:

        optimizer = winnow.torch.AdamW(ddp.parameters(), lr=1e-3, model=ddp)

    Compressed sums come in bursts, of which AdamW itself makes wrong second moments. Here each rank
    makes its own update by its own second moment before that is compressed, and the first moment is
    that of the reduced updates:

        v = b2 v + (1 - b2) g^2,  u = scale lr g / (sqrt(v / (1 - b2^t)) + eps)     on each rank
        m = b1 m + (1 - b1) mean(u),  w -= m / (1 - b1^t) + lr weight_decay w

    `scale` is the root of the number of ranks by default (of nodes, under attach_hsdp). torch's
    AdamW divides by moments of the mean over ranks, whose noise is so many times less than that of
    one rank's gradient: with it a learning rate that serves torch's AdamW serves here. Where the
    gradients of ranks hardly differ it should be 1.

    The learning rate is in what waits, so that it counts with the rate of its own step: set it
    before the backward pass, as schedulers do.

    Replicas stay equal, and no byte more travels. Where the compressor loses nothing ("none",
    "topk:1") this is torch.optim.AdamW.

    `model`: what Winnow is attached to, or its State. `group` in its place: a group of the backend winnow
    over which the program sums gradients itself (docs/backend.md says which sums it knows); made before the
    first backward pass. p.grad must then be, at the step, what was summed, or that divided by the number of
    ranks, and the scale is the root of the group's size. The other arguments and the groups are those of
    torch.optim.AdamW. In state_dict() exp_avg is of updates, and exp_avg_sq differs between ranks,
    so each saves its own; behind attach_fsdp it is a plain tensor of the whole parameter on each rank.
    p.grad holds the mean of u after the backward pass; clip_grad_norm_ of torch clips by the norm of
    gradients all the same. A gradient that did not pass the hook takes torch's ordinary step; one that
    passes it twice before a step is a UsageError. So are amsgrad, maximize, and a step under a
    GradScaler, since u has no scale to undo (bf16 needs none).

    (Momentum of normalized gradients: Ziyin et al., LaProp, 2020.)
    """

    def __init__(self, params: Any, lr: float = 1e-3, *, model: Optional[Attached] = None,
                 group: Optional[dist.ProcessGroup] = None, scale: Optional[float] = None, **settings: Any):
        super().__init__(params, lr=lr, **settings)
        if scale is not None:
            scale = number(scale, "scale")
            if not 0 < scale < math.inf:
                raise UsageError(f"scale is {scale}: must be a number above 0")
        pair(self, Adam(), model, group, scale)

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)  # load_state_dict comes here, too
        note_copy(self)
        watch()
