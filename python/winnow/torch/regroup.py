# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Another process group for a model that Winnow is attached to."""
from winnow._library import UsageError
from winnow.torch.attach import Attached, state_of
from winnow.torch.state import State


def regroup(model: Attached) -> None:
    """Lets Winnow follow a DistributedDataParallel to its new process group, whose ranks all call it
    between a step and the next forward pass:

        ddp._update_process_group(group)
        if dist.get_rank() in ranks_that_stay:
            winnow.torch.regroup(ddp)

    As State.regroup, which says what stays. Raises UsageError as that does, and for what is no model
    with a process group.
    """
    group = getattr(getattr(model, "_orig_mod", model), "process_group", None)
    if isinstance(model, State) or group is None:
        raise UsageError("regroup takes a DistributedDataParallel; for a State of your own call "
                         "state.regroup(group)")
    state_of(model).regroup(group)
