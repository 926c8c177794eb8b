# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Groups of the backend that are made, split, followed by others, fail, and end."""
import datetime
import gc
import logging
import math
import os
import weakref

import torch
import torch.distributed as dist

import winnow
import winnow.torch
from backend_groups import compressed, counts, group_of, options, train
from torch_harness import expect, network, refused, step
from winnow.torch.backend.waiting import Waiting


def case_backend_errors():
    """Come on all ranks, in the Work and not in the call."""
    last = dist.get_rank() == dist.get_world_size() - 1
    text = refused(lambda: dist.new_group(backend="winnow", pg_options=options("topk:0.05" if last else "int8")))
    expect("other options than on rank 0" in text, text)
    expect("must be a winnow.torch.GroupOptions" in refused(
        lambda: dist.new_group(backend="winnow", pg_options=object())), "other options")
    for call in winnow.torch.skip_step, lambda group: winnow.torch.attach_scaler(group, torch.amp.GradScaler("cpu")):
        text = refused(lambda call=call: call(dist.new_group(backend="gloo")))
        expect("a group of the backend gloo" in text, text)
    for wrong, why in (options(rule="always"), "must be backward or group"), (options("topk:2"), "topk:2"):
        for given in wrong, wrong if last else options():
            text = refused(lambda given=given: dist.new_group(backend="winnow", pg_options=given))
            expect(why in text, text)
    numbers = torch.ones(1).expand(50)
    with group_of() as group:
        expect("expanded" in refused(lambda: dist.all_reduce(numbers, group=group)), "memory that is shared")
    with group_of() as group:
        work = dist.all_reduce(torch.ones(4000 if last else 5000), group=group, async_op=True)
        text = refused(work.wait)
        expect("ranks make different sums" in text and "4000 elements of float32 (sum)" in text
               and "5000 elements of float32 (sum)" in text, text)
        expect(work.is_completed() and not work.is_success() and isinstance(work.exception(), winnow.UsageError),
               "a Work that has failed")
        try:
            work.get_future().wait()
            failed = ""
        except RuntimeError as error:
            failed = str(error)
        expect("ranks make different sums" in failed, failed)
    with group_of() as group:
        if last:
            tensor = torch.ones(5000)
            work = dist.all_reduce(tensor, group=group, async_op=True)
            late = ""
            try:
                work.wait(datetime.timedelta(milliseconds=50))
            except winnow.CommError as error:
                late = str(error)
        dist.barrier()
        if not last:
            tensor, late = torch.ones(5000), "deadline"
            work = dist.all_reduce(tensor, group=group, async_op=True)
        expect("deadline" in late, late)
        work.wait()
        expect((tensor == dist.get_world_size()).all() and work.result()[0] is tensor, "a sum that came late")


def case_default_group():
    """Run alone, in a job whose backend is winnow: its own group is compressed, and groups that merely have the
    backend of the job are exact unless WINNOW_TORCH_GROUPS or their options name them."""
    def sums(group):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        for _ in range(4):
            class Doubled(torch.autograd.Function):
                @staticmethod
                def forward(_, x):
                    return x.clone()

                @staticmethod
                def backward(_, gradient):
                    total = gradient.repeat(20000)
                    dist.all_reduce(total, group=group)
                    return total[:1]

            Doubled.apply(torch.ones(1, requires_grad=True)).sum().backward()
            optimizer.step()
        return compressed(dist.group.WORLD if group is None else group)

    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append("has the backend of the job" in record.getMessage())
    logging.getLogger("winnow").addHandler(handler)
    expect(sums(None) == 1, f"the job's group: {counts(dist.group.WORLD)}")
    expect(sums(dist.new_group()) == 0, "a group of tensor parallelism")
    expect(sum(told) == (dist.get_rank() == 0), "its first rank says so")
    expect(sums(dist.new_group(pg_options=options())) == 1, "a group with options")
    os.environ["WINNOW_TORCH_GROUPS"] = "data*,other"
    expect(sums(dist.new_group(group_desc="tensor")) == 0, "a group that no pattern names")
    expect(sums(dist.new_group(group_desc="data parallel")) == 1, "a group that a pattern names")
    told.clear()
    expect(sums(dist.new_group(group_desc="another")) == 0 and not any(told), "nobody is told where a group is named")
    logging.getLogger("winnow").removeHandler(handler)


