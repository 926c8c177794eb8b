#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden messages, from docs/message_format.md, and saved states, from the format in
comm/state/saved_state.hpp, and from nothing else.

It shares no code with the library, so that golden_test compares two implementations. Run it, in
any folder, when a version is added to a format; what has an existing version never changes:

    python3 tests/golden/make_golden.py

It also prints the rows of the table in partition_test. With --check it writes nothing and exits with
1 if a message or a row differs from what is stored.
"""

import pathlib
import re
import struct
import sys
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).resolve().parent

CALL, OWNER, PART = 1000000007, 3, 2


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


# ---- Index part

def none(count: int, index: list[int]) -> bytes:
    return b""


def raw32(count: int, index: list[int]) -> bytes:
    return padded(struct.pack(f"<{len(index)}I", *index))


def part_bytes(bits: int) -> int:
    return (bits + 63) // 64 * 8


def eliasfano(count: int, index: list[int]) -> bytes:
    k = len(index)
    sizes = [(part_bytes(k * l) + part_bytes(k + (count >> l) + 1), l) for l in range(32)]
    low_bits = min(sizes)[1]
    low = sum((i & ((1 << low_bits) - 1)) << (n * low_bits) for n, i in enumerate(index))
    high = sum(1 << ((i >> low_bits) + n) for n, i in enumerate(index))
    return low.to_bytes(part_bytes(k * low_bits), "little") + high.to_bytes(
        part_bytes(k + (count >> low_bits) + 1), "little"
    )


def bitmap(count: int, index: list[int]) -> bytes:
    part = bytearray(part_bytes(count))
    for i in index:
        part[i // 8] |= 1 << i % 8
    return bytes(part)


def seeded(count: int, index: list[int]) -> bytes:
    assert index == drawn(count, len(index))
    return b""


def philox(counter: list[int], key: list[int]) -> list[int]:
    for number in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [b >> 32 ^ counter[1] ^ key[0], b % 2**32, a >> 32 ^ counter[3] ^ key[1], a % 2**32]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return counter


def drawn(count: int, k: int) -> list[int]:
    """The positions that all ranks draw."""
    z = (0x6B6D6F646E6172 + CALL * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    z ^= z >> 31
    index = []
    for i in range(k):
        begin, end = i * count // k, (i + 1) * count // k
        word = philox([i // 4, 0, 0, PART], [z % 2**32, z >> 32])[i % 4]
        index.append(begin + (word * (end - begin) >> 32))
    return index


INDEX_CODINGS = [none, raw32, eliasfano, bitmap, seeded]


def index_part(count: int, index: list[int], asked) -> tuple[int, bytes]:
    """The id of the coding and its bytes."""
    if len(index) == count:
        return 0, b""
    codings = [asked] if asked else [raw32, eliasfano, bitmap]
    coded = [(coding(count, index), INDEX_CODINGS.index(coding)) for coding in codings]
    data, number = min(coded, key=lambda c: (len(c[0]), c[1]))
    return number, data


# ---- Value part

class Values(NamedTuple):
    """Codes, as unsigned or signed numbers, with the scales of their blocks."""

    coding: int
    codes: list[int]
    block: int = 0
    scales: list[float] = []

    def id(self) -> int:
        return self.coding | ((self.block.bit_length() - 6) << 4 if self.block else 0)

    def part(self) -> bytes:
        bits = [None, 32, 16, 16, 8, 4, 1, 2, 8, 0][self.coding]
        assert not self.block or len(self.scales) == -(-len(self.codes) // self.block)
        packed = sum((code & ((1 << bits) - 1)) << (n * bits) for n, code in enumerate(self.codes))
        return padded(struct.pack(f"<{len(self.scales)}f", *self.scales)) + packed.to_bytes(
            part_bytes(len(self.codes) * bits), "little")


def float32(bits: list[int]) -> Values:
    return Values(1, bits)


def bf16(codes: list[int]) -> Values:
    return Values(2, codes)


def fp16(codes: list[int]) -> Values:
    return Values(3, codes)


def int8(codes: list[int], scales: list[float], block: int = 256) -> Values:
    return Values(4, codes, block, scales)


def int4(codes: list[int], scales: list[float], block: int = 128) -> Values:
    return Values(5, codes, block, scales)


def sign(codes: list[int], scales: list[float], block: int = 512) -> Values:
    return Values(6, codes, block, scales)


def int2(levels: list[int], scales: list[float], block: int = 512) -> Values:
    return Values(7, [(level - 1) // 2 for level in levels], block, scales)


def fp8(codes: list[int], scales: list[float], block: int = 512) -> Values:
    return Values(8, codes, block, scales)


def mean(k: int, scales: list[float], block: int = 512) -> Values:
    return Values(9, [0] * k, block, scales)


# ---- Message

def checksum(message: bytes) -> int:
    words = struct.unpack(f"<{len(message) // 4}I", message)
    return sum(word * (2 * i + 1) for i, word in enumerate(words)) % 2**64


class Header(NamedTuple):
    kind: int
    flags: int
    count: int
    k: int
    owner: int = 0
    part: int = PART
    index_coding: int = 0
    value_coding: int = 0

    def packed(self, number: int) -> bytes:
        return struct.pack(
            "<4sBBHQQQQQIHBBQ", b"WNNW", 1, self.kind, self.flags, 0x0123456789ABCDEF,
            0xFEDCBA9876543210, CALL, self.count, self.k, self.owner, self.part,
            self.index_coding, self.value_coding, number)


def with_checksum(header: Header, body: bytes = b"") -> bytes:
    return header.packed(checksum(header.packed(0) + body)) + body


def message(kind: int, flags: int, count: int, index: list[int], values: Values,
            index_coding=None) -> bytes:
    """A message that carries `values` at `index`, or at all positions."""
    k = len(values.codes)
    everything = k == count
    assert everything or len(index) == k
    number, positions = index_part(count, list(range(k)) if everything else index, index_coding)
    owner = OWNER if kind in (CONTRIBUTION, SUM) else 0
    header = Header(kind, flags, count, k, owner, index_coding=number, value_coding=values.id())
    return with_checksum(header, positions + values.part())


def support(flags: int, count: int, index: list[int], index_coding=None) -> bytes:
    number, positions = index_part(count, index, index_coding)
    return with_checksum(
        Header(SUPPORT, flags, count, len(index), OWNER, index_coding=number), positions)


def bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def from_bits(number: int) -> float:
    return struct.unpack("<f", struct.pack("<I", number))[0]


def ramp(k: int) -> list[int]:
    """1.5, -2.5, 3.5, ..."""
    return [bits((n + 1.5) * (-1) ** n) for n in range(k)]


GRADIENT, AGREEMENT, CONTRIBUTION, SUM, PARTIAL, SUPPORT = 1, 2, 3, 4, 5, 6
POISON, REFUSED = 1, 2
BF16 = [0x3FC0, 0xC020, 0x8000, 0x0001, 0x7F7F, 0xFF80, 0x3EAB]
FP16 = [0x3E00, 0xC100, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x3555, 0x7C00, 0xFFFF]
GOLDEN = {
    "agreement": with_checksum(Header(AGREEMENT, 0, 25600000, 256000, part=0)),
    "agreement_refused": with_checksum(Header(AGREEMENT, REFUSED, 0, 0, part=0)),
    "nothing_kept": message(GRADIENT, 0, 10, [], float32([])),
    "everything_kept": message(GRADIENT, 0, 3, [], float32([bits(1.0), bits(-0.0), 1])),
    "raw32": message(GRADIENT, 0, 1000, [999], float32(ramp(1))),
    "eliasfano_no_low_bits": message(GRADIENT, 0, 40, [0, 1, 5, 39], float32(ramp(4))),
    "eliasfano": message(GRADIENT, 0, 1000, [2 * n * n for n in range(21)], float32(ramp(21))),
    "poison": message(
        GRADIENT, POISON, 4000000000, [571428571 * n for n in range(7)],
        float32(ramp(5) + [0x7FC00000, 0xFF800000])),
    "bitmap": message(GRADIENT, 0, 100, [3 * n for n in range(34)], float32(ramp(34))),
    "contribution": message(
        CONTRIBUTION, 0, 129, [n * n for n in range(12)], float32(ramp(12))),
    "partial": message(PARTIAL, 0, 2000, [n * (n + 11) for n in range(40)], float32(ramp(40))),
    "bf16_sum_poison": message(
        SUM, POISON, 5000, [700 * n + 77 for n in range(7)], bf16(BF16)),
    "fp16_raw32": message(  # an option asks for raw32, though it is not the shortest
        GRADIENT, 0, 1000, [100 * n + 99 for n in range(10)], fp16(FP16), raw32),
    "int8": message(
        SUM, 0, 3000, [9 * n + n % 5 for n in range(300)],
        int8([37 * n % 255 - 127 for n in range(300)], [0.125, from_bits(0x7C010202)])),
    "int8_block_64": message(
        CONTRIBUTION, 0, 1000, [6 * n + n % 5 for n in range(150)],
        int8([37 * n % 255 - 127 for n in range(150)], [0.5, 3.0, 2.0**-100], 64)),
    "int4_everything": message(
        SUM, 0, 261, [],
        int4([4 * n % 15 - 7 for n in range(261)], [0.25, 1.5, from_bits(0x7E124922)])),
    "int4_block_64_bitmap": message(
        CONTRIBUTION, 0, 200, [5 * n // 2 for n in range(70)],
        int4([4 * n % 15 - 7 for n in range(70)], [5.0, 0.75], 64)),
    "sign": message(
        GRADIENT, 0, 5000, [9 * n + n % 7 for n in range(520)],
        sign([int(n % 3 == 0) for n in range(520)], [0.1, from_bits(0x7F7FFFFF)])),
    "sign_block_65536_bitmap": message(
        GRADIENT, 0, 300, [0, 1, 299], sign([0, 1, 0], [0.3], 65536), bitmap),
    "fp8": message(
        GRADIENT, 0, 5000, [9 * n + n % 7 for n in range(520)],
        fp8([n % 127 + 128 * (n % 2) for n in range(520)], [0.5, from_bits(0x7B124922)])),
    "int2": message(
        GRADIENT, 0, 5000, [9 * n + n % 5 for n in range(523)],
        int2([[1, -3, 3, 3, -1][n % 5] for n in range(523)], [0.75, from_bits(0x7EAAAAAA)])),
    "mean": message(
        GRADIENT, 0, 5000, [9 * n + n % 7 for n in range(520)],
        mean(520, [-0.1, from_bits(0xFF7FFFFF)])),
    "seeded": message(GRADIENT, 0, 1000, drawn(1000, 7), float32(ramp(7)), seeded),
    "support": support(0, 100000, [n * n + 63 for n in range(300)]),
    "support_everything_poison": support(POISON, 129, list(range(129))),
}


# ---- Saved state

def fnv_words(data: bytes) -> int:
    digest = 0xCBF29CE484222325
    for word in struct.unpack(f"<{len(data) // 8}Q", data):
        digest = (digest ^ word) * 0x100000001B3 % 2**64
    return digest


def crc64(data: bytes) -> int:
    """CRC-64/NVME, bit by bit."""
    rest = 2**64 - 1
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x9A6C9329AC4BC9B5 if rest & 1 else 0)
    return rest ^ (2**64 - 1)


def state(version: int) -> bytes:
    """Rank 1 of 2 after 5 calls: parameter 7 of three elements in two pieces, with a moment and,
    from version 3 on, a name."""
    name = b"layer1.weight" if version > 2 else b""
    words = [version, 2, 1, 5, 1, 7, 3, 2, 2, 3, 5, 4, 3] + [len(name)][:len(name)]
    words += [1, 1, 0] + [2, 0, 9]
    elements = [1.5, -2.5, 0.0, 0.25, 4.0, 0.5]
    body = b"WNWSTATE" + struct.pack(f"<{len(words)}Q", *words)
    for at in (0, 3):
        body += padded(struct.pack("<3f", *elements[at:at + 3]))
    body += padded(name)
    return body + struct.pack("<Q", {2: fnv_words, 3: crc64}[version](body))


assert crc64(b"123456789") == 0xAE8B14860A799888
FILES = {f"{name}.bin": data for name, data in GOLDEN.items()}
FILES |= {f"version_{version}.state": state(version) for version in (2, 3)}


# ---- Partition

def formula(document: str) -> list:
    """The lines of the document that compute h from g and P, to be evaluated in turn."""
    lines = re.findall(r"^    h = (.*)$", document, re.MULTILINE)
    lines = [re.sub("xor", "^", re.sub("mod", "%", line)) for line in lines]
    return [compile(line.replace("2^32", "2**32"), "formula", "eval") for line in lines]


FORMULA = formula((FOLDER.parents[1] / "docs/message_format.md").read_text())


def owner_and_local(owners: int, position: int) -> tuple[int, int]:
    unit = position // 64
    group = unit // owners
    h = 0
    for line in FORMULA:
        h = eval(line, {"g": group, "h": h, "P": owners})
    owner = next(o for o in range(owners) if group * owners + (o - h) % owners == unit)
    return owner, 64 * group + position % 64


PARTITION = [
    (1, 1000, 999), (2, 1000, 0), (2, 1000, 64), (2, 1000, 500), (2, 1000, 999),
    (3, 100000, 191), (3, 100000, 192), (3, 100000, 12345), (3, 100000, 99999),
    (4, 2**20, 2**20 - 1), (7, 100001, 448), (7, 100001, 31416), (7, 100001, 100000),
    (64, 10**9, 123456789), (1000, 2**40, 2**40 - 1), (5, 2**50, 2**50 - 1),
    (2, 2**50, 2**39 + 64), (65536, 2**40, 987654321012),
]

ROWS = [f"{{{owners}, {count}, {position}, {owner}, {local}}},"
        for owners, count, position in PARTITION
        for owner, local in [owner_and_local(owners, position)]]


def check() -> int:
    """Whether what is stored and the rows of the partition's test are what the formats say."""
    test = (FOLDER.parent / "kernels/arithmetic/partition_test.cpp").read_text()
    wrong = [name for name, data in FILES.items() if (FOLDER / name).read_bytes() != data]
    wrong += [row for row in ROWS if row not in test]
    for what in wrong:
        print(f"differs from its format: {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    for name, data in FILES.items():
        (FOLDER / name).write_bytes(data)
        print(f"{name}: {len(data)} bytes")
    print("\n".join(ROWS))
