# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torch_suite.py [--ranks N] [--enable | --backend] [TEST...]

torch's own tests of DistributedDataParallel, in host memory over gloo: each alone, and, if it passes,
with Winnow attached to every model, lossless. Without TEST: all that name DistributedDataParallel.
--enable: with winnow.torch.enable() instead, so that models and optimizers are attached together.
--backend: over the backend winnow instead, lossless; without TEST all tests of collectives, too.
Exits with 0 if and only if all that pass alone end with Winnow as they should, of which REFUSED and
OTHERWISE have exceptions. Skipped are those that need a GPU or fail alone.
"""
import argparse
import contextlib
import functools
import inspect
import io
import json
import multiprocessing
import os
import re
import sys
import tempfile
import unittest
import weakref
from pathlib import Path

os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "60")
parser = argparse.ArgumentParser(usage=__doc__.removeprefix("usage: "))
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--enable", action="store_true")
parser.add_argument("--backend", action="store_true")
parser.add_argument("tests", nargs="*")
arguments = parser.parse_args()
os.environ.update(BACKEND="gloo", WORLD_SIZE=str(arguments.ranks), TEMP_DIR=tempfile.gettempdir())

import torch  # pylint: disable=wrong-import-position
import torch.distributed as dist  # pylint: disable=wrong-import-position
from torch.nn.parallel import DistributedDataParallel  # pylint: disable=wrong-import-position

import winnow.torch  # pylint: disable=wrong-import-position
from winnow.torch.backend.sums import Sums  # pylint: disable=wrong-import-position
from winnow.torch.hook import BucketReducer  # pylint: disable=wrong-import-position
from cpu_for_gpu import OnHost, stand_in  # pylint: disable=wrong-import-position

stand_in()
from torch.testing._internal.distributed import distributed_test  # pylint: disable=wrong-import-position

# Tests in which Winnow refuses a model, since it has a hook already: what the UsageError says.
REFUSED = {name: "communication hook" for name in (
    "test_accumulate_gradients_no_sync_allreduce_hook",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_ddp_hook_parity_allreduce",
    "test_ddp_hook_parity_post_localSGD",
    "test_ddp_hook_parity_powerSGD",
    "test_ddp_hook_pickling_powerSGD",
    "test_ddp_uneven_inputs",
)}

# Tests that must fail with Winnow: what the failure says.
OTHERWISE = {
    # Finds no reduction of gloo in the profile: it is named winnow::all_reduce.
    "test_ddp_profiling_torch_profiler": "Scalars are not equal",
    # Expects that torch's log names no hook.
    "test_ddp_comm_hook_logging": "winnow_hook",
}

# Likewise over the backend.
OTHERWISE_OVER_BACKEND = {
    "test_ddp_profiling_torch_profiler": "Scalars are not equal",
    "test_get_backend": "winnow",
}

LEFT_OUT = {
    # Its compiler waits for processes that a forked rank does not have.
    "test_ddp_compile_static_graph",
}


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """Ranks are forked, since each that is spawned would import torch again."""

    records = None  # the folder in which ranks leave what Winnow did; None: torch alone

    def setUp(self):
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank, *arguments, **keywords):  # pylint: disable=arguments-differ
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # errors come through a pipe
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        watcher = Watcher() if cls.records is not None else None
        try:
            with OnHost():
                super()._run(rank, *arguments, **keywords)
        finally:
            if watcher is not None:
                record = {"calls": watcher.calls, "refused": watcher.refused}
                Path(cls.records, str(rank)).write_text(json.dumps(record), encoding="utf-8")


class Watcher:
    """From here on attaches Winnow to every model, when it is first used in training or gets another
    hook, and counts."""

    def __init__(self):
        self.calls, self.refused = 0, []
        self._seen = weakref.WeakSet()
        if arguments.backend:
            self._count(Sums, "add")
            init = dist.init_process_group
            options = winnow.torch.GroupOptions("topk:1", rule="group", min_bytes=0)
            dist.init_process_group = lambda *positional, **keywords: init(
                *positional, **{**keywords, "backend": "winnow", "pg_options": options})
            return
        self._count(BucketReducer, "start")
        if arguments.enable:
            winnow.torch.enable("none", only=lambda model: not model._comm_hooks, anyway=True)
            return
        self._around("join", before=lambda _: True)  # a rank without inputs makes no forward pass
        self._around("forward", before=lambda model: model.training and torch.is_grad_enabled())
        for name in "register_comm_hook", "_register_builtin_comm_hook":
            self._around(name, before=lambda _: False)

    def _count(self, of, name):
        method = getattr(of, name)

        def counted(*arguments):
            self.calls += 1
            return method(*arguments)

        setattr(of, name, counted)

    def _around(self, name, before):
        """Attaches before a method of a model, if so, or else after it."""
        method = getattr(DistributedDataParallel, name)

        @functools.wraps(method)
        def attached(model, *positional, **keywords):
            if before(model):
                self._attach(model)
            result = method(model, *positional, **keywords)
            if name != "forward":
                self._attach(model)
            return result

        setattr(DistributedDataParallel, name, attached)

    def _attach(self, model):
        if model in self._seen:
            return
        self._seen.add(model)
        try:
            winnow.torch.attach(model, "none")
        except winnow.UsageError as error:
            self.refused.append(str(error))


def run_one(name, records):
    """"passed", "skipped", or the text of a failure."""
    Suite.records = records
    result = unittest.TestResult()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        Suite(name).run(result)
    failures = [text for _, text in result.failures + result.errors]
    return failures[0] if failures else "skipped" if result.skipped else "passed"


def run_with_winnow(name):
    """"passed" or what went wrong; and the calls of the hook, on all ranks."""
    with tempfile.TemporaryDirectory() as records:
        outcome = run_one(name, records)
        found = [json.loads(file.read_text(encoding="utf-8")) for file in Path(records).iterdir()]
    calls = sum(record["calls"] for record in found)
    otherwise = {} if arguments.enable else OTHERWISE_OVER_BACKEND if arguments.backend else OTHERWISE
    if name in otherwise:
        return ("passed" if otherwise[name] in outcome else f"not as expected: {outcome}"), calls
    if arguments.backend:
        return outcome, calls
    if outcome != "passed":
        return outcome, calls
    refused = [text for record in found for text in record["refused"]]
    expected = REFUSED.get(name)
    strange = [text for text in refused if expected is None or expected not in text]
    if strange:
        return f"Winnow refuses: {strange[0]}", calls
    if expected is not None and not refused and not arguments.enable:
        return f"Winnow refuses nothing, and {expected} was expected", calls
    return "passed", calls


def names():
    """Of the tests that are about DistributedDataParallel, or of all."""
    return [name for name in unittest.defaultTestLoader.getTestCaseNames(Suite)
            if name not in LEFT_OUT and (arguments.backend or re.search(
                "DistributedDataParallel|ddp", inspect.getsource(inspect.unwrap(getattr(Suite, name))),
                re.IGNORECASE))]


def main():
    torch.set_num_threads(1)
    passed, failed, skipped, calling = 0, 0, 0, 0
    for name in arguments.tests or names():
        alone = run_one(name, None)
        if alone != "passed":
            skipped += 1
            print("skipped", name, "" if alone == "skipped" else "(fails without Winnow)", flush=True)
            continue
        outcome, calls = run_with_winnow(name)
        calling += calls > 0
        if outcome == "passed":
            passed += 1
            print(f"ok {name} ({calls} calls)", flush=True)
        else:
            failed += 1
            print(f"FAILED {name} ({calls} calls): {outcome}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped; {calling} called the hook")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
