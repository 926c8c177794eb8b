# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=2 trainer_cases.py CASE...    # 4 processes for torchtitan

The examples of examples/pytorch over the backend winnow, with trainers as the package index has them.
Each rank exits with 0 if and only if the group has compressed, replicas are equal, and the loss has fallen.
"""
import os
import pathlib
import sys
import types
import warnings

import torch
import torch.distributed as dist

import winnow.torch

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2] / "examples/pytorch"), str(HERE.parents[1] / "python")]

from torch_harness import expect, expect_equal_replicas, say
from transformer import TEXT, Transformer, loss_of, sample

STEPS = 30
os.environ.setdefault("WINNOW_SCHEDULE", "gather")  # auto measures times


def held_out_loss(model):
    text = torch.tensor(list(TEXT.read_bytes()))
    with torch.no_grad():
        return loss_of(model, sample(text, torch.Generator().manual_seed(2), 128)).item()


def totals_of(groups):
    """Calls and bytes of sums that these have compressed."""
    made = [group.state.reducer.totals() for group in groups if group._why[""] > 0]
    return {key: sum(one[key] for one in made) for key in ("calls", "wire_bytes", "dense_wire_bytes")}


def expect_trained(model, groups, before=None):
    """These groups have compressed since the totals were `before`, and the model has learnt by it."""
    totals = totals_of(groups)
    if before is not None:
        totals = {key: count - before[key] for key, count in totals.items()}
    say(f"{totals['calls']} compressed sums took {totals['wire_bytes']} bytes, dense "
        f"{totals['dense_wire_bytes']}")
    expect(totals["calls"] >= STEPS - 4, f"{totals['calls']} compressed sums in {STEPS} steps")
    expect(0 < 10 * totals["wire_bytes"] < totals["dense_wire_bytes"], "bytes are saved")
    expect_equal_replicas(model)
    torch.manual_seed(0)
    before, after = held_out_loss(Transformer(width=64, layers=1)), held_out_loss(model)
    say(f"held-out loss {before:.3f} -> {after:.3f}")
    expect(after < before - 1, f"the loss falls: {before} -> {after}")


def case_accelerate():
    """AdamW over the group takes the steps of attach, bit for bit, in each way to train."""
    from accelerate.state import AcceleratorState
    from with_accelerate import train
    os.environ["WINNOW_COMPRESSOR"] = "topk:0.03,int4"
    before = None
    for options in ({}, {"gradient_accumulation_steps": 4, "mixed_precision": "bf16"},
                    {"dynamo_backend": "inductor"}):
        weights = []
        for over_backend in True, False:
            torch.manual_seed(1)
            model = train(STEPS, over_backend, **options)
            weights.append([weight.detach().clone() for weight in model.parameters()])
            if over_backend:
                expect_trained(model, [dist.group.WORLD], before)
                before = totals_of([dist.group.WORLD])
            else:
                expect(all(map(torch.equal, *weights)), f"the steps of attach: {options}")
                say(f"as attach: {options}")
            AcceleratorState._reset_state()


def case_lightning():
    from with_lightning import train
    expect_trained(train(STEPS, over_backend=True), [dist.group.WORLD])


def case_transformers():
    from with_transformers import train
    expect_trained(train(STEPS, over_backend=True), [dist.group.WORLD])


def case_deepspeed():
    deepspeed = import_deepspeed()
    from with_deepspeed import train
    before = None
    for stage in 1, 2, 3:
        engine = train(stage, STEPS)
        groups = groups_of_winnow()
        with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
            expect_trained(engine.module, groups, before)
        before = totals_of(groups)
        say(f"stage {stage}")
    expect_padding_unseen(deepspeed)


def case_deepspeed_adamw():
    """Stage 0, whose engine clips to a norm of 1."""
    import_deepspeed()
    from with_deepspeed import train
    os.environ["WINNOW_COMPRESSOR"] = "topk:0.03,int4"
    expect_trained(train(0, STEPS).module, groups_of_winnow())


def import_deepspeed():
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    import deepspeed.ops
    # An operation for inference, which takes minutes to compile.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def groups_of_winnow():
    return [group for group in dist.distributed_c10d._world.pg_map if group.getBackendName() == "winnow"]


def expect_padding_unseen(deepspeed):
    """ZeRO 3 pads what is of an odd size by torch.empty, which this mode fills with NaN."""
    torch.use_deterministic_algorithms(True)
    engine, *_ = deepspeed.initialize(
        model=torch.nn.Sequential(torch.nn.Linear(301, 301), torch.nn.Linear(301, 301)),
        model_parameters=None, config={"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 3},
                                       "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
                                       "zero_allow_untested_optimizer": True})
    before = dist.group.WORLD._why[""]
    losses = []
    for _ in range(8):
        loss = engine(torch.ones(8, 301)).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    expect(dist.group.WORLD._why[""] > before + 3, "sums with padding are compressed")
    expect(losses[-1] < losses[0], f"padding is in no sum: {losses}")
    torch.use_deterministic_algorithms(False)


def case_megatron():
    from with_megatron import train
    os.environ["WINNOW_COMPRESSOR"] = "topk:0.03,int4"
    dist.init_process_group("gloo")
    for instances, overlap in (1, False), (1, True), (2, False):
        torch.manual_seed(1)
        model, group = train(STEPS, instances, overlap)
        expect_trained(model, [group])
        say(f"{instances} instances, overlap {overlap}")


def case_torchtitan():
    from with_torchtitan import configure
    for replicas, shards, micro_batches, backend in (2, 2, 1, "spmd_types"), (4, 1, 2, "partial_dtensor"):
        trainer, begin = titan_of(configure(STEPS, replicas, shards, micro_batches), backend)
        trainer.train()
        expect(between_replicas(trainer)._why == {}, "attach_hsdp makes all sums")
        totals = winnow.torch.state_of(trainer.model_parts[0]).reducer.totals()
        expect_titan_trained(trainer, begin, totals, exact_steps=0)
        say(f"{replicas} replicas of {shards} shards, micro-batches: {micro_batches}")

    trainer, begin = titan_of(configure(STEPS, 2, 2, with_winnow=False), "partial_dtensor")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.train()
    group, is_first = between_replicas(trainer), dist.get_rank() == 0
    expect_titan_trained(trainer, begin, totals_of([group]), exact_steps=2)
    expect(any("wrong second moments" in str(one.message) for one in caught) == is_first, "a warning")
    say(f"its own trainer and torch's AdamW; sums by the reason that they are exact: {dict(group._why)}")


def titan_of(config, spmd_backend):
    """A trainer, and its loss. A process makes one with the default of spmd_backend."""
    config.parallelism.spmd_backend = spmd_backend
    trainer = config.build()
    return trainer, titans_loss(trainer)


def between_replicas(trainer):
    return trainer.parallel_dims.get_mesh("dp_replicate").get_group()


def titans_loss(trainer):
    """The loss of text behind what it trains on."""
    text = torch.tensor(list(TEXT.read_bytes()))
    model, = trainer.model_parts
    inputs, targets = sample(text[len(text) * 95 // 100:], torch.Generator().manual_seed(2), 64)
    with torch.no_grad(), trainer.train_context():
        outputs = model(inputs)
        if model._skip_lm_head:  # for chunks of the loss
            outputs = model.lm_head(outputs)
        return torch.nn.functional.cross_entropy(outputs.flatten(0, 1).float(), targets.flatten()).item()


def expect_titan_trained(trainer, begin, totals, exact_steps):
    model, = trainer.model_parts
    calls, sent, dense = (totals[key] for key in ("calls", "wire_bytes", "dense_wire_bytes"))
    say(f"{calls} compressed sums took {sent} bytes, dense {dense}")
    expect(calls >= 4 * (STEPS - exact_steps), f"{calls} compressed sums in {STEPS} steps")
    expect(0 < 10 * sent < dense, "bytes are saved")
    whole = [p.full_tensor() for p in model.parameters()]
    expect_equal_replicas(types.SimpleNamespace(parameters=lambda: whole))
    end = titans_loss(trainer)
    say(f"held-out loss {begin:.3f} -> {end:.3f}")
    expect(end < begin - 1, f"the loss falls: {begin} -> {end}")


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    for name in sys.argv[1:]:
        globals()[f"case_{name}"]()
        say("ok", name)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
