# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What outlives a job, and a rank."""
import io
import os
import pickle
import shutil
import signal
import tempfile

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from attach_cases import KINDS, plain, weights
from torch_harness import expect, expect_equal_replicas, gather, make, network, refused, step
from winnow.torch.attach import state_of


def case_checkpoint_of_optimizers():
    """torch.distributed.checkpoint brings along that moments are of updates, into an optimizer that has
    made no step, for which torch makes one at a learning rate of 0; whole and in parts."""
    def start(kind):
        ddp = DistributedDataParallel(network())
        optimizer = KINDS[kind][0](ddp.parameters(), **{**KINDS[kind][2], "lr": 0.01})
        return ddp, winnow.torch.attach(ddp, optimizer, "topk:0.1", schedule="gather", min_bytes=0,
                                        exempt_1d=False)

    for kind, near in (("SGD", 1e-6), ("AdamW", 0.02)):  # each rank has second moments of its own
        for whole in False, True:
            settings = StateDictOptions(full_state_dict=whole)
            ddp, optimizer = start(kind)
            for number in range(6):
                optimizer.zero_grad()
                plain(ddp, number)
                optimizer.step()
            folder = [tempfile.mkdtemp()] if dist.get_rank() == 0 else [None]
            dist.broadcast_object_list(folder)
            model, moments = get_state_dict(ddp, optimizer, options=settings)
            checkpoint.save({"model": model, "optimizer": moments}, checkpoint_id=folder[0])
            unsent = state_of(ddp).state_dict()
            fresh, restored = start(kind)
            model, moments = get_state_dict(fresh, restored, options=settings)
            saved = {"model": model, "optimizer": moments}
            checkpoint.load(saved, checkpoint_id=folder[0])
            set_state_dict(fresh, restored, model_state_dict=saved["model"],
                           optim_state_dict=saved["optimizer"], options=settings)
            state_of(fresh).load_state_dict(unsent)
            for one, its in (ddp, optimizer), (fresh, restored):
                its.zero_grad()
                plain(one, 6)
                its.step()
            expect_equal_replicas(fresh)
            apart = (weights(ddp) - weights(fresh)).abs().max().item()
            expect(apart <= near, f"{kind}, whole={whole}: {apart} after a step")
            text = refused(lambda: state_of(fresh).load_state_dict(unsent))
            expect("detach" in text, f"loading after a pass says what to do: {text}")
            for one in ddp, fresh:
                state_of(one).close()
            dist.barrier()
            if dist.get_rank() == 0:
                shutil.rmtree(folder[0])


