// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

namespace winnow::kernels {

/// elements[i] = value, bit for bit, a NaN too; rounded to nearest even where they are bf16 or
/// fp16.
void fill(const Exec& exec, const Elements& elements, float value);

/// to[i] = from[i], bit for bit. Equal sizes, no overlap. Where exec is of a device, either side
/// may also be pinned host memory, which the host leaves alone until the stream has passed.
void copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from);

inline void copy(const Exec& exec, std::span<float> to, std::span<const float> from) {
  copy(exec, std::as_writable_bytes(to), std::as_bytes(from));
}

/// to = what the host has in `from` now, whatever the place of `to`: the host may go on writing
/// there at once. On a device it travels with the launches, and a graph captures it by value. Whole
/// words of 4 bytes at a multiple of 4; for short lists, 32,000 bytes a launch at most.
void store(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from);

/// Writes zeros. Takes no condition; fill does.
void zero(const Exec& exec, std::span<std::byte> bytes);

}  // namespace winnow::kernels