def case_backend_without_torch():
    """A group that torch does not know of, over a store of the program, and another one over the same store."""
    store = dist.PrefixStore("of the program", dist.distributed_c10d._get_default_store())
    for more in {}, {"seed": 3}:
        group = winnow.torch.process_group(store, dist.get_rank(), dist.get_world_size(),
                                           options(rule="group", **more))
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        for _ in range(4):
            ones = torch.ones(5000)
            group.allreduce([ones], dist.AllreduceOptions()).wait()
            optimizer.step()
        group.barrier().wait()
        expect(compressed(group) == 1, f"{counts(group)}")
        group.shutdown()


def case_backend_ends():
    """A group that is destroyed takes its threads and connections along."""
    with group_of() as group:
        train(network(), 4, group=group)
        thread, gone = group._sums._thread, weakref.ref(group._sums)
    del group
    gc.collect()
    expect(not thread.is_alive() and gone() is None, "a destroyed group is gone")


def case_backend_failed_pass():
    """A failed sum ends a backward pass by an error that says why."""
    with group_of(timeout=datetime.timedelta(seconds=20)) as group:
        ddp, optimizer = train(network(), 5, group=group)
        dist.barrier()  # the sums so far are done on all ranks
        if dist.get_rank() == 0:
            group.abort()
        text = ""
        try:
            step(ddp, optimizer, 6)
        except winnow.CommError as error:
            text = str(error)
        expect("abort" in text, f"an aborted sum: {text}")


