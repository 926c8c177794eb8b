# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""bench/gpu/gpu_check on programs that are shell scripts: they fail, crash, hang or end in the middle of a
row, and whatever they do is named and the next one runs. None waits for anything but what it hangs for."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

GPU_CHECK = pathlib.Path(__file__).resolve().parents[2] / "bench/gpu/gpu_check"
OK = 'echo "$0 $*"'
HANG = "exec sleep 1000"
FILES = ["calls.txt", "kernels.json", "kernels.md", "nccl.txt", "summary.md", "tests.txt", "tools.txt",
         "training.txt"]

# Writes rows as bench_kernels_cuda does, from --from on: row 1 fails, row 2 ends the program.
BENCH = r"""
while [ $# -gt 0 ]; do
  case $1 in --from) from=$2 ;; --out) out=$2 ;; --markdown) table=$2 ;; --only) exit 0 ;; esac
  shift
done
row() {
  [ "$1" -ge "$from" ] || return 0
  printf '{"row": %d, "name": "kernel %d"' $1 $1 >>"$out"
  printf '| kernel %d' $1 >>"$table"
  [ $1 != 2 ] || kill -SEGV $$
  printf "$2}\n" >>"$out"
  printf "$3 |\n" >>"$table"
}
row 0 ', "bytes": 8' ' | 8.00'
row 1 ', "failed": "a reason"' ' | FAILED: a reason'
row 2
row 3 ', "bytes": 8' ' | 8.00'
exit 1
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out, self.build, self.tools = (self.folder / name for name in ("out", "build", "tools"))
        for name in "compute-sanitizer", "ncu", "nvcc", "nvidia-smi":
            self.script(self.tools / name, OK)
        self.script(self.tools / "python3", 'case $2 in *device_count*) echo 2 ;; *nvidia*) ;; '
                                            '*) echo "$*" ;; esac')
        (self.folder / "lib64").mkdir()
        (self.folder / "lib64/libcudart.so").touch()  # beside nvcc
        self.tests = {}
        for name in ("memory_ops", "feedback_select", "device_allreducer", "nccl", "sum"):
            self.stub(f"tests/cuda_{name}_test", OK)
        self.stub("tests/cuda_nccl_test", 'echo "case $GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS"')
        for name in "bench/bench_kernels_cuda", "bench/allreduce_perf", "examples/train":
            self.script(self.build / name, OK)

    def script(self, file, text):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n" + text + "\n")
        file.chmod(0o755)

    def stub(self, path, text, **more):
        self.script(self.build / path, text)
        arguments = ["--gtest_filter=*"] if "sum" in path else []
        self.tests[path] = {"path": path, "args": arguments} | more

    def start(self, *arguments):
        (self.build / "programs.json").write_text(json.dumps({"tests": list(self.tests.values())}))
        return subprocess.Popen(
            [sys.executable, GPU_CHECK, "--build", self.build, "--out", self.out, "--jobs", "4",
             *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=os.environ | {"PATH": f"{self.tools}:{os.environ['PATH']}"})

    def run_check(self, *arguments):
        process = self.start(*arguments)
        said = process.communicate()[0]
        return process.returncode, said

    def rows(self):
        """Outcomes by phase and name, in the order of the summary."""
        lines = (self.out / "summary.md").read_text().split("\n")
        cells = [line.split(" | ") for line in lines if line.startswith("| ")][1:]
        return {f"{row[0][2:]}: {row[1]}": row[2] for row in cells}

    def text(self, file):
        return (self.out / file).read_text()

    def test_all_is_run_in_order(self):
        status, said = self.run_check()
        self.assertEqual(status, 0, said)
        rows = self.rows()
        self.assertEqual(set(rows.values()), {"ok"}, rows)
        phases = [name.split(":")[0] for name in rows]
        self.assertEqual(list(dict.fromkeys(phases)), ["smoke", "kernels", "calls", "tests", "nccl", "training",
                                                       "ncu", "sanitizers"])
        self.assertEqual([phases.count(phase) for phase in dict.fromkeys(phases)], [3, 2, 2, 6, 5, 2, 6, 9])
        self.assertEqual(sorted(os.listdir(self.out)), [file for file in FILES if "kernels" not in file])
        self.assertIn("--transport nccl", self.text("nccl.txt"))
        self.assertEqual(sorted(re.findall("case ([0-9] of [0-9])", self.text("nccl.txt"))),
                         ["0 of 4", "1 of 4", "2 of 4", "3 of 4"])
        self.assertIn("cuda_sum_test --gtest_filter=*\n", self.text("tests.txt"))

    def test_what_fails_is_named_and_the_rest_runs(self):
        self.stub("tests/cuda_feedback_select_test", "echo '[  FAILED  ] A.Case'; exit 1")
        self.stub("tests/cuda_device_allreducer_test", "kill -SEGV $$")
        self.stub("tests/cuda_sum_test", HANG, seconds=1)
        self.stub("tests/cuda_nccl_test", "exit 77")
        self.script(self.build / "bench/bench_kernels_cuda", BENCH)
        self.script(self.build / "bench/allreduce_perf", "exit 3")
        self.script(self.tools / "compute-sanitizer", "exit 1")
        status, said = self.run_check()
        self.assertEqual(status, 1, said)
        rows = self.rows()
        for name, outcome in {
                "smoke: cuda_memory_ops_test": "ok",
                "smoke: cuda_feedback_select_test": "FAILED with 1",
                "smoke: cuda_device_allreducer_test": "FAILED by SIGSEGV",
                "kernels: bench_kernels_cuda": "FAILED by SIGSEGV",
                "kernels: bench_kernels_cuda --from 3": "FAILED with 1",
                "kernels: rows": "FAILED: kernel 1; kernel 2",
                "kernels: torch_topk": "ok",
                "calls: calls in a graph": "FAILED with 3",
                "tests: cuda_sum_test": "NOT FINISHED in 1 s",
                "tests: winnow.torch, 2 ranks on 2 GPUs": "ok",
                "nccl: cuda_nccl_test, 3 of 4": "skipped",
                "nccl: calls over NCCL": "FAILED with 3",
                "training: cpu": "ok",
                "ncu: select_sums": "ok",
                "sanitizers: racecheck cuda_memory_ops_test": "FAILED with 1"}.items():
            self.assertEqual(rows.get(name), outcome, name)
        summary = self.text("summary.md")
        self.assertIn("| [  FAILED  ] A.Case |", summary)
        self.assertIn("- NOT FINISHED: tests: cuda_sum_test\n", summary)
        self.assertEqual(sorted(os.listdir(self.out)), FILES)
        lines = [json.loads(line) for line in self.text("kernels.json").split("\n") if line]
        self.assertEqual([line["row"] for line in lines], [0, 1, 2, 3])
        self.assertEqual(["failed" in line for line in lines], [False, True, True, False])
        self.assertIn(f"| kernel 2 | FAILED: the program ended with {-signal.SIGSEGV} |", self.text("kernels.md"))
        self.assertTrue(self.text("kernels.md").endswith("| kernel 3 | 8.00 |\n"))

    def test_the_deadline_ends_all(self):
        for file in list(self.build.rglob("*_test")) + list(self.build.rglob("*/[bat]*")):
            if file.is_file():
                self.script(file, HANG)
        for name in "compute-sanitizer", "ncu":
            self.script(self.tools / name, HANG)
        status, said = self.run_check("--deadline", "2")
        self.assertEqual(status, 2, said)
        rows = self.rows()
        hangs = [outcome for name, outcome in rows.items() if "torch" not in name and "gpu_reducer" not in name]
        self.assertTrue(all(outcome.startswith(("NOT FINISHED", "not run")) for outcome in hangs), rows)
        self.assertIn("sanitizers: synccheck cuda_memory_ops_test", rows)

    def test_only_the_first_program_finds_no_gpu(self):
        self.stub("tests/cuda_memory_ops_test", "exit 77")
        status, said = self.run_check()
        self.assertEqual(status, 77, said)
        self.assertIn("NO GPU HERE", said)
        self.assertIn("NO GPU HERE", self.text("summary.md"))
        self.assertEqual(list(self.rows()), ["smoke: cuda_memory_ops_test"])

    def test_a_phase_that_is_skipped_has_a_gpu(self):
        self.stub("tests/cuda_nccl_test", "exit 77")
        status, said = self.run_check("--only", "nccl")
        self.assertEqual(status, 0, said)
        self.assertEqual(self.rows()["nccl: cuda_nccl_test, 1 of 4"], "skipped")
        self.assertNotIn("NO GPU", self.text("summary.md"))

    def test_rows_after_one_that_hangs_are_named(self):
        self.script(self.build / "bench/bench_kernels_cuda", BENCH.replace("kill -SEGV $$", HANG))
        status, said = self.run_check("--only", "kernels", "--deadline", "6")
        self.assertEqual(status, 1, said)
        lines = [json.loads(line) for line in self.text("kernels.json").split("\n") if line]
        self.assertEqual([line.get("failed") for line in lines], [None, "a reason", "not finished"])
        rows = self.rows()
        self.assertEqual(rows["kernels: bench_kernels_cuda --from 3"], "not run: no time left")

    def test_a_profiler_that_finds_no_kernel_failed(self):
        self.script(self.tools / "ncu", "echo '==WARNING== No kernels were profiled.'")
        status, said = self.run_check("--only", "ncu")
        self.assertEqual(status, 1, said)
        self.assertEqual(self.rows()["ncu: ordered_sum"], "FAILED: No kernels were profiled")

    def test_only_some_phases(self):
        status, said = self.run_check("--only", "training,calls")
        self.assertEqual(status, 0, said)
        self.assertEqual({name.split(":")[0] for name in self.rows()}, {"smoke", "calls", "training"})
        for wrong in (["--only", "kernel"], ["--unknown"], ["words"], ["--deadline", "0"]):
            status, said = self.run_check(*wrong)
            self.assertEqual(status, 2, said)
            self.assertIn("usage: gpu_check", said)

    def test_help_does_nothing_else(self):
        for option in "-h", "--help":
            status, said = self.run_check(option)
            self.assertEqual(status, 0, said)
            self.assertTrue(said.startswith("usage: gpu_check"), said)
            self.assertFalse(self.out.exists())

    def test_a_kill_loses_what_is_running(self):
        self.script(self.build / "bench/allreduce_perf", HANG)
        process = self.start("--only", "smoke,calls,training")
        self.addCleanup(process.kill)
        for line in process.stdout:
            if "smoke: cuda_device_allreducer_test: ok" in line:
                break
        process.terminate()
        said = process.communicate()[0]
        self.assertIn(process.returncode, (1, 2), said)
        rows = self.rows()
        self.assertEqual(rows["smoke: cuda_device_allreducer_test"], "ok")
        self.assertEqual(rows["training: cuda"], "not run: no time left")

    def test_what_is_missing_is_named(self):
        self.script(self.tools / "python3", "exit 1")
        for name in "compute-sanitizer", "ncu":
            (self.tools / name).unlink()
        environment = {"PATH": f"{self.tools}:/usr/bin:/bin"}
        (self.build / "programs.json").write_text(json.dumps({"tests": []}))
        said = subprocess.run([sys.executable, GPU_CHECK, "--build", self.build, "--out", self.out], text=True,
                              stdout=subprocess.PIPE, env=environment, check=False).stdout
        for what in "ncu", "torch", "libnccl.so.2":
            self.assertIn(f"missing here: {what}", said)

    def test_packed_programs(self):
        with tarfile.open(self.folder / "programs.tar.xz", "w:xz") as archive:
            archive.add(self.build, ".")
        shutil.rmtree(self.build)
        self.build.mkdir()
        (self.folder / "programs.tar.xz").rename(self.build / "programs.tar.xz")
        status, said = self.run_check("--only", "smoke,training")
        self.assertEqual(status, 0, said)
        self.assertEqual(len(self.rows()), 5)

    def test_programs_of_another_machine_are_refused(self):
        (self.build / "programs.json").write_text(json.dumps({"machine": "pdp11", "libc": [2, 3], "tests": []}))
        said = subprocess.run([sys.executable, GPU_CHECK, "--build", self.build, "--out", self.out], text=True,
                              stderr=subprocess.PIPE, check=False)
        self.assertEqual(said.returncode, 1)
        self.assertIn("was made for pdp11", said.stderr)


if __name__ == "__main__":
    unittest.main()
