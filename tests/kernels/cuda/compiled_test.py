#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: compiled_test.py LIBRARY... [--list]

Reads by cuobjdump what nvcc made of the kernels in a library or object, and compares those that move
most bytes with the table below. No GPU is needed. A wide access that falls apart, a load that waits
for another, or a division that came back changes no result, so no other test sees it. --list prints
the figures of all kernels instead. Exits with 77 if there is no cuobjdump, or no device code.

Looks by nm at the host's side, too: nvcc lets a host function call one that is for devices alone, and
makes a call of exit(1) of it; and each kernel must be among those that are loaded before their first
launch.
"""
import os
import re
import shutil
import subprocess
import sys

# A row: the beginning of kernels' names, and what must hold for all of them on each architecture.
#   registers  at most, of a thread
#   loads      at least, from global memory and of 16 bytes; those to shared memory count, too
#   stores     at least, to global memory and of 16 bytes
#   in_flight  at least, of these loads, that follow each other before an instruction needs one or
#              control can leave the line
#   copies     at least, of words from global to shared memory that no thread waits for
#   divisions  at most: integers by a number that the compiler does not know
# No kernel of the library, in the table or not, may have a stack or spill registers, or a fence that is
# ordered with all others.
ONE, MANY = "OneTask<SelectTask>", "ManyTasks<SelectTask>"
TABLE = [
    ("Pieces<FeedbackAdd, ", dict(registers=32, loads=2, stores=1)),
    ("Pieces<FeedbackKeep, ", dict(registers=40, loads=2, stores=1)),
    # All 8 vectors of a thread's tile at once. The sample of a first step divides, once a parameter.
    *((f"StreamPass<{tasks}, {own}, false, {keeps}",
       dict(registers=80 if own == keeps == "true" else 64, loads=8, stores=8, in_flight=8,
            divisions=0 if keeps == "true" else 1))
      for tasks, keeps in ((ONE, "false"), (MANY, "false"), (ONE, "true")) for own in ("false", "true")),
    # With own units 2 blocks share a multiprocessor, which have more on their way than memory takes.
    *((f"StreamPass<{tasks}, {own}, true, {keeps}",
       dict(registers=128 if own == "true" and keeps == "false" else 80, loads=12, stores=12,
            in_flight=8, divisions=0 if keeps == "true" else 1))
      for tasks, keeps in ((ONE, "false"), (MANY, "false"), (ONE, "true")) for own in ("false", "true")),
    ("Dequantize", dict(registers=32, stores=9)),
    # 6 blocks share a multiprocessor, and 4 where numbers are drawn. Where messages share a launch
    # a block finds its own by a division, and 5 share one.
    *((f"FeedbackQuantize<{coding}, {stochastic}, {messages}u>",
       dict(registers=64 if stochastic else 40 if messages == 1 else 48, loads=16, stores=2, in_flight=4,
            divisions=0 if messages == 1 else 1))
      for messages in (1, 32) for stochastic, codings in (
          (0, ("Bf16", "Float32", "Fp16", "Fp8", "Int2", "Int4", "Int8", "Mean", "Sign")),
          (1, ("Bf16", "Fp16", "Fp8", "Int4", "Int8")))
      for coding in codings),
    # 5 blocks share a multiprocessor. A slice has indices, codes and scales.
    ("OrderedSum", dict(registers=48, stores=1, copies=3, divisions=0)),
]
ARCHITECTURES = ["sm_80", "sm_90"]

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]+)\*/\s+(.*?)\s*;")
REGISTER = re.compile(r"\bR(\d+)(\.64)?")
# Not LD and ST, whose memory the compiler does not know.
LOAD = re.compile(r"\bLDG(STS)?\.\S*\b128\b")
STORE = re.compile(r"\bSTG\.\S*\b128\b")
COPY = re.compile(r"\bLDGSTS\b")
# An integer's division starts with a float of the divisor that is rounded up.
DIVISION = re.compile(r"\bI2F\.\S*\bRP\b")
LOCAL = re.compile(r"\b(LDL|STL)\b")
FENCE = re.compile(r"\bMEMBAR\.SC\b")
FOR_THE_HOST = re.compile(r"\bSTRONG\.SYS\b")
# What may go elsewhere. A predicated EXIT may not: threads that stay go on in line.
JUMP = re.compile(r"^(@!?U?P\d+ )?(BRA|BRX|JMP|BSYNC|CALL|RET|WARPSYNC|BREAK)\b|^EXIT\b")
TARGET = re.compile(r"\bBRA\S*\s+(?:\S+, )*`?\(?(0x[0-9a-f]+)")


class Kernel:
    """What one kernel was compiled to."""

    def __init__(self, name, usage):
        self.name = name
        self.registers, self.stack, self.local = (
            int(re.search(rf"\b{word}:(\d+)", usage)[1]) for word in ("REG", "STACK", "LOCAL"))
        self.code = []  # (address, text)

    def finish(self):
        texts = [text for _, text in self.code]
        self.loads = sum(bool(LOAD.search(text)) for text in texts)
        self.stores = sum(bool(STORE.search(text)) for text in texts)
        self.copies = sum(bool(COPY.search(text)) for text in texts)
        self.divisions = sum(bool(DIVISION.search(text)) for text in texts)
        self.spills = sum(bool(LOCAL.search(text)) for text in texts)
        self.fences = sum(bool(FENCE.search(text)) for text in texts)
        self.for_the_host = sum(bool(FOR_THE_HOST.search(text)) for text in texts)
        self.jumps = {}
        for address, text in self.code:
            target = TARGET.search(text)
            if target:
                self.jumps[address] = int(target[1], 16)
        self.in_flight = self.longest_run()
        self.loop = self.loop_of_loads()

    def longest_run(self):
        """The most wide loads in one line before something needs what one of them brings."""
        labels = set(self.jumps.values())
        most, run, waiting = 0, 0, set()
        for address, text in self.code:
            touched = set()
            for number, wide in REGISTER.findall(text):
                touched |= {int(number), int(number) + (1 if wide else 0)}
            if address in labels or JUMP.search(text) or touched & waiting:
                run, waiting = 0, set()
            if LOAD.search(text):
                run += 1
                most = max(most, run)
                if not text.split()[0].startswith("LDGSTS"):
                    first = int(REGISTER.search(text)[1])
                    waiting |= set(range(first, first + 4))
        return most

    def loop_of_loads(self):
        """Instructions of the shortest loop that has a wide load; 0 if none has."""
        shortest = 0
        for source, target in self.jumps.items():
            inside = [text for address, text in self.code if target <= address <= source]
            if any(LOAD.search(text) for text in inside):
                shortest = min(shortest or len(inside), len(inside))
        return shortest

    FIGURES = ["registers", "stack", "loads", "stores", "in_flight", "copies", "divisions", "loop"]

    def failures(self, row):
        """Where this kernel is worse than a row of the table allows."""
        for figure, bound in row.items():
            is_least = figure in ("loads", "stores", "in_flight", "copies")
            value = getattr(self, figure)
            if value < bound if is_least else value > bound:
                yield f"{figure}: {value}, must be {'at least' if is_least else 'at most'} {bound}"


def calls_exit(library):
    """Whether host code ends the process, as no other code of the library does."""
    return any(line.split()[-1].split("@")[0] == "exit"
               for line in run("nm", "--undefined-only", library).splitlines() if line)


def known_kernels(library):
    """How many kernels are loaded before their first launch."""
    return sum(bool(re.search(r" winnow::(\w+::)*Known<.*>::kernel$", line)) and "guard variable" not in line
               for line in run("nm", "--demangle", "--defined-only", library).splitlines())


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def short_names(mangled):
    """The kernel in each `enter<KERNEL>(...)`, without namespaces; others as they are."""
    names = run("c++filt", *mangled).splitlines() if mangled else []
    for key, name in zip(mangled, names):
        name = re.sub(r"\bwinnow::(\w+::)*|\(anonymous namespace\)::", "", name)
        entered = re.fullmatch(r"void enter<(.*?) ?>\(.*\)", re.sub(r" (?=>)|\(\w+\)(?=\d)", "", name))
        yield key, entered[1] if entered else name


def kernels_of(cuobjdump, library, architecture):
    usage = re.findall(r"Function (\S+):\s+(REG:.*)",
                       run(cuobjdump, "--dump-resource-usage", "--gpu-architecture", architecture, library))
    names = dict(short_names([key for key, _ in usage]))
    kernels = {key: Kernel(names[key], text) for key, text in usage}
    current = None
    for line in run(cuobjdump, "--dump-sass", "--gpu-architecture", architecture, library).splitlines():
        found = INSTRUCTION.match(line)
        if found and current:
            current.code.append((int(found[1], 16), found[2]))
        elif "Function : " in line:
            current = kernels.get(line.split("Function : ")[1].strip())
    for kernel in kernels.values():
        kernel.finish()
    return sorted(kernels.values(), key=lambda kernel: kernel.name)


def main():
    libraries = [word for word in sys.argv[1:] if word != "--list"]
    if not libraries:
        sys.exit(__doc__)
    wrong = [f"{library}: the host calls a function of the device" for library in libraries
             if calls_exit(library)]
    if wrong:
        sys.exit("\n".join(wrong))
    cuobjdump = shutil.which("cuobjdump", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if cuobjdump is None:
        print("no cuobjdump")
        sys.exit(77)
    known = sum(map(known_kernels, libraries))
    bad = seen = 0
    for architecture in ARCHITECTURES:
        kernels = [kernel for library in libraries for kernel in kernels_of(cuobjdump, library, architecture)]
        if not kernels:
            continue
        seen += 1
        if "--list" in sys.argv:
            print(architecture, *Kernel.FIGURES, sep="\t")
            for kernel in kernels:
                print(kernel.name, *(getattr(kernel, figure) for figure in Kernel.FIGURES), sep="\t")
            continue
        failures = [f"{kernel.name}: has a stack or spills" for kernel in kernels
                    if kernel.stack or kernel.local or kernel.spills]
        failures += [f"{kernel.name}: has a fence that is ordered with all others" for kernel in kernels
                     if kernel.fences]
        failures += [f"{kernel.name}: reads or writes a word as the host must see it" for kernel in kernels
                     if kernel.for_the_host and kernel.name != "EndCall"]
        if known != len(kernels):
            failures.append(f"{known} of {len(kernels)} kernels are loaded before their first launch")
        for name, row in TABLE:
            meant = [kernel for kernel in kernels if kernel.name.startswith(name)]
            if not meant:
                failures.append(f"{name}: there is no such kernel")
            for kernel in meant:
                failures += [f"{kernel.name}: {failure}" for failure in kernel.failures(row)]
        print(*(f"{architecture} {failure}" for failure in failures), sep="\n", end="\n" if failures else "")
        print(f"{architecture}: {len(kernels)} kernels, {len(failures)} failures")
        bad += len(failures)
    if seen == 0:
        print("no code for", *ARCHITECTURES)
    sys.exit(1 if bad else 77 if seen == 0 else 0)


if __name__ == "__main__":
    main()
