# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 within nodes, Winnow between them."""
import hashlib

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from torch_harness import FIXED, SIZE, expect, expect_refused, gather, network, step
from winnow.torch.hook import id_of


def case_hsdp():
    """Shards within pairs of ranks, where there are pairs, sums between: at density 1 it equals
    DistributedDataParallel, below it the replicas are equal and residuals lie with the shards."""
    ranks = dist.get_world_size()
    within = 2 if ranks % 2 == 0 and ranks > 2 else 1
    mesh = init_device_mesh("cpu", (ranks // within, within), mesh_dim_names=("between", "within"))

    def whole(model):
        return [p.full_tensor().detach() if hasattr(p, "full_tensor") else p.detach()
                for p in model.parameters()]

    def sharded(compressor):
        model = network()
        for layer in model[0], model[3]:
            fully_shard(layer, mesh=mesh["within"])
        fully_shard(model, mesh=mesh["within"])
        state = winnow.torch.attach_hsdp(model, mesh["between"], compressor, min_bytes=0, **FIXED)
        return model, state, torch.optim.SGD(model.parameters(), lr=0.05)

    plain = DistributedDataParallel(network())
    theirs = torch.optim.SGD(plain.parameters(), lr=0.05)
    model, state, optimizer = sharded("topk:1")
    for number in range(4):
        step(plain, theirs, number)
        step(model, optimizer, number)
    for now, then in zip(whole(model), whole(plain)):
        expect(torch.allclose(now, then, rtol=1e-4, atol=1e-5), "equal to rounding")
    state.close()

    model, state, optimizer = sharded("topk:0.01")
    for number in range(4):
        step(model, optimizer, number)
    digest = hashlib.sha256(b"".join(p.numpy().tobytes() for p in whole(model))).hexdigest()
    expect(len(set(gather(digest))) == 1, "replicas are equal")
    held = state.reducer.residual(id_of("0.weight"))
    expect(len(held) == SIZE * SIZE // within, "a residual of this rank's shard")
    stats = state.reducer.totals()
    expect(stats["wire_bytes"] * 8 < stats["dense_wire_bytes"], "fewer bytes")
    expect_refused(lambda: winnow.torch.attach_hsdp(network(), mesh["between"]),
                   lambda: winnow.torch.attach_hsdp(model, mesh),
                   lambda: winnow.torch.AdamW(model.parameters(), model=state),
                   lambda: winnow.torch.look_ahead(state, optimizer).__enter__())
    state.close()
