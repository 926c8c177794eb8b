#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: restarts.py WAY

Runs a job for each line of its input, `RANKS FOLDER OUT [resume] [plain]`, and answers by a line, its
status; the job's output is in OUT.txt. Each rank is a new process, forked where only WAY's framework has
been imported, which takes longer than a job.

A job trains a small model by WAY, the name of a function run_WAY below, for 6 steps of 2 batches each,
with a checkpoint in FOLDER after the third. resume: begins at that. plain: without Winnow. Rank 0 leaves
in OUT the weights at the end, and in "written" and "read" what ranks had when each file was: the weights,
those with all that waited applied, and mean second moments.
"""
import importlib
import os
import socket
import sys
import traceback
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from winnow.torch import frameworks, rank_file
from winnow.torch.pairing import pairings_of

STEPS, SAVED, PASSES, RATE = 6, 3, 2, 2e-3
# Sums that do not depend on how parameters lie in buckets, which differs before and after a restart.
# Norms do, so clipping is on, but clips nothing.
BOUND = 1e9
OPTIONS = {"compressor": "topk:0.05", "schedule": "gather", "min_bytes": 0, "exempt_1d": False,
           "deadline": 30}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(40, 60), nn.Tanh(), nn.Linear(60, 8))

    def forward(self, inputs, labels):
        return {"loss": nn.functional.cross_entropy(self.layers(inputs), labels)}


def items(count):
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(count, 40, generator=generator)
    return [{"inputs": x, "labels": y} for x, y in zip(inputs, inputs[:, :8].argmax(1))]


def batch(number):
    generator = torch.Generator().manual_seed(100 * number + dist.get_rank())
    inputs = torch.randn(8, 40, generator=generator)
    return {"inputs": inputs, "labels": inputs[:, :8].argmax(1)}


def schedule_of(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 4))


def run_loop(folder, resumes, is_plain):
    """One's own, over DistributedDataParallel."""
    ddp = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=RATE)
    winnow.torch.attach(ddp, optimizer, **OPTIONS)
    schedule = schedule_of(optimizer)
    if resumes:
        model, moved = torch.load(f"{folder}/job.pt")
        ddp.module.load_state_dict(model)
        schedule.load_state_dict(moved)
        for group, rate in zip(optimizer.param_groups, schedule.get_last_lr()):
            group["lr"] = rate
        winnow.torch.load_checkpoint(ddp, folder)
    for step in range(SAVED if resumes else 0, STEPS):
        optimizer.zero_grad()
        with ddp.no_sync():
            (ddp(**batch(PASSES * step))["loss"] / 2).backward()
        (ddp(**batch(PASSES * step + 1))["loss"] / 2).backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), BOUND)
        optimizer.step()
        schedule.step()
        if step + 1 == SAVED and not resumes:
            winnow.torch.save_checkpoint(ddp, folder)
            if dist.get_rank() == 0:
                torch.save([ddp.module.state_dict(), schedule.state_dict()], f"{folder}/job.pt")
    return ddp.module


def run_accelerate(folder, resumes, is_plain):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=PASSES)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule_of(optimizer))
    if not is_plain:
        winnow.torch.attach(model, optimizer, **OPTIONS)
    if resumes:
        accelerator.load_state(folder)
    for number in range(PASSES * (SAVED if resumes else 0), PASSES * STEPS):
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch(number))["loss"])
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), BOUND)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if number + 1 == PASSES * SAVED and not resumes:
            accelerator.save_state(folder)
    return accelerator.unwrap_model(model)


def run_transformers(folder, resumes, is_plain):
    from transformers import Trainer, TrainingArguments

    if not is_plain:
        winnow.torch.enable(**OPTIONS)
    model = Model()
    arguments = TrainingArguments(
        output_dir=folder, max_steps=STEPS, per_device_train_batch_size=8, use_cpu=True,
        gradient_accumulation_steps=PASSES, learning_rate=RATE, warmup_steps=2, save_steps=SAVED,
        ddp_find_unused_parameters=False, report_to=[], disable_tqdm=True)
    trainer = Trainer(model=model, args=arguments, train_dataset=items(2000))
    trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-{SAVED}" if resumes else None)
    return model


