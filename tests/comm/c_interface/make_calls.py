#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: make_calls.py HEADER OUTPUT [LIBRARY]

Writes a C program that calls every function of HEADER, or those that its comments place in LIBRARY,
with each argument and each member of each structure wrong in turn, all others being right: pointers
NULL or MPI_IN_PLACE, enumerations and flags that have no such value, counts and numbers at and beyond
their limits, sizes of structures that are none, and text that is no UTF-8. A function or a member that
is added to the header is called likewise: what is right for it follows from its type and name, and
what may be NULL or any number, from its comment.
"""
import re
import sys
from typing import Iterator, List, NamedTuple, Optional

from declarations import Function, Header, Variable, read_header

SIZES = ("size_t", "uint64_t")
INTS = ("int", "int32_t")
REALS = ("float", "double")
NOT_COUNTS = ("id", "room", "steps", "ticket")  # any value of them is right
GOOD = {"size": "1", "segments": "1", "steps": "1", "interfaces": '"lo"', "host": '"127.0.0.1"',
        "options": '"min_bytes=0"', "count": "kCount", "shard": "kCount", "room": "kRoom", "seconds": "5"}


class Wrong(NamedTuple):
    """A statement that spoils an argument, and what the call has to say of it."""

    statement: str
    fails: bool  # whether the call has to; otherwise it has to return
    name: str  # that the error mentions


def enumeration_of(header: Header, variable: Variable) -> Optional[List[int]]:
    for name, values in header.enums.items():
        if variable.type in INTS and name.endswith("_" + variable.name):
            return sorted(values.values())
    return None


def may_be_null(variable: Variable, function: Optional[Function]) -> bool:
    if variable.name == "self":  # the caller's own
        return True
    if function is None:
        return "NULL" in variable.comment
    first = function.parameters[0].name == variable.name and function.comment.startswith("NULL:")
    return first or re.search(rf"`{variable.name}`[^.]*NULL", function.comment) is not None


class Program:
    def __init__(self, header: Header) -> None:
        self.header = header
        self.lines: List[str] = []

    def makers(self, handle: str) -> List[Function]:
        """The functions that make a handle of nothing or of other handles, the simplest first."""
        made = [f for f in self.header.functions if f.parameters and
                f.parameters[-1].type == handle + "**" and
                all(p.pointee.removeprefix("const ") != handle for p in f.parameters)]
        return sorted(made, key=lambda f: len(f.parameters))

    def waits(self, handle: str) -> bool:
        return any(f.name == f"{handle}_wait" for f in self.header.functions)

    def handle_of(self, variable: Variable) -> Optional[str]:
        kind = variable.pointee.removeprefix("const ")
        return kind if variable.is_pointer and kind in self.header.handles else None

    def struct_of(self, variable: Variable) -> Optional[str]:
        kind = variable.pointee.removeprefix("const ")
        return kind if variable.is_pointer and kind in self.header.structs else None

    def function_pointer(self, variable: Variable, name: str) -> str:
        result, parameters = variable.type.split("(*)")
        unused = "".join(f" (void){p.split()[-1].lstrip('*')};" for p in parameters[1:-1].split(","))
        ends = " return 0;" if result.strip() != "void" else ""
        self.lines.append(f"static {result.strip()} {name}{parameters} {{{unused}{ends} }}")
        return name

    def value(self, variable: Variable, where: str) -> str:
        """A right one: an expression, of objects that the fixture or the program has."""
        if (values := enumeration_of(self.header, variable)) is not None:
            return "0" if 0 in values else str(values[0])
        if variable.name in GOOD and (not variable.is_pointer or "char" in variable.type):
            return GOOD[variable.name]
        if variable.is_function:
            return self.function_pointer(variable, f"{where}_{variable.name}")
        if variable.type in INTS + REALS:
            return "0.5" if variable.type in REALS else "0"
        if variable.type in SIZES:
            return "1"
        if variable.type == "const char*":
            return '"text"'
        if variable.name in ("self", "stream"):
            return "NULL"
        if variable.type in ("const char* const*", "const void* const*"):
            return "(const void*)pointers"
        if variable.type.endswith("**"):
            return f"({variable.type})&made"
        return f"({variable.type})memory_of(\"{where}.{variable.name}\")"

    def structs(self) -> None:
        for name, members in self.header.structs.items():
            values = [(m.name, self.value(m, name)) for m in members if m.name != "struct_bytes"]
            self.lines += [f"static {name} right_{name}(void) {{", f"  {name} right;",
                           "  memset(&right, 0, sizeof right);", "  right.struct_bytes = sizeof right;"]
            self.lines += [f"  right.{member} = {value};" for member, value in values
                           if not may_be_null(next(m for m in members if m.name == member), None)]
            self.lines += ["  return right;", "}"]

    def wrong(self, at: str, variable: Variable, function: Optional[Function]) -> Iterator[Wrong]:
        """What is wrong for the lvalue `at`."""
        name, kind, comment = variable.name, variable.type, variable.comment
        if variable.is_pointer:
            yield Wrong(f"{at} = NULL;", not may_be_null(variable, function), name)
            is_text = "char" in kind
            if not (is_text or variable.is_function or name in ("self", "stream")):
                for place in ("1", "-1"):
                    yield Wrong(f"{at} = ({kind})(intptr_t){place};", True, name)
            if kind == "const char*":
                yield Wrong(f'{at} = "\\xff\\xfe";', True, name)
                yield Wrong(f"{at} = long_text();", False, name)
        elif name == "struct_bytes":
            for size in ("0", "1", "3", "4096", "65536", "UINT32_MAX"):
                yield Wrong(f"{at} = {size};", True, name)
        elif (values := enumeration_of(self.header, variable)) is not None:
            for value in (values[0] - 1, values[-1] + 1, 255, 256, 65536, "INT_MIN", "INT_MAX"):
                yield Wrong(f"{at} = {value};", True, name)
        elif kind in INTS and comment.startswith("1:"):
            for value in ("-1", "2", "256", "INT_MIN", "INT_MAX"):
                yield Wrong(f"{at} = {value};", True, name)
        elif kind in INTS and name == "size":
            for value in ("0", "-1", "INT_MIN", "INT_MAX"):
                yield Wrong(f"{at} = {value};", True, name)
        elif kind in INTS:
            for value in ("-1", "INT_MIN", "INT_MAX"):
                limited = value != "INT_MAX" or name in ("rank", "port")
                yield Wrong(f"{at} = {value};", limited and name != "node", name)
        elif kind in SIZES and name not in NOT_COUNTS:
            for value in ("", " / 2 + 1", " / 4 + 1", " / 8 + 1"):
                yield Wrong(f"{at} = UINT64_MAX{value};", True, "count")
            yield Wrong(f"{at} = 0;", False, name)
        elif kind in SIZES:
            yield Wrong(f"{at} = UINT64_MAX;", False, name)
            yield Wrong(f"{at} = 0;", False, name)
        elif kind in REALS:
            is_any = "not finite" in comment
            yield Wrong(f"{at} = ({kind})NAN;", not is_any, name)
            for value in ("(float)INFINITY", "-(float)INFINITY"):
                yield Wrong(f"{at} = {value};", not is_any and name != "seconds", name)
            yield Wrong(f"{at} = -1;", name not in ("rate", "seconds"), name)
        else:
            raise ValueError(f"no idea what is wrong with {kind} {name}")

    def open_handles(self, function: Function) -> List[str]:
        """Statements that make the handles of its parameters; a handle that cannot be made is NULL."""
        lines = []
        for variable in function.parameters:
            if (handle := self.handle_of(variable)) is not None:
                lines.append(f"  {handle}* {variable.name} = open_{handle}();")
        return lines

    def openers(self) -> None:
        """A function for each handle, which makes one and keeps what that needs until the end."""
        for handle in self.header.handles:
            self.lines.append(f"static {handle}* open_{handle}(void);")
        for handle in self.header.handles:
            self.lines += [f"static {handle}* open_{handle}(void) {{", f"  {handle}* opened = NULL;"]
            destroyer = f"{handle}_destroy"
            for maker in self.makers(handle)[:1]:
                self.lines += ["  made = NULL;", *self.locals(maker), *self.open_handles(maker)]
                arguments = [*(self.argument(p) for p in maker.parameters[:-1]), "&opened"]
                self.lines.append(f"  must({maker.name}({', '.join(arguments)}), \"{maker.name}\");")
                if self.waits(handle):  # other works have the same memory
                    self.lines.append(f"  must({handle}_wait(opened), \"{handle}_wait\");")
            self.lines += [f"  if (opened != NULL) at_end((void (*)(void*)){destroyer}, opened);",
                           "  return opened;", "}"]

    def locals(self, function: Function) -> List[str]:
        return [f"  {kind} {p.name}_s = right_{kind}();" for p in function.parameters
                if (kind := self.struct_of(p)) is not None]

    def argument(self, variable: Variable) -> str:
        if self.handle_of(variable) is not None:
            return variable.name
        if self.struct_of(variable) is not None:
            return f"&{variable.name}_s"
        return self.value(variable, "argument")

    def calls(self, function: Function) -> None:
        if function.name.endswith("_destroy"):
            self.lines += [f"static void call_{function.name}(void) {{",
                           f'  begin("{function.name}");', f"  {function.name}(NULL);", "}"]
            return
        arguments = [(p, f"a_{p.name}") for p in function.parameters]
        call = f"{function.name}({', '.join(at for _, at in arguments)})"
        after, status = [], {"void": f"({call}, 0)", "int": call}.get(function.result, f"{call} == 0")
        made = function.parameters[-1].pointee.removesuffix("*") if function.parameters else ""
        if function.result == "int" and made in self.header.handles:
            waits = f"status = {made}_wait(made); " if self.waits(made) else ""
            after = [f"  if (status == 0 && made != NULL) {{ {waits}"
                     f"at_end((void (*)(void*)){made}_destroy, made); }}"]
        good = [self.argument(p) for p in function.parameters]
        declared = [f"  {p.type} {at} = {value};" if not p.is_function else
                    f"  {p.type.replace('(*)', f'(*{at})')} = {value};"
                    for (p, at), value in zip(arguments, good)]
        cases = [Wrong("", False, "")]
        for p, at in arguments:
            cases += self.wrong(at, p, function)
            if (kind := self.struct_of(p)) is not None:
                for member in self.header.structs[kind]:
                    cases += self.wrong(f"{p.name}_s.{member.name}", member, None)
        self.lines += [f"static void call_{function.name}(void) {{",
                       f'  begin("{function.name}");', *self.open_handles(function)]
        for case in cases:
            fails = case.fails and function.result != "void"
            self.lines += ["  {", "  made = NULL;", *("  " + line for line in self.locals(function)),
                           *declared, "  " + case.statement, f"  int status = {status};", *after,
                           f'  check(status, {int(fails)}, "{case.name}", {quoted(case.statement)});', "  }"]
        self.lines.append("}")

    def text(self, functions: List[Function]) -> str:
        self.structs()
        self.openers()
        for function in functions:
            self.calls(function)
        self.lines += ["int main(void) {", *(f"  call_{f.name}();" for f in functions),
                       f"  return end({len(functions)});", "}"]
        return '#include "fixture.c"\n\n' + "\n".join(self.lines) + "\n"


def quoted(statement: str) -> str:
    return '"' + statement.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main() -> None:
    source, output, library = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ""
    with open(source, encoding="utf-8") as file:
        header = read_header(file.read())
    elsewhere = {f.name: m[1] for f in header.functions
                 if (m := re.search(r"\bIn (lib\w+)\.", f.comment)) is not None}
    functions = [f for f in header.functions if elsewhere.get(f.name, "") == library]
    header.functions = [f for f in header.functions if f.name not in elsewhere or f in functions]
    with open(output, "w", encoding="utf-8") as file:
        file.write(Program(header).text(functions))


if __name__ == "__main__":
    main()
