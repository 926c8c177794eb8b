# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""attach(ddp, optimizer): the steps of the explicit forms, bit for bit, and weights that move nowhere
but inside of forward and backward passes."""
import contextlib
import copy
import pathlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import winnow.torch
from torch_harness import DEVICE, batch, expect, expect_equal_replicas, expect_refused, network
from winnow.torch.attach import state_of
from winnow.torch.rules import RECIPES

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "pytorch"))

from transformer import TEXT, Transformer, sample  # noqa: E402
from transformer import loss_of as loss_of_windows  # noqa: E402

COMPRESSED = {"compressor": "topk:0.05,int8", "schedule": "balanced", "min_bytes": 0, "deadline": 30}
SGD = (torch.optim.SGD, winnow.torch.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3})
ADAMW = (torch.optim.AdamW, winnow.torch.AdamW, {"lr": 2e-3, "weight_decay": 0.01})
KINDS = {"SGD": SGD, "AdamW": ADAMW}


def attached(kind, model=None, wrap=lambda ddp: ddp, keywords=None, **settings):
    """By the two lines, on torch's optimizer."""
    theirs, _, own = KINDS[kind]
    ddp = wrap(DistributedDataParallel(network() if model is None else model, **(keywords or {})))
    optimizer = theirs(ddp.parameters(), **{**own, **settings})
    expect(winnow.torch.attach(ddp, optimizer, **COMPRESSED) is optimizer, "the same object")
    return ddp, optimizer


def explicit(kind, model=None, wrap=lambda ddp: ddp, keywords=None, **settings):
    _, ours, own = KINDS[kind]
    ddp = DistributedDataParallel(network() if model is None else model, **(keywords or {}))
    state = winnow.torch.attach(ddp, **COMPRESSED)
    return ddp, ours(ddp.parameters(), model=state, **{**own, **settings})


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def loss_of(ddp, number, part=0):
    return ddp(batch(10 * number + part)).square().mean()


def plain(ddp, number):
    loss_of(ddp, number).backward()


def train(ddp, optimizer, passes, steps, looks):
    """With a warm-up, as schedulers do it."""
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 10))
    for number in range(steps):
        optimizer.zero_grad()
        with winnow.torch.look_ahead(ddp, optimizer) if looks else contextlib.nullcontext():
            passes(ddp, number)
        optimizer.step()
        schedule.step()
    expect_equal_replicas(ddp)
    state_of(ddp).close()
    return weights(ddp)


def expect_equal(what, passes=plain, steps=20, kinds=tuple(KINDS), model=lambda: None, **options):
    """Both forms end with the same bits, elsewhere than without look-ahead."""
    for kind in kinds:
        ours = train(*attached(kind, model(), **options), passes, steps, looks=False)
        theirs = train(*explicit(kind, model(), **options), passes, steps, looks=True)
        expect(torch.equal(ours, theirs), f"{what}, {kind}: the same bits")


def case_attach_equal():
    expect_equal("one pass")
    expect_equal("nesterov", kinds=("SGD",), nesterov=True)
    expect_equal("without momentum", kinds=("SGD",), momentum=0.0)
    expect_equal("views of buckets", keywords={"gradient_as_bucket_view": True})
    expect_equal("a static graph", steps=6, keywords={"static_graph": True})
    blind = train(*explicit("AdamW"), plain, 20, looks=False)
    ahead = train(*explicit("AdamW"), plain, 20, looks=True)
    expect(not torch.equal(blind, ahead), "look-ahead matters")


class Parts(nn.Module):
    """Layers of which some run again in the backward pass, and one is used in some steps."""

    def __init__(self, reentrant=None):
        super().__init__()
        self.first, self.norm, self.rest = nn.Linear(400, 64), nn.BatchNorm1d(64), nn.Linear(64, 64)
        self.last, self.rare, self.reentrant = nn.Linear(64, 40), nn.Linear(40, 40), reentrant

    def forward(self, inputs, rarely=False):
        hidden = torch.tanh(self.norm(self.first(inputs)))
        if self.reentrant is None:
            hidden = torch.tanh(self.rest(hidden))
        else:
            hidden = checkpoint(lambda h: torch.tanh(self.rest(h)), hidden,
                                use_reentrant=self.reentrant)
        out = self.last(hidden)
        return {"out": [self.rare(out) if rarely else out]}


def parts(**keywords):
    torch.manual_seed(4)
    return Parts(**keywords).to(DEVICE)


def by_readme(model):
    """README's lines, as they stand."""
    lines = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    program = {"torch": torch, "model": model}
    exec(lines, program)
    return program["ddp"], program["optimizer"]


