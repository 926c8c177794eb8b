# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of training loops of one's own."""
import os
from typing import Union

from winnow._library import UsageError
from winnow.arguments import path
from winnow.torch import rank_file
from winnow.torch.attach import Attached, state_of


def save_checkpoint(model: Attached, folder: Union[str, "os.PathLike[str]"]) -> None:
    """Writes into `folder` a file with what this rank has not sent of its gradients, and with the
    moments of the optimizers that Winnow prepares for. Not collective: every rank makes this call,
    after the same step. Checkpoints of Hugging Face's Trainer, Accelerate and Lightning do it by
    themselves.

        winnow.torch.save_checkpoint(ddp, folder)
        if rank == 0:
            torch.save(ddp.module.state_dict(), folder / "model.pt")

    The folder should hold nothing but one checkpoint, and be one for all ranks. Files there of a job
    with another number of ranks are removed.
    """
    rank_file.write(path(folder, "folder"), state_of(model))


def load_checkpoint(model: Attached, folder: Union[str, "os.PathLike[str]"]) -> None:
    """Continues from what the ranks of a job have saved: after weights are loaded and optimizers
    attached, before the first backward pass. On as many ranks each goes on with its own; on more or
    fewer all share what waited, and second moments are the means over the old ranks. Collective.

    Raises UsageError on all ranks, before anything is changed, if a rank's file is missing, damaged or
    another rank's, which it names, and for files of another optimizer or another step than those of the
    state that the optimizer has.
    """
    where = path(folder, "folder")
    if not rank_file.read(where, state_of(model)):
        raise UsageError(f"{where} has no files of winnow.torch.save_checkpoint")
