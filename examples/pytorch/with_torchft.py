#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchft_lighthouse --min_replicas 1 --join_timeout_ms 1000
       torchrun --standalone --nproc_per_node=1 --max-restarts=9 examples/pytorch/with_torchft.py [STEPS]

Winnow between replica groups of torchft, here of one process each, which may die and come back. Run the
second line twice or more, each with another REPLICA_GROUP_ID=0, 1, ..., and all with the address that the
lighthouse prints: TORCHFT_LIGHTHOUSE=http://HOST:29510.
"""
import datetime
import os
import sys

import torch
from torchft import DistributedDataParallel, Manager, Optimizer
from torchft.process_group import ProcessGroupWrapper

import winnow.torch
from transformer import TEXT, Transformer, loss_of, sample


class ProcessGroupWinnow(ProcessGroupWrapper):
    """A new group for each set of replicas that are alive, which goes on with what waits of the last one."""

    last = None

    def _create_pg(self, store, rank, world_size):
        self.last = winnow.torch.process_group(store, rank, world_size, timeout=self._timeout, after=self.last)
        return self.last

    def getBackendName(self):
        return "torchft-winnow"


class OptimizerWinnow(Optimizer):
    """Takes back what the sums of a step have sent that replicas do not commit."""

    def __init__(self, manager, optimizer, group):
        super().__init__(manager, optimizer)
        self.group = group

    def step(self):
        if self.manager.should_commit():
            self.optim.step()
        else:
            winnow.torch.skip_step(self.group.last)


def training(model):
    """Yields the manager and the group before each step."""
    def state_dict():
        return {"model": model.state_dict(), "optimizer": plain.state_dict()}

    def load_state_dict(state):
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    group = ProcessGroupWinnow(timeout=datetime.timedelta(seconds=30))
    manager = Manager(pg=group, min_replica_size=1, replica_id=os.environ["REPLICA_GROUP_ID"],
                      state_dict=state_dict, load_state_dict=load_state_dict)
    plain = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    ddp, optimizer = DistributedDataParallel(manager, model), OptimizerWinnow(manager, plain, group)

    text = torch.tensor(list(TEXT.read_bytes()))
    generator = torch.Generator().manual_seed(int(os.environ["REPLICA_GROUP_ID"]))
    while True:
        yield manager, group
        optimizer.zero_grad()
        loss_of(ddp, sample(text, generator, 8)).backward()
        optimizer.step()


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    torch.set_num_threads(1)
    model = Transformer(width=64, layers=1)
    for manager, group in training(model):
        if manager.current_step() >= steps:
            break
    print(f"{manager.batches_committed()} batches in {manager.current_step()} steps")
    group.shutdown()
    manager.shutdown()


if __name__ == "__main__":
    main()