def loss_of_text(attach, steps=100):
    """Held-out, of a small transformer on a novel."""
    torch.manual_seed(1)
    text = torch.tensor(list(TEXT.read_bytes()), device=DEVICE)
    training, held_out = text[:len(text) * 9 // 10], text[len(text) * 9 // 10:]
    model = Transformer(width=64, layers=2).to(DEVICE)
    ddp, optimizer = attach(model)
    own = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of_windows(ddp, sample(training, own, 8)).backward()
        optimizer.step()
    with torch.no_grad():
        return loss_of_windows(model, sample(held_out, torch.Generator().manual_seed(2), 256)).item()


def case_attach_trains():
    """README's lines end where dense sums end; the hook under torch's AdamW does not."""
    if dist.get_world_size() > 2:  # 2 tell as much
        return
    def without(model, attach=lambda ddp: None):
        ddp = DistributedDataParallel(model)
        attach(ddp)
        return ddp, torch.optim.AdamW(ddp.parameters(), lr=1e-3)

    recipe = RECIPES[1]
    dense, ours = loss_of_text(without), loss_of_text(by_readme)
    hook = loss_of_text(lambda model: without(model, lambda ddp: winnow.torch.attach(
        ddp, recipe.compressor, schedule=recipe.schedule)))
    expect(ours < 1.02 * dense, f"README's lines: loss {ours}, of dense sums {dense}")
    expect(hook > 1.05 * dense, f"the hook alone: loss {hook}, of dense sums {dense}")


def case_attach_documented():
    """docs/convergence.md has the table by which attach chooses."""
    documented = (ROOT / "docs" / "convergence.md").read_text()
    for recipe in RECIPES:
        kinds = ", ".join(f"`torch.optim.{kind.__name__}`" for kind in recipe.kinds)
        row = f"| {kinds} | `{recipe.compressor}` | `{recipe.schedule}` |"
        expect(row in documented, f"docs/convergence.md has {row}")
        wanted = f"`{recipe.compressor}`, `{recipe.schedule}` |", f"({recipe.fewer})", f"| {recipe.loss} |"
        expect(any(all(part in line for part in wanted) for line in documented.splitlines()),
               f"docs/convergence.md has {wanted}")


def case_attach_passes():
    """All that may be between two steps, where gradients are reduced once."""
    def accumulated(ddp, number):
        with ddp.no_sync():
            loss_of(ddp, number, 1).backward()
        loss_of(ddp, number).backward()

    def kept(ddp, number):
        with ddp.no_sync():
            loss = loss_of(ddp, number, 1)
            loss.backward(retain_graph=True)
            loss.backward()
        loss_of(ddp, number).backward()

    def rarely(ddp, number):
        ddp(batch(number), rarely=number % 3 == 0)["out"][0].square().mean().backward()

    def one(ddp, number):
        ddp(batch(number))["out"][0].square().mean().backward()

    expect_equal("no_sync", accumulated)
    expect_equal("two backward passes of a graph", kept)
    expect_equal("two forward passes", lambda ddp, number: (loss_of(ddp, number)
                                                            + loss_of(ddp, number, 1)).backward())
    expect_equal("a parameter that is rarely used", rarely, model=parts,
                 keywords={"find_unused_parameters": True})
    expect_equal("checkpointing", one, model=lambda: parts(reentrant=False),
                 keywords={"find_unused_parameters": True})
    expect_equal("reentrant checkpointing", one, model=lambda: parts(reentrant=True),
                 keywords={"static_graph": True})


def case_attach_compiled():
    expect_equal("torch.compile", steps=8, wrap=lambda ddp: torch.compile(ddp, backend="eager"))
    torch._dynamo.reset()


def case_attach_weights():
    """Parameters are elsewhere inside of passes alone: not in evaluation, state_dict, copies, or after
    an exception."""
    for kind in KINDS:
        ddp, optimizer = attached(kind)
        for number in range(3):
            optimizer.zero_grad()
            plain(ddp, number)
            optimizer.step()
        truth, seen = weights(ddp), []
        layer = ddp.module[0]
        layer.register_forward_pre_hook(lambda module, _: seen.append(module.weight.detach().clone()))

        def expect_at_weights(what):
            expect(torch.equal(weights(ddp), truth), f"{kind}, {what}: the weights")

        def moved():
            last = seen.pop()
            return not torch.equal(last.flatten(), truth[:last.numel()])

        loss = loss_of(ddp, 4)
        expect(moved(), "a forward pass looks ahead")
        expect_at_weights("between the passes")
        held = {name: value.clone() for name, value in ddp.state_dict().items()}
        expect(torch.equal(held["module.0.weight"].flatten(), truth[:layer.weight.numel()]),
               "state_dict")
        with torch.no_grad():
            loss_of(ddp, 5)
        expect(not moved(), "no look-ahead without gradients")
        ddp.eval()
        loss_of(ddp, 5)
        ddp.train()
        expect(not moved(), "no look-ahead in evaluation")
        average = torch.optim.swa_utils.AveragedModel(ddp.module)
        average.update_parameters(ddp.module)
        expect(torch.equal(weights(average.module), truth), "an average of weights")

        inside = []
        ddp.module[3].weight.register_hook(lambda _: inside.append(weights(ddp)))
        loss.backward()
        expect(not torch.equal(inside[0], truth), "a backward pass looks ahead")
        expect_at_weights("after the backward pass")
        optimizer.step()
        truth = weights(ddp)

        with torch.autocast(DEVICE.type, torch.bfloat16), torch.no_grad():
            wanted = loss_of(ddp.module, 6)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            with ddp.no_sync():
                loss_of(ddp, 6).backward()
            with torch.no_grad():
                expect(torch.equal(loss_of(ddp.module, 6), wanted), "casts of the weights")
        for where in ddp.module[2].register_forward_pre_hook, ddp.module[2].register_full_backward_hook:
            def fail(*_):
                raise KeyError("of the program")

            handle = where(fail)
            try:
                with ddp.no_sync():
                    loss_of(ddp, 7).backward()
                expect(False, "an exception")
            except KeyError:
                pass
            handle.remove()
            expect_at_weights("after an exception")

        twin = copy.deepcopy(ddp.module)
        twin_ddp = copy.deepcopy(ddp)
        loss_of(twin_ddp, 8).backward()
        expect(all(p.grad is not None for p in twin_ddp.parameters()), "a copy trains")
        expect(torch.equal(weights(twin), truth), "a copy has the weights")
        state_of(ddp).close()


def case_attach_as_torch():
    """A closure, a scheduler made before, two optimizers, a state_dict with the keys of torch's; and a
    GradScaler, which SGD follows and AdamW refuses."""
    ddp = DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(ddp.module[0].parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    rest = torch.optim.SGD([*ddp.module[2].parameters(), *ddp.module[3].parameters()], lr=0.05)
    winnow.torch.attach(ddp, optimizer, **COMPRESSED)
    winnow.torch.attach(ddp, rest)
    losses = []
    for number in range(12):
        def closure():
            optimizer.zero_grad()
            rest.zero_grad()
            loss = loss_of(ddp, 0)
            loss.backward()
            return loss

        losses.append(optimizer.step(closure).item())
        rest.step()
        schedule.step()
    expect(losses[-1] < 0.9 * losses[0], f"it trains: {losses}")
    expect_equal_replicas(ddp)
    keys = set(optimizer.state_dict()["state"][0])
    expect(keys == {"step", "exp_avg", "exp_avg_sq", "winnow_updates"}, f"torch's keys: {keys}")
    state_of(ddp).close()

    ends = []
    for make in attached, explicit:
        ddp, optimizer = make("SGD")
        scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1024.0, growth_interval=3)
        winnow.torch.attach_scaler(ddp, scaler)
        for number in range(6):
            optimizer.zero_grad()
            spoils = number == 2 and dist.get_rank() == 0
            with (winnow.torch.look_ahead(ddp, optimizer) if make is explicit
                  else contextlib.nullcontext()):
                loss = loss_of(ddp, number) * (float("inf") if spoils else 1)
                scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        expect(scaler.get_scale() == 1024, f"a skipped step: {scaler.get_scale()}")
        ends.append(weights(ddp))
        state_of(ddp).close()
    expect(torch.equal(*ends), "under a GradScaler the same bits")

    two = [attached("SGD") for _ in range(2)]
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1024.0)
    for ddp, _ in two:
        winnow.torch.attach_scaler(ddp, scaler)
    for number in range(4):
        before = [weights(ddp) for ddp, _ in two]
        for ddp, optimizer in two:
            optimizer.zero_grad()
            spoils = number == 1 and ddp is two[0][0]
            scaler.scale(loss_of(ddp, number) * (float("inf") if spoils else 1)).backward()
            scaler.step(optimizer)
        scaler.update()
        skipped = [torch.equal(weights(ddp), was) for (ddp, _), was in zip(two, before)]
        expect(skipped == [number == 1, False], "each model's own skips")

    ddp, optimizer = attached("AdamW")
    scaler = torch.amp.GradScaler(DEVICE.type)
    scaler.scale(loss_of(ddp, 0)).backward()
    expect_refused(lambda: scaler.step(optimizer))
