# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What report and metrics say of a run."""
import math
import re
import time
import types

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fsdp_cases
import hsdp_cases
import winnow.torch
from torch_harness import DEVICE, SIZE, expect, expect_refused, make, network, step
from winnow.torch import overlap

TIMES = ("reduce_ms", "hidden_ms", "wait_ms", "messages_ms", "selection_ms")
ALWAYS = 200  # steps in which a trial ends


def expect_metrics(model, keys=None):
    """Finite floats, under the same keys as before."""
    found = winnow.torch.metrics(model)
    expect(all(type(value) is float and math.isfinite(value) and value >= 0
               for value in found.values()), f"finite floats: {found}")
    expect(keys is None or set(found) == set(keys), f"keys: {set(found) ^ set(keys or ())}")
    expect(all(key.startswith("winnow/") for key in found), "a prefix")
    return {key.removeprefix("winnow/"): value for key, value in found.items()}


def expect_times(found):
    """Parts are within the whole, whose mean is that of a step."""
    if DEVICE.type == "cuda":
        expect(not any(name in found for name in TIMES), "no times that the host cannot know")
        return
    expect(0 < found["reduce_ms"] and found["hidden_ms"] <= found["reduce_ms"], "hidden")
    expect(found["hidden_ms"] + found["wait_ms"] >= found["reduce_ms"] * (1 - 1e-9), "waited")
    expect(0 < found["messages_ms"] + found["selection_ms"] <= found["reduce_ms"], "stages")
    for name in TIMES:
        expect(math.isclose(found[f"{name}_per_step"] * found["steps"], found[name]), f"{name} a step")


def rows_of(text):
    """Of the table by schedule: name -> calls, bytes, dense bytes."""
    table = text.split("\n\n")[2].splitlines()[1:]
    rows = [re.split(r"\s{2,}", row) for row in table]
    return {row[0]: tuple(int(number.replace(",", "")) for number in row[1:4]) for row in rows}


def expect_sums(model):
    """Rows by schedule add up to the last one, and to metrics."""
    text, found = winnow.torch.report(model), expect_metrics(model)
    rows = rows_of(text)
    whole = rows.pop("all")
    expect(tuple(map(sum, zip(*rows.values()))) == whole, f"the sums of rows:\n{text}")
    expect(whole == (found["calls"], found["wire_bytes"], found["dense_wire_bytes"]), "and metrics")
    return text, rows


def case_report():
    """From before the first step to detach, with a bucket that travels dense."""
    # DistributedDataParallel closes the first bucket at 1 MiB.
    two = nn.Sequential(nn.Linear(SIZE, 40), nn.Linear(40, 8000)).to(DEVICE)
    ddp, state, optimizer = make(two, options={"min_bytes": 100_000})
    keys = winnow.torch.metrics(ddp)
    expect(not any(value for key, value in keys.items() if key != "winnow/saved"), "nothing yet")
    expect("no gradient" in winnow.torch.report(ddp), "nothing yet")
    for number in range(5):
        step(ddp, optimizer, number)
    found = expect_metrics(ddp, keys)
    expect(found["steps"] == 5, f"{found['steps']} steps")
    expect_times(found)
    text, rows = expect_sums(ddp)
    if dist.get_world_size() == 1:
        expect("one rank is alone" in text and set(rows) == {"dense"}, text)
        expect(found["dense_ms"] == 0 and found["saved"] == 1, "nothing is sent")
    else:
        expect(any("gather" in name for name in rows) and "dense" in rows, text)
        expect("bytes are below min_bytes=100000" in text, f"why a bucket is dense:\n{text}")
        expect(found["dense_ms"] > 0 and found["saved"] > 2, "what dense would cost")
        expect(0 < found["dense_buckets"] < found["buckets"], "a dense bucket")
    expect(found["trying_buckets"] == 0 and "trying" not in text and "settled" in text, text)
    winnow.torch.detach(ddp)
    expect_refused(lambda: winnow.torch.report(ddp), lambda: winnow.torch.metrics(ddp),
                   lambda: winnow.torch.report(state), lambda: winnow.torch.metrics(state))


