// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace winnow::comm {

// What passes over memory read and write, in bytes: of models of time, not of results.
constexpr double kSelectPass = 16;    ///< an element: gradient and residual, both read and written
constexpr double kQuantizePass = 12;  ///< an element: the gradient is only read
constexpr double kReducePass = 12;    ///< an element: two read, one written
constexpr double kScattered = 128;    ///< an element far from the last: its cache line, there and
                                      ///< back
constexpr double kCoded = 16;         ///< an element of a list: index and value, as they are and
                                      ///< coded

/// Feedback, selection and encoding of k of `count` elements, or of all.
constexpr double encode_pass(std::uint64_t count, std::uint64_t k) {
  const auto n = static_cast<double>(count);
  return k == count ? kQuantizePass * n : kSelectPass * n + kCoded * static_cast<double>(k);
}

/// Decoding and adding of `messages` that carry k of `count` elements each, or all.
constexpr double add_pass(std::uint64_t count, std::uint64_t k, double messages) {
  const double each = k == count ? kReducePass : kScattered + kCoded;
  return messages * each * static_cast<double>(k);
}

}  // namespace winnow::comm