def case_backend_says():
    """Once a group, on its first rank: what was compressed, and what not."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    log = logging.getLogger("winnow")
    log.addHandler(handler)
    try:
        with group_of() as group:
            train(network(), 6, group=group)
            dist.all_reduce(torch.ones(5000), group=group)
    finally:
        log.removeHandler(handler)
    expect(len(lines) == (dist.get_rank() == 0), f"one line: {lines}")
    expect(not lines or ("compressed 4 sums by topk:0.05" in lines[0]
                         and "1 outside of backward passes" in lines[0]), f"{lines}")


def case_backend_failed_ends():
    """So does one whose sums have failed, though somebody keeps an error, and another one a Work."""
    last, errors = dist.get_rank() == dist.get_world_size() - 1, []
    with group_of() as group:
        train(network(), 4, group=group)
        work = dist.all_reduce(torch.ones(4000 if last else 5000), group=group, async_op=True)
        expect("different sums" in refused(work.wait) and "different sums" in refused(work.wait), "a sum that fails")
        errors.append(work.exception())
        thread, gone = group._sums._thread, weakref.ref(group._sums)
    del group
    gc.collect()
    thread.join(30)
    expect(not thread.is_alive() and gone() is None, "a group that has failed is gone")


def case_backend_split():
    """split_group makes a group that compresses as the one that it splits, or by options of its own."""
    if not hasattr(dist.ProcessGroup, "split_group"):
        return
    half = [[rank] for rank in range(dist.get_world_size() - 2)] + [list(range(dist.get_world_size()))[-2:]]
    with group_of(rule="group") as group:
        for more in {}, {"pg_options": options("topk:0.1", rule="group")}:
            part = dist.split_group(group, half, **more)
            mine = next(ranks for ranks in half if dist.get_rank() in ranks)
            expect(dist.get_backend(part) == "winnow" and dist.get_process_group_ranks(part) == mine, "its ranks")
            optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
            for _ in range(4):
                gradient = torch.ones(5000)
                dist.all_reduce(gradient, group=part)
                optimizer.step()
            expect(compressed(part) == (len(mine) > 1), f"{counts(part)}")
            expect(part.options.compressor == ("topk:0.1" if more else "topk:0.05"), "options")
            exact = torch.full((3,), float(dist.get_rank()))
            dist.all_reduce(exact, group=part)
            expect(exact[0] == sum(mine), "what is small")
            dist.destroy_process_group(part)


def group_after(name, ranks, after):
    store = dist.PrefixStore(f"after {name}", dist.distributed_c10d._get_default_store())
    return winnow.torch.process_group(store, ranks.index(dist.get_rank()), len(ranks), options(rule="group"),
                                      timeout=datetime.timedelta(seconds=60), after=after)


def case_backend_after():
    """What waits outlives its group: all that ranks put into applied sums comes out of them, or waits in the
    end, whatever groups there are, and whatever steps are left out."""
    rank, size = dist.get_rank(), dist.get_world_size()
    everyone, fewer = list(range(size)), list(range(size - 1))
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for dtype in torch.float32, torch.bfloat16:
        given, taken = torch.zeros(5000, dtype=torch.float64), torch.zeros(5000, dtype=torch.float64)
        plan = [(everyone, 6, None), (fewer, 5, "refused"), (everyone, 0, "aborted"), (everyone, 6, "aborted"),
                (everyone, 3, None), (everyone, 6, "refused")]
        group = None
        for number_of, (ranks, steps, how) in enumerate(plan):
            if rank not in ranks:
                continue
            group = group_after(f"{number_of} {dtype}", ranks, group)
            for number in range(steps + (how is not None)):
                values = torch.randint(-8, 9, (5000,), generator=generator).to(dtype)
                gradient = values.clone()
                group.allreduce([gradient], dist.AllreduceOptions()).wait()
                if number == steps - 2 and how == "refused":
                    winnow.torch.skip_step(group)
                elif number == steps and how == "aborted":
                    group.barrier().wait()
                    group.abort()
                else:
                    optimizer.step()
                    given += values.double()
                    if ranks.index(rank) == 0:
                        taken += gradient.double()
        known = [one for ones in group.end()._held.values() for one in ones]
        expect(any(one.any() for one in known), "something waits")
        taken += sum(one.double() for one in known)
        for total in given, taken:
            dist.all_reduce(total)
        expect(torch.equal(given, taken), f"{dtype}: {(given - taken).abs().sum()} of {given.abs().sum()} are lost")
    waiting, small = Waiting(), torch.tensor([0.001])
    waiting.put(1, [small])
    ones = torch.ones(1, dtype=torch.bfloat16)
    waiting.add_to(1, [ones])
    expect(waiting._held[1][0] == small and ones == 1, "what 16 bits miss waits on")
    waiting.add_to(1, [torch.zeros(2)])
    expect(waiting._held[1][0] == small, "it is not added to other tensors")
    waiting.add_to(1, [torch.full((1,), math.inf, dtype=torch.float16)])
    waiting.take_back()
    expect(waiting._held[1][0] == small, "a gradient that is not finite does not spoil it")
    expect("process_group has made" in refused(lambda: group_after("wrong", everyone, dist.group.WORLD)),
           "another group")


def case_backend_after_scatter():
    """What waits of a reduce-scatter, which is of the whole input, outlives its group, too."""
    rank, size = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    given, taken = torch.zeros(4000 * size, dtype=torch.float64), torch.zeros(4000 * size, dtype=torch.float64)
    group = None
    for name in "first", "second":
        group = group_after(f"scatter {name}", list(range(size)), group)
        for _ in range(6):
            values, shard = torch.randint(-8, 9, (4000 * size,), generator=generator).float(), torch.zeros(4000)
            group.reduce_scatter_single(shard, values.clone(), dist.ReduceScatterOptions()).wait()
            optimizer.step()
            given += values.double()
            taken[4000 * rank:4000 * (rank + 1)] += shard.double()
    expect(compressed(group) == 6, "known from the first sum on")
    (residual,), = group.end()._held.values()
    expect(residual.any(), "something waits")
    taken += residual.double()
    for total in given, taken:
        dist.all_reduce(total)
    expect(torch.equal(given, taken), f"{(given - taken).abs().sum()} of {given.abs().sum()} are lost")
