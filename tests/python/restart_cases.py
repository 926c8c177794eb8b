# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs that end and begin again in new processes, on as many ranks and on half of them."""
import contextlib
import copy
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from hsdp_cases import meshes, sharded
from torch_harness import DEVICE, expect, gather, network, refused, step
from winnow.torch.attach import state_of
from winnow.torch.pairing import pairing_of
from winnow.torch.place import local
from winnow.torch.plain import plain

PROGRAM = pathlib.Path(__file__).with_name("restarts.py")
COMPRESSED = {"compressor": "topk:0.05", "schedule": "gather", "min_bytes": 0, "deadline": 30}


@contextlib.contextmanager
def shared_folder():
    folder = gather(tempfile.mkdtemp())[0]
    yield folder
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder)


class Jobs:
    """Those of restarts.py, on processes of its own, in a folder that ranks share."""

    def __init__(self, way, folder):
        self.way, self.folder = way, folder
        self._program = None
        if dist.get_rank() == 0:
            environment = {name: value for name, value in os.environ.items()
                           if not name.startswith(("TORCHELASTIC_", "OMP_"))}
            self._program = subprocess.Popen([sys.executable, str(PROGRAM), way], env=environment, text=True,
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, ranks, *words):
        """What a job has left, None if it failed, and what it said."""
        def ours():
            out = os.path.join(self.folder, "out.pt")
            for stale in pathlib.Path(self.folder).glob("out.pt*"):
                stale.unlink()
            self._program.stdin.write(" ".join([str(ranks), self.folder, out, *words]) + "\n")
            self._program.stdin.flush()
            succeeded = self._program.stdout.readline() == "0\n"
            return torch.load(out) if succeeded else None, pathlib.Path(out + ".txt").read_text()

        return gather(ours() if dist.get_rank() == 0 else None)[0]

    def close(self):
        if self._program is not None:
            self._program.stdin.close()
            self._program.wait()
            self._program.stdout.close()


@contextlib.contextmanager
def jobs(way):
    with shared_folder() as folder, contextlib.closing(Jobs(way, folder)) as made:
        yield made


def expect_restarts(jobs):
    """Returns what the whole job has left."""
    ranks, way = dist.get_world_size(), jobs.way
    whole, said = jobs.run(ranks)
    expect(whole is not None, f"{way}: {said}")
    again, said = jobs.run(ranks, "resume")
    expect(again is not None, f"{way}, again: {said}")
    expect(torch.equal(again["weights"], whole["weights"]), f"{way}: the same bits")
    return whole


