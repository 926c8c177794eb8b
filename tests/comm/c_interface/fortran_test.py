#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: fortran_test.py COMPILER LIBRARY...

The Fortran module has an interface of each function that the libraries export for C, a type of each
structure of winnow.h with the same bytes, members and places, and the same constants: a program in
C and one in Fortran, by COMPILER, print them. A type's struct_bytes is its size from the start.
Ends with 77 if there is no COMPILER.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
INCLUDE = os.path.join(ROOT, "include")


def read(name):
    """A file of the interface, without its comments."""
    with open(os.path.join(INCLUDE, "winnow", name), encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/|^ *!.*?$", "", file.read(), flags=re.S | re.M)


def members_of(header):
    """Each structure's name and the names of its members."""
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)^\}", header, flags=re.S | re.M):
        body = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body)  # functions, without their parameters
        yield name, re.findall(r"(\w+)[,;]", body)


def run(*command):
    """What a command prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def exported(libraries):
    """The functions of the C interface in these libraries."""
    for library in libraries:
        yield from re.findall(r" T (winnow_\w+)$", run("nm", "-D", "--defined-only", library),
                              flags=re.M)


def in_c(structures, constants):
    """A program that prints sizes, places and values as C has them."""
    lines = ["#include <stdio.h>", "#include <winnow/winnow.h>", "int main(void) {"]
    lines += [f'  printf("{name} %d\\n", (int){name});' for name in constants]
    for name, members in structures.items():
        lines.append(f'  printf("{name} %zu %zu\\n", sizeof({name}), sizeof({name}));')
        lines += [f'  printf("{name} {member} %zu %zu\\n", offsetof({name}, {member}), '
                  f'sizeof((({name}*)0)->{member}));' for member in members]
    return "\n".join([*lines, "  return 0;", "}", ""])


def in_fortran(structures, constants):
    """The same as Fortran has them, and struct_bytes as it is from the start."""
    lines = ["program layout", "  use winnow", "  implicit none"]
    for name in structures:
        lines.append(f"  type({name}), target :: a_{name}")
    lines += [f'  print "(a,i0)", "{name} ", {name}' for name in constants]
    for name, members in structures.items():
        lines.append(f'  print "(a,i0,1x,i0)", "{name} ", &\n'
                     f"      c_sizeof(a_{name}), a_{name}%struct_bytes")
        lines += [f'  print "(a,i0,1x,i0)", "{name} {member} ", &\n'
                  f"      transfer(c_loc(a_{name}%{member}), 0_c_intptr_t) &\n"
                  f"      - transfer(c_loc(a_{name}), 0_c_intptr_t), c_sizeof(a_{name}%{member})"
                  for member in members]
    return "\n".join([*lines, "end program", ""])


def main():
    compiler, *libraries = sys.argv[1:]
    if not shutil.which(compiler):
        print(f"SKIPPED: no {compiler} here")
        return 77
    header, module = read("winnow.h"), read("winnow.f90")
    failed = 0

    interfaces = re.findall(r"^ *(?:function|subroutine) (winnow_\w+)\(", module, flags=re.M)
    functions = {*exported(libraries)}
    missing = sorted(functions - {*interfaces})
    if missing or len(functions) < 40:
        print(f"of {len(functions)} functions the module lacks {missing}")
        failed = 1

    structures = dict(members_of(header))
    constants = re.findall(r"(WINNOW_[A-Z0-9_]+)(?: =)? -?\d", header)
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.join(folder, name)
        for name, text in ("layout.c", in_c(structures, constants)), (
                "layout.f90", in_fortran(structures, constants)):
            with open(path(name), "w", encoding="utf-8") as file:
                file.write(text)
        run(*shlex.split(os.environ.get("CC", "cc")), f"-I{INCLUDE}", path("layout.c"),
            "-o", path("c"))
        run(compiler, "-std=f2018", "-Wall", "-Wextra", "-Werror", "-fimplicit-none",
            f"-J{folder}", os.path.join(INCLUDE, "winnow/winnow.f90"), path("layout.f90"),
            "-o", path("fortran"))
        wanted, found = (run(path(name)).splitlines() for name in ("c", "fortran"))
    for line, other in zip(wanted, found):
        if line != other:
            print(f"in C '{line}', in Fortran '{other}'")
            failed = 1
    return failed or len(wanted) != len(found) or len(wanted) < 60


if __name__ == "__main__":
    sys.exit(main())
