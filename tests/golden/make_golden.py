#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden messages, from docs/message_format.md and from nothing else.

It shares no code with the library, so that message_test compares two implementations. Run it, in
any folder, when a version is added to the format; a message of an existing version never changes:

    python3 tests/golden/make_golden.py
"""

import pathlib
import struct


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


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


def checksum(message: bytes) -> int:
    words = struct.unpack(f"<{len(message) // 4}I", message)
    return sum(word * (2 * i + 1) for i, word in enumerate(words)) % 2**64


def message(kind: int, flags: int, count: int, index: list[int], value_bits: list[int]) -> bytes:
    k = len(value_bits)
    if k == count:
        index_coding, index_part = 0, b""
    else:
        codings = [(len(raw32(count, index)), 1), (len(eliasfano(count, index)), 2)]
        index_coding = min(codings)[1]
        index_part = (raw32 if index_coding == 1 else eliasfano)(count, index)
    value_part = padded(struct.pack(f"<{k}I", *value_bits))

    def with_checksum(number: int) -> bytes:
        header = struct.pack(
            "<4sBBHQQQQQIHBBQ", b"WNNW", 1, kind, flags, 0x0123456789ABCDEF, 0xFEDCBA9876543210,
            1000000007, count, k, 3, 2, index_coding, 1, number)
        return header + index_part + value_part

    return with_checksum(checksum(with_checksum(0)))


def bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def ramp(k: int) -> list[int]:
    """1.5, -2.5, 3.5, ..."""
    return [bits((n + 1.5) * (-1) ** n) for n in range(k)]


GRADIENT, AGREEMENT = 1, 2
POISON, REFUSED = 1, 2
GOLDEN = {
    "agreement": message(AGREEMENT, REFUSED, 0, [], []),
    "nothing_kept": message(GRADIENT, 0, 10, [], []),
    "everything_kept": message(GRADIENT, 0, 3, [], [bits(1.0), bits(-0.0), 1]),
    "raw32": message(GRADIENT, 0, 1000, [999], ramp(1)),
    "eliasfano_no_low_bits": message(GRADIENT, 0, 40, [0, 1, 5, 39], ramp(4)),
    "eliasfano": message(GRADIENT, 0, 1000, [2 * n * n for n in range(21)], ramp(21)),
    "eliasfano_poison": message(
        GRADIENT, POISON, 4000000000, [571428571 * n for n in range(7)],
        ramp(5) + [0x7FC00000, 0xFF800000]),
}

if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent
    for name, data in GOLDEN.items():
        (folder / f"{name}.bin").write_bytes(data)
        print(f"{name}.bin: {len(data)} bytes")