def run_lightning(folder, resumes, is_plain, automatic=True):
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.strategies import DDPStrategy

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.automatic_optimization = Model(), automatic

        def training_step(self, _, number):  # which goes on after a restart, unlike the loader
            if automatic:
                return self.model(**batch(number))["loss"]
            optimizer = self.optimizers()
            for half in range(2):
                optimizer.zero_grad()
                self.manual_backward(self.model(**batch(2 * number + half))["loss"])
                optimizer.step()
            self.lr_schedulers().step()
            return None

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=RATE)
            return [optimizer], [{"scheduler": schedule_of(optimizer), "interval": "step"}]

    if not is_plain:
        winnow.torch.enable(**OPTIONS)
    each = 1 if automatic else 2  # steps that Lightning counts in one of ours
    saves = ModelCheckpoint(folder, "{step}", every_n_train_steps=each * SAVED, save_top_k=-1)
    trainer = lightning.Trainer(
        max_steps=each * STEPS, accumulate_grad_batches=PASSES if automatic else 1, callbacks=[saves],
        accelerator="cpu", devices=dist.get_world_size(), strategy=DDPStrategy(process_group_backend="gloo"),
        gradient_clip_val=BOUND if automatic else None, logger=False, enable_progress_bar=False,
        enable_model_summary=False)
    lit, path = Lit(), f"{folder}/step={each * SAVED}.ckpt"
    trainer.fit(lit, torch.utils.data.DataLoader(torch.zeros(100, 1)), ckpt_path=path if resumes else None)
    if resumes:
        trainer.save_checkpoint(f"{folder}/end.ckpt")
        trainer.strategy.remove_checkpoint(path)
    return lit.model


def run_manual(folder, resumes, is_plain):
    return run_lightning(folder, resumes, is_plain, automatic=False)


WAYS = {name[4:]: way for name, way in list(globals().items()) if name.startswith("run_")}


def mean(tensor):
    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()


def seen(state):
    """Collective."""
    weights, applied, squares = [], [], []
    for optimizer, _ in pairings_of(state):
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            waits = state.residual(parameter)
            waits = torch.zeros(parameter.numel()) if waits is None else waits
            weights.append(parameter.detach().flatten().clone())
            applied.append(weights[-1] - mean(waits))
            squares.append(mean(optimizer.state[parameter]["exp_avg_sq"].flatten().clone()))
    return [torch.cat(parts) for parts in (weights, applied, squares)]


def run(way, folder, out, *words):
    """A rank's part of a job."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    results = {}

    def noting(name, function):
        def noted(folder, state):
            result = function(folder, state)
            results.setdefault(name, seen(state))
            return result

        return noted

    write, read = noting("written", rank_file.write), noting("read", rank_file.read)
    for module in frameworks, rank_file:
        module.write, module.read = write, read
    warnings.filterwarnings("always", message=".*Winnow")
    model = WAYS[way](folder, "resume" in words, "plain" in words)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, weights)
    if dist.get_rank() == 0:
        results["weights"], results["equal"] = weights, all(torch.equal(weights, one) for one in everyone)
        torch.save(results, out)
    dist.barrier()


def fork(environment, arguments):
    """The number of a process that runs a rank."""
    process = os.fork()
    if process != 0:
        return process
    status = 1
    try:
        log = os.open(f"{arguments[2]}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(environment)
        run(*arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main():
    way = sys.argv[1]
    for name in {"accelerate": ["accelerate"], "transformers": ["transformers", "accelerate"],
                 "lightning": ["lightning"], "manual": ["lightning"]}.get(way, []):
        importlib.import_module(name)
    for line in sys.stdin:
        ranks, folder, out, *words = line.split()
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
        environment = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": port}
        processes = [fork({**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                          (way, folder, out, *words)) for rank in range(int(ranks))]
        print(max(os.waitpid(process, 0)[1] for process in processes), flush=True)


if __name__ == "__main__":
    main()