def case_report_of_a_trial():
    """While auto tries schedules, and once it has decided, each schedule has the bytes of its calls."""
    # auto expects to gain over these links, whatever this machine would measure just now.
    options = {"schedule": "auto", "trial_calls": 2, "min_bytes": 0,
               "links": "inter=50us,1Gbit/s+intra=50us,1Gbit/s+pass=10GB/s"}
    ddp, state, optimizer = make(options=options)
    alone = dist.get_world_size() == 1
    for number in range(2):
        step(ddp, optimizer, number)
    text, _ = expect_sums(ddp)
    trying = expect_metrics(ddp)["trying_buckets"]
    expect((trying == 0) == alone and ("auto still tries" in text) != alone, text)
    # DistributedDataParallel's buckets of the first step remain in their trial.
    reducer = state.reducer
    for number in range(2, ALWAYS):
        step(ddp, optimizer, number)
        if not reducer.bucket_stats()[-1]["trying"]:
            break
    text, rows = expect_sums(ddp)
    if not alone:
        expect(len(rows) > 1 and "dense" in rows, f"several schedules:\n{text}")
        expect("medians of" in text and "settled" in text, f"decided, and why:\n{text}")
    expect_times(expect_metrics(ddp))
    state.close()


def case_report_of_dense():
    """Lossless sums say so."""
    ddp, state, optimizer = make(compressor="none", options={"schedule": "auto"})
    for number in range(3):
        step(ddp, optimizer, number)
    text, rows = expect_sums(ddp)
    alone = dist.get_world_size() == 1
    expect(set(rows) == {"dense"} and ("one rank" if alone else "nothing is compressed") in text, text)
    found = expect_metrics(ddp)
    expect(found["saved"] == 1 and found["dense_ms"] == 0, "as many bytes as dense")
    expect(found["dense_buckets"] == found["buckets"] > 0, "all are dense")
    state.close()


class Gate(torch.autograd.Function):
    """A backward pass that goes on once the sums which it has led to are done."""

    opens = staticmethod(lambda: True)

    @staticmethod
    def forward(context, inputs):
        return inputs.clone()

    @staticmethod
    def backward(context, gradient):
        while not Gate.opens():
            time.sleep(0.001)
        return gradient


class Gated(nn.Module):
    """Its last layer's gradients are a bucket of their own: DistributedDataParallel closes the first
    one at 1 MiB."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, 2 * SIZE)

    def forward(self, inputs):
        return self.last(Gate.apply(self.first(inputs)))


def case_report_of_overlap():
    """What is done before the backward pass goes on, it hides."""
    torch.manual_seed(5)
    ddp, state, optimizer = make(Gated().to(DEVICE))
    sums = []

    def opens():
        sums.append(state.overlap.reduce_seconds)
        return len(sums) > 1 and sums[-1] == sums[-2]

    Gate.opens = opens
    for number in range(3):
        step(ddp, optimizer, number)
    found = expect_metrics(ddp)
    expect_times(found)
    if DEVICE.type == "cpu":
        expect(found["wait_ms"] > 0, f"the last bucket is waited for: {found}")
    state.close()


def case_overlap():
    """By a clock that stands still but for this test: what is in flight at once counts once."""
    now = [0.0]
    clock = overlap.Overlap()

    def wait(seconds):
        now[0] += seconds

    try:
        overlap.time = types.SimpleNamespace(perf_counter=lambda: now[0])
        for _ in range(2):
            for which in "first", "second":
                clock.count(which)
        clock.begin()
        wait(1)
        clock.begin()
        wait(2)
        expect(clock.reduce_seconds == 3, "what is still in flight counts")
        clock.end()
        wait(4)
        with clock.waiting():
            wait(8)
            clock.end()
        wait(16)
        with clock.blocking():
            wait(32)
        wait(64)
    finally:
        overlap.time = time
    expect((clock.steps, clock.reduce_seconds, clock.wait_seconds) == (2, 47, 40), "all in all")


def case_report_of_shards():
    """Sharded models wait for each of their sums."""
    if DEVICE.type == "cuda" or dist.get_world_size() == 1:  # where torch sums nothing
        return
    for model, state, optimizer in (fsdp_cases.sharded("topk:0.01"),
                                    hsdp_cases.sharded(hsdp_cases.meshes(), "topk:0.01")):
        for number in range(3):
            step(model, optimizer, number)
        for attached in model, state:
            found = expect_metrics(attached)
            expect(found["steps"] == 3 and found["hidden_ms"] < 1e-6, f"nothing is hidden: {found}")
            expect_times(found)
            expect_sums(attached)
        winnow.torch.detach(model)
        expect_refused(lambda: winnow.torch.report(model), lambda: winnow.torch.metrics(model))


def case_report_of_unused():
    """Ranks first tell each other which parameters they use, and wait meanwhile."""
    ddp = DistributedDataParallel(network(), find_unused_parameters=True)
    optimizer = winnow.torch.attach(ddp, torch.optim.SGD(ddp.parameters(), lr=0.05))
    for number in range(3):
        step(ddp, optimizer, number)
    found = expect_metrics(ddp)
    expect(found["steps"] == 3, f"{found['steps']} steps")
    expect_times(found)
    text, _ = expect_sums(ddp)
    expect("the maximum travels dense" in text, text)
    winnow.torch.detach(ddp)
