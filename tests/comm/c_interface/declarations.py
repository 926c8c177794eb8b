# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What winnow.h declares: its enumerations, structures, handles and functions, with their comments."""
import re
from dataclasses import dataclass, field
from typing import Dict, List


@dataclass
class Variable:
    """A parameter or a member. `type` of a function pointer has its name left out: "int (*)(void*)"."""

    type: str
    name: str
    comment: str = ""

    @property
    def is_function(self) -> bool:
        return "(*" in self.type

    @property
    def is_pointer(self) -> bool:
        return self.is_function or self.type.endswith("*")

    @property
    def pointee(self) -> str:
        return self.type[:-1].strip()


@dataclass
class Function:
    result: str
    name: str
    parameters: List[Variable]
    comment: str


@dataclass
class Header:
    enums: Dict[str, Dict[str, int]] = field(default_factory=dict)
    structs: Dict[str, List[Variable]] = field(default_factory=dict)
    handles: List[str] = field(default_factory=list)
    functions: List[Function] = field(default_factory=list)


def _text(comment: str) -> str:
    return " ".join(comment.strip("/* \n").split())


def _variables(declaration: str, comment: str) -> List[Variable]:
    """One declaration, perhaps of several variables: "int32_t rank, size"."""
    declaration = " ".join(declaration.split())
    pointer = re.fullmatch(r"(.+?)\(\*(\w+)\)(\(.*\))", declaration)
    if pointer:
        return [Variable(f"{pointer[1]}(*){pointer[3]}", pointer[2], comment)]
    first, *others = declaration.split(",")
    matched = re.fullmatch(r"(.*[\s*])(\w+)", first)
    if matched is None:
        raise ValueError(f"no declaration of a variable: {declaration}")
    kind = matched[1].strip().replace(" *", "*")
    return [Variable(kind, name.strip(), comment) for name in (matched[2], *others)]


def _parameters(text: str) -> List[Variable]:
    if text.strip() in ("", "void"):
        return []
    parts, depth, part = [], 0, ""
    for char in text:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += char
    return [v for each in [*parts, part] for v in _variables(each, "")]


def _members(body: str) -> List[Variable]:
    """A comment belongs to the member on whose line it begins, or to the one after it."""
    members: List[Variable] = []
    before = ""
    for token in re.finditer(r"/\*.*?\*/|[^;/]+;", body, re.DOTALL):
        text = token[0]
        if text.startswith("/*"):
            line = body[body.rfind("\n", 0, token.start()) + 1:token.start()]
            if line.strip():
                for member in members[-(line.count(",") + 1):]:
                    member.comment += _text(text)
            else:
                before = _text(text)
        else:
            members += _variables(text[:-1], before)
            before = ""
    return members


def read_header(source: str) -> Header:
    header = Header()
    code = re.sub(r"^#.*$|^extern \"C\" \{$", "", source, flags=re.MULTILINE)
    comment = ""
    for token in re.finditer(r"/\*.*?\*/|[^;{}/]+(\{.*?\n?\}[^;]*)?;", code, re.DOTALL):
        text = token[0].strip()
        if text.startswith("/*"):
            comment = _text(text)
            continue
        body = text[text.find("{") + 1:text.rfind("}")]
        if named := re.match(r"enum (\w+) \{", text):
            plain = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
            header.enums[named[1]] = {n: int(v) for n, v in re.findall(r"(\w+) = (-?\d+)", plain)}
        elif named := re.match(r"typedef struct (\w+) \{", text):
            header.structs[named[1]] = _members(body)
        elif named := re.fullmatch(r"typedef struct (\w+) \w+;", text):
            header.handles.append(named[1])
        elif named := re.fullmatch(r"(.*?)\b(winnow_\w+)\((.*)\);", text, re.DOTALL):
            result = named[1].strip().replace(" *", "*")
            header.functions.append(Function(result, named[2], _parameters(named[3]), comment))
        else:
            raise ValueError(f"not understood: {text}")
        comment = ""
    bare = re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL)
    declared = set(re.findall(r"^[a-z].*?\b(winnow_\w+)\(", bare, flags=re.MULTILINE))
    missed = declared - {function.name for function in header.functions}
    if missed or not declared:
        raise ValueError(f"functions that were not understood: {sorted(missed)}")
    return header