def case_resume():
    """From its own checkpoint a rank continues with the same bits. On half of the ranks, from all
    checkpoints, as much is waiting as before."""
    options = {"min_bytes": 0, "exempt_1d": False}  # dense sums depend on the order in a bucket

    def start(**keywords):
        ddp, state, _ = make(options=options, **keywords)
        return ddp, state, winnow.torch.AdamW(ddp.parameters(), lr=0.01, model=ddp)

    def mean_waiting(ddp, state, group=None):
        total = state.residual(next(ddp.parameters()))
        dist.all_reduce(total, group=group)
        return total / dist.get_world_size(group)

    ddp, state, optimizer = start()
    for number in range(3):
        step(ddp, optimizer, number)
    saved = pickle.dumps([ddp.module.state_dict(), optimizer.state_dict(), state.state_dict()])
    before = mean_waiting(ddp, state)
    expect(before.abs().sum() > 0, "something waits")
    for number in range(3, 6):
        step(ddp, optimizer, number)
    state.close()

    model, moments, waiting = pickle.loads(saved)
    again, state, optimizer = start()
    again.module.load_state_dict(model)
    optimizer.load_state_dict(moments)
    state.load_state_dict(waiting)
    for number in range(3, 6):
        step(again, optimizer, number)
    expect(all(map(torch.equal, ddp.parameters(), again.parameters())), "the same bits")
    state.close()

    everyone = gather(waiting)
    fewer = list(range((len(everyone) + 1) // 2))
    group = dist.new_group(fewer)
    conserved = True
    if dist.get_rank() in fewer:
        half, state, optimizer = start(process_group=group)
        state.load_state_dict(*everyone)
        conserved = torch.allclose(mean_waiting(half, state, group), before, rtol=1e-5, atol=1e-7)
        state.close()
    expect(conserved, "what waited waits")


def case_damaged_states():
    """A state of one rank that is not what it has saved is an error on all ranks at once, and none has
    loaded its own."""
    ranks, rank, options = dist.get_world_size(), dist.get_rank(), {"min_bytes": 0}
    last = ranks - 1
    ddp, state, optimizer = make(options=options)
    saved = []
    for number in range(2):
        step(ddp, optimizer, number)
        saved.append(state.state_dict())
    first, second = saved
    key, waits = state.owner().key, state.residual(next(ddp.parameters()))
    foreign = gather(second)[0][f"group0_rank0_of{ranks}"]
    text = refused(lambda: state.load_state_dict(second))
    expect("before the first backward pass" in text, f"too late: {text}")
    expect(torch.equal(state.residual(next(ddp.parameters())), waits), "what waits stays")
    state.close()

    ddp, state, optimizer = make(options=options)
    flip = second[key].clone()
    flip[len(flip) // 2] ^= 4
    damages = {"a flip": {key: flip}, "cut": {key: second[key][:-8]}, "empty": {key: second[key][:0]},
               "floats": {key: torch.ones(8)}, "text": {key: "x"}, "no dictionary": 5, "nothing": {},
               "another key": {"model": second[key]}, "another step": first,
               "another rank's": {key: foreign}, "names": {**second, "names": 7}}
    for name, damaged in damages.items() if last > 0 else ():
        text = refused(lambda: state.load_state_dict(damaged if rank == last else second))
        expect(f"rank {last}" in text, f"{name}: {text}")
        expect(state.residual(next(ddp.parameters())) is None, f"{name}: nothing is loaded")
    state.load_state_dict(second)
    expect(torch.equal(state.residual(next(ddp.parameters())), waits), "then it goes on")
    step(ddp, optimizer, 2)
    state.close()


def case_killed():
    """The others get a CommError in their training loop, and their residuals."""
    ddp, state, optimizer = make()
    weight = next(ddp.parameters())
    try:
        for number in range(1000):
            step(ddp, optimizer, number)
            if number == 5 and dist.get_rank() == dist.get_world_size() - 1:
                os.kill(os.getpid(), signal.SIGKILL)
    except winnow.CommError as error:
        held = state.residual(weight)
        # In one piece: the other ranks write to the same pipe.
        os.write(1, f"rank {dist.get_rank()}: {error}; residual of {len(held)}\n".encode())
        os._exit(0)
    os._exit(1)


def case_distributed_checkpoint():
    """torch.distributed.checkpoint keeps what each rank has not sent, in as many bytes, and half of the
    ranks find all of it."""
    options = {"min_bytes": 0}
    ddp, state, optimizer = make(options=options)
    for number in range(3):
        step(ddp, optimizer, number)
    saved, waits = state.state_dict(), state.residual(next(ddp.parameters()))
    file = io.BytesIO()
    torch.save(saved, file)
    expect(file.tell() < 1.02 * sum(tensor.numel() for tensor in saved.values()) + 4096, "no blowup")
    path = gather(tempfile.mkdtemp())[0]
    checkpoint.save({"winnow": state}, checkpoint_id=path)
    total = waits.clone()
    dist.all_reduce(total)
    state.close()

    ddp, state, optimizer = make(options=options)
    checkpoint.load({"winnow": state}, checkpoint_id=path, planner=winnow.torch.LoadPlanner())
    expect(torch.equal(state.residual(next(ddp.parameters())), waits), "each rank has its own")
    step(ddp, optimizer, 3)
    state.close()

    fewer = list(range((dist.get_world_size() + 1) // 2))
    group = dist.new_group(fewer)
    conserved = refused = True
    if dist.get_rank() in fewer:
        half, state, optimizer = make(options=options, process_group=group)
        if dist.get_world_size() > 1:
            try:
                state.load_state_dict(saved)
                refused = False
            except winnow.UsageError as error:
                refused = "lacks the states of ranks" in str(error)
        found = {"winnow": state.state_dict()}
        checkpoint.load(found, checkpoint_id=path, process_group=group,
                        planner=winnow.torch.LoadPlanner())
        state.load_state_dict(found["winnow"])
        now = state.residual(next(half.parameters()))
        dist.all_reduce(now, group=group)
        conserved = torch.allclose(now / len(fewer), total / dist.get_world_size(), rtol=1e-5, atol=1e-7)
        state.close()
    expect(conserved, "what waited waits")
    expect(refused, "a state alone does not do")
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(path)


def case_checkpoint_without_winnow():
    """A checkpoint that knows nothing of Winnow is named, or a partial load leaves the State as it is."""
    path = gather(tempfile.mkdtemp())[0]
    ddp, state, optimizer = make(options={"min_bytes": 0})
    checkpoint.save({"model": ddp.module.state_dict()}, checkpoint_id=path)
    found = {"model": ddp.module.state_dict(), "winnow": state}
    try:
        checkpoint.load(found, checkpoint_id=path, planner=winnow.torch.LoadPlanner())
        text = ""
    except checkpoint.CheckpointException as error:
        text = str(error)
    expect("no state of Winnow under 'winnow'" in text and "allow_partial_load" in text, text)
    checkpoint.load(found, checkpoint_id=path, planner=winnow.torch.LoadPlanner(allow_partial_load=True))
    for number in range(2):
        step(ddp, optimizer, number)
    expect(state.residual(next(ddp.parameters())).any(), "training goes on")
    expect("it is empty" in refused(lambda: make()[1].load_state_dict({})), "an empty one")
    state.close()
    if dist.get_rank() == 0:
        shutil.rmtree(path)
