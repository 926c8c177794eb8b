#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=4 examples/pytorch/with_megatron.py [--instances] [--overlap] [STEPS]

Winnow in Megatron-Core's DistributedDataParallel, over a group of a ProcessGroupCollection: that of data
parallelism, or with --instances the one between two instances of the distributed optimizer, such as nodes.
"""
import argparse
import contextlib
import functools
import types

import torch
import torch.distributed as dist

import winnow.torch
from transformer import TEXT, Transformer, loss_of, sample

if not torch.cuda.is_available():  # Megatron takes it for granted
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.Stream = lambda **_: types.SimpleNamespace(wait_stream=lambda _: None)
    torch.cuda.default_stream = torch.cuda.Stream

from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer import TransformerConfig


def mine(partition, **options):
    """The group of this rank, where each set of ranks makes one."""
    made = [dist.new_group(ranks, **options) for ranks in partition]
    return next(group for group, ranks in zip(made, partition) if dist.get_rank() in ranks)


def groups(options, instances):
    everyone = range(dist.get_world_size())
    winnows = {"backend": "winnow", "pg_options": options}
    made = ProcessGroupCollection()
    made.tp = made.pp = made.ep = mine([[rank] for rank in everyone])
    if instances == 1:
        made.dp = made.dp_cp = made.expt_dp = mine([list(everyone)], **winnows)
        return made
    within = len(everyone) // instances
    made.dp = made.dp_cp = made.expt_dp = mine([list(everyone)])
    made.intra_dp_cp = made.intra_expt_dp = mine(
        [list(everyone[first:first + within]) for first in everyone[::within]])
    made.inter_dist_opt = mine([list(everyone[first::within]) for first in range(within)], **winnows)
    return made


def train(steps, instances=1, overlap=False):
    """The model, and the group that compresses."""
    # With overlap sums are made within the backward pass, else after it.
    made = groups(winnow.torch.GroupOptions(rule="backward" if overlap else "group"), instances)
    model = Transformer(width=64, layers=1)
    ddp = DistributedDataParallel(
        TransformerConfig(num_layers=1, hidden_size=64, num_attention_heads=4),
        DistributedDataParallelConfig(overlap_grad_reduce=overlap, use_distributed_optimizer=instances > 1,
                                      num_distributed_optimizer_instances=instances),
        model, pg_collection=made)
    ddp.broadcast_params()
    if instances == 1:
        optimizer = winnow.torch.AdamW(model.parameters(), lr=2e-3, group=made.dp)
        ahead = functools.partial(winnow.torch.look_ahead, made.dp, optimizer)
    else:  # sums are of shards
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        ahead = contextlib.nullcontext
    text = torch.tensor(list(TEXT.read_bytes()))
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        ddp.zero_grad_buffer()
        optimizer.zero_grad()
        with ahead():
            loss_of(ddp, sample(text, generator, 8)).backward()
        ddp.finish_grad_sync()
        for buffer in ddp.buffers if instances > 1 else ():  # each rank has the sums of its shard
            shard = buffer.grad_data.chunk(made.intra_dp_cp.size())[made.intra_dp_cp.rank()].clone()
            dist.all_gather_into_tensor(buffer.grad_data, shard, group=made.intra_dp_cp)
        for parameter in model.parameters():
            parameter.grad = parameter.main_grad
        optimizer.step()
    return model, made.dp if instances == 1 else made.inter_dist_opt


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0].removeprefix("usage: "))
    parser.add_argument("--instances", action="store_true")
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("steps", nargs="?", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(arguments.steps, 2 if arguments.instances else 1, arguments.overlap)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
