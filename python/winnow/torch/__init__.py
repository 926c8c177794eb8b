# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Winnow in PyTorch's DistributedDataParallel:

    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = winnow.torch.attach(ddp, torch.optim.AdamW(ddp.parameters(), lr=1e-3))

All replicas hold the same bits after every step. docs/pytorch.md says what works with what.
"""
from winnow.torch.adamw import AdamW
from winnow.torch.attach import attach, detach, skip_step, state_of
from winnow.torch.backend import GroupOptions, process_group, register
from winnow.torch.checkpoint import LoadPlanner
from winnow.torch.enable import enable
from winnow.torch.fsdp import attach_fsdp
from winnow.torch.hook import hook
from winnow.torch.hsdp import attach_hsdp
from winnow.torch.look_ahead import look_ahead
from winnow.torch.regroup import regroup
from winnow.torch.report import metrics, report
from winnow.torch.restart import load_checkpoint, save_checkpoint
from winnow.torch.scaler import attach_scaler
from winnow.torch.sgd import SGD
from winnow.torch.state import State

register()

__all__ = ["AdamW", "GroupOptions", "LoadPlanner", "SGD", "State", "attach", "attach_fsdp", "attach_hsdp",
           "attach_scaler", "detach", "enable", "hook", "load_checkpoint", "look_ahead", "metrics",
           "process_group", "regroup", "report", "save_checkpoint", "skip_step", "state_of"]