def expect_half(jobs, whole):
    weights, applied, squares = whole["written"]
    way = jobs.way
    expect(not torch.equal(weights, applied), f"{way}: something waits")
    half, said = jobs.run((dist.get_world_size() + 1) // 2, "resume")
    expect(half is not None, f"{way}, on half of the ranks: {said}")
    expect(half["equal"] and not torch.equal(half["weights"], weights), f"{way}: it trains on")
    expect(torch.allclose(half["read"][1], applied, rtol=0, atol=1e-6), f"{way}: what waited")
    expect(torch.allclose(half["read"][2], squares, rtol=1e-5, atol=0), f"{way}: second moments")


def expect_plain(way, states):
    """What a framework's own files hold of moments is torch's."""
    expect(all(set(moments) == {"step", "exp_avg", "exp_avg_sq"} for moments in states["state"].values()),
           f"{way}: its own files are torch's")


def case_restart_loop():
    with jobs("loop") as loop:
        expect_half(loop, expect_restarts(loop))


# Two ranks are enough for the frameworks, whose jobs take seconds each.
def has(package):
    return dist.get_world_size() == 2 and importlib.util.find_spec(package) is not None


def case_restart_accelerate():
    if has("accelerate"):
        with jobs("accelerate") as accelerate:
            whole = expect_restarts(accelerate)
            expect_plain("accelerate", torch.load(f"{accelerate.folder}/optimizer.bin"))
            expect_half(accelerate, whole)


def case_restart_lightning():
    """With its optimization, and with two steps inside of each forward pass."""
    for way, number in (("lightning", 3), ("manual", 6)) if has("lightning") else ():
        with jobs(way) as lightning:
            whole, folder = expect_restarts(lightning), lightning.folder
            expect(not os.path.exists(f"{folder}/step={number}.ckpt.winnow"), f"{way}: removed, too")
            end = torch.load(f"{folder}/end.ckpt", weights_only=False)
            expect_plain(way, end["optimizer_states"][0])
            expect(len(os.listdir(f"{folder}/end.ckpt.winnow")) == 2, f"{way}: files after fit")
            expect(whole["equal"], f"{way}: replicas")


def case_restart_transformers():
    """Also on without Winnow, without a rank's file, and from a job without Winnow."""
    if not has("transformers"):
        return
    ranks = dist.get_world_size()
    with jobs("transformers") as trainer:
        expect_half(trainer, expect_restarts(trainer))
        done, said = trainer.run(ranks, "resume", "plain")
        expect(done is not None and done["equal"], f"on without Winnow: {said}")
        expect_plain("transformers", torch.load(f"{trainer.folder}/checkpoint-3/optimizer.pt"))
        if dist.get_rank() == 0:
            os.remove(f"{trainer.folder}/checkpoint-3/winnow/group0_rank1_of{ranks}.pt")
        done, said = trainer.run(ranks, "resume")
        expect(done is None and "UsageError" in said and "'group0_rank1_of" in said,
               f"without a file: {said}")
    with jobs("transformers") as trainer:
        expect(trainer.run(ranks, "plain")[0] is not None, "a job without Winnow")
        done, said = trainer.run(ranks, "resume")
        expect(done is not None and done["equal"] and said.count("no files of Winnow's ranks") == 1,
               f"on with Winnow: {said}")


def attached(kind=torch.optim.AdamW, model=None, group=None, compressor="topk:0.05", rate=0.01):
    ddp = DistributedDataParallel(model or network(), process_group=group)
    optimizer = kind(ddp.parameters(), lr=rate)
    winnow.torch.attach(ddp, optimizer, **{**COMPRESSED, "compressor": compressor})
    return ddp, optimizer


def case_rank_files():
    """What save_checkpoint leaves, and what load_checkpoint refuses, on all ranks alike."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    with shared_folder() as folder:
        ddp, optimizer = attached()
        for number in range(3):
            step(ddp, optimizer, number)
        for stale in "group0_rank0_of9.pt", "group5_rank0_of9.pt", "other.pt":
            pathlib.Path(folder, stale).touch()
        dist.barrier()
        winnow.torch.save_checkpoint(ddp, folder)
        dist.barrier()
        names = {f"group0_rank{one}_of{ranks}.pt" for one in range(ranks)}
        found = set(os.listdir(folder))
        expect(found == names | {"group5_rank0_of9.pt", "other.pt"}, f"files: {found}")
        dist.barrier()
        if rank == 0:
            os.remove(os.path.join(folder, "group5_rank0_of9.pt"))
        dist.barrier()

        squares = optimizer.state[ddp.module[0].weight]["exp_avg_sq"]
        expect(len(set(gather(squares.sum().item()))) == ranks, "second moments differ")
        same, others = attached()
        others.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        others.state[same.module[0].weight]["step"] += 1
        text = refused(lambda: winnow.torch.load_checkpoint(same, folder))
        expect("are of step 3" in text, f"another step: {text}")
        state_of(same).close()

        other, _ = attached(torch.optim.SGD)
        text = refused(lambda: winnow.torch.load_checkpoint(other, folder))
        expect("SGD moves it now" in text, f"another optimizer: {text}")
        state_of(other).close()

        # Without losses: moments in torch's units, and weights to which all was applied.
        whole, others = attached(compressor="none")
        whole.module.load_state_dict(ddp.module.state_dict())
        waits = state_of(ddp).residual(ddp.module[0].weight)
        dist.all_reduce(waits)
        winnow.torch.load_checkpoint(whole, folder)
        wanted = ddp.module[0].weight - waits.view_as(ddp.module[0].weight) / ranks
        expect(torch.allclose(whole.module[0].weight, wanted, rtol=0, atol=1e-6), "what waited is applied")
        total = squares.clone()
        dist.all_reduce(total)
        moments = others.state[whole.module[0].weight]
        expect(torch.allclose(moments["exp_avg_sq"], total / ranks / ranks, rtol=1e-5)
               and "winnow_updates" not in moments, "second moments of the mean")
        step(whole, others, 3)
        state_of(whole).close()

        if rank == 0:
            os.remove(os.path.join(folder, f"group0_rank{ranks - 1}_of{ranks}.pt"))
        dist.barrier()
        again, _ = attached()
        text = refused(lambda: winnow.torch.load_checkpoint(again, folder))
        expect(f"'group0_rank{ranks - 1}_of{ranks}.pt'" in text and f"rank {ranks - 1} finds no" in text,
               f"a missing file: {text}")
        pathlib.Path(folder, f"group0_rank{rank}_of7.pt").touch()
        dist.barrier()
        text = refused(lambda: winnow.torch.load_checkpoint(again, folder))
        expect(f"of {ranks} and of 7 ranks" in text, f"two jobs: {text}")
        text = refused(lambda: winnow.torch.load_checkpoint(again, folder + "/nothing"))
        expect("no files" in text, f"no files: {text}")
        state_of(again).close()
        state_of(ddp).close()


def case_plain_states():
    """A state_dict in torch's units is the optimizer's own again where Winnow goes on from it."""
    for kind, name in ((torch.optim.AdamW, "exp_avg"), (torch.optim.SGD, "momentum_buffer")):
        ddp = DistributedDataParallel(network())
        settings = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        optimizer = kind(ddp.parameters(), lr=0.01, **settings)
        winnow.torch.attach(ddp, optimizer, **COMPRESSED)
        for number in range(3):
            step(ddp, optimizer, number)
        pairing, weight = pairing_of(optimizer), ddp.module[0].weight
        before = {key: value.clone() for key, value in optimizer.state[weight].items()}
        saved = plain(optimizer, optimizer.state_dict())
        moments = saved["state"][0]
        expect("winnow_updates" not in moments, f"{name}: torch's keys")
        expect(not torch.allclose(moments[name], before[name].cpu()), f"{name}: other units")
        expect(all(torch.equal(value, before[key]) for key, value in optimizer.state[weight].items()),
               f"{name}: a copy")
        pairing.rule.to_updates(optimizer.param_groups[0], moments, pairing.scale)
        expect(torch.allclose(moments[name], before[name].cpu(), rtol=1e-4), f"{name}: and back")
        state_of(ddp).close()


def case_restart_sharded():
    """Each rank's file has its shards."""
    if DEVICE.type == "cuda":
        return

    def start():
        model, _, _ = sharded(meshes(), "topk:0.05")
        return model, winnow.torch.AdamW(model.parameters(), lr=1e-3, model=model)

    with shared_folder() as folder:
        model, optimizer = start()
        for number in range(3):
            step(model, optimizer, number)
        winnow.torch.save_checkpoint(model, folder)
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        step(model, optimizer, 3)
        dist.barrier()
        expect(len(os.listdir(folder)) == dist.get_world_size(), "a file a rank")
        again, optimizer = start()
        again.load_state_dict(weights)
        winnow.torch.load_checkpoint(again, folder)
        step(again, optimizer, 3)
        expect(all(torch.equal(local(one), local(other))
                   for one, other in zip(model.parameters(), again.parameters())), "the same bits")
