// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "kernels/memory_ops.hpp"
#include "tests/kernels/around.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {

// Cases of fill and copy for bodies at any place, or on the model of a device. All elements lie
// between others, which a body must not change.

inline constexpr std::size_t kMemoryCounts[] = {0, 1, 3, 4, 5, 31, 33, 4095, 4097, 20'001};

using FillBody = std::function<void(std::span<float>, float)>;
using CopyBody = std::function<void(std::span<float> to, std::span<const float> from)>;

/// The fills include zeros of both signs and a NaN with a payload.
inline void expect_fill_equals_reference(const FillBody& body) {
  for (const std::size_t count : kMemoryCounts) {
    for (std::size_t offset = 0; offset < 4; ++offset) {
      for (const float value :
           {0.0F, -0.0F, 1.5F, std::bit_cast<float>(0xffc01234U), std::bit_cast<float>(1U)}) {
        SCOPED_TRACE(testing::Message() << count << " elements, +" << offset << ", " << value);
        std::vector<float> got = make_input(Input::normal, count + offset + 2 * kAround, 3);
        std::vector<float> expected = got;
        body(std::span(got).subspan(kAround + offset, count), value);
        std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(kAround + offset), count, value);
        EXPECT_TRUE(same_bits(got, expected));
      }
    }
  }
}

/// Spans with different offsets from a multiple of 16 bytes.
inline void expect_copy_equals_reference(const CopyBody& body) {
  for (const std::size_t count : kMemoryCounts) {
    for (std::size_t to = 0; to < 4; ++to) {
      for (std::size_t from = 0; from < 4; ++from) {
        SCOPED_TRACE(testing::Message() << count << " elements, +" << from << " to +" << to);
        const std::vector<float> source = make_input(Input::not_finite, count + from, 4);
        std::vector<float> got = make_input(Input::normal, count + to + 2 * kAround, 3);
        std::vector<float> expected = got;
        body(std::span(got).subspan(kAround + to, count), std::span(source).subspan(from));
        std::copy(source.begin() + static_cast<std::ptrdiff_t>(from), source.end(),
                  expected.begin() + static_cast<std::ptrdiff_t>(kAround + to));
        EXPECT_TRUE(same_bits(got, expected));
      }
    }
  }
}

}  // namespace winnow::tests
