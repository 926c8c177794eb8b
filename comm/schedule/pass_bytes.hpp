// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace winnow::comm {

// Bytes that passes over memory read and write: for models of time, not for results.
constexpr double kSelectPass = 16;    ///< per element: gradient and residual, both read and written
constexpr double kQuantizePass = 12;  ///< per element: the gradient is only read
constexpr double kReducePass = 12;    ///< per element: two read, one written
constexpr double kScattered = 128;  ///< per element far from the previous one: its cache line, read
                                    ///< and written
constexpr double kCoded = 16;       ///< per list element: index and value, plain and coded
// The work of a core for each parameter beside its elements, as bytes that it would pass in that
// time.
constexpr double kSelectParameter = 10e3;  ///< its bound, its candidates' cut and its list
constexpr double kChooseParameter = 15e3;  ///< likewise of the sums, by their owners

/// The additional cost of several parameters in one part over one parameter of as many elements.
constexpr double parameters_pass(std::uint64_t parameters, double each) {
  return each * static_cast<double>(parameters - 1);
}

/// Feedback, selection and encoding of k of `count` elements, or of all.
constexpr double encode_pass(std::uint64_t count, std::uint64_t k, std::uint64_t parameters) {
  const auto n = static_cast<double>(count);
  if (k == count) return kQuantizePass * n;
  return kSelectPass * n + kCoded * static_cast<double>(k) +
         parameters_pass(parameters, kSelectParameter);
}

/// Decoding and adding `messages` that carry k of `count` elements each, or all.
constexpr double add_pass(std::uint64_t count, std::uint64_t k, double messages) {
  const double each = k == count ? kReducePass : kScattered + kCoded;
  return messages * each * static_cast<double>(k);
}

}  // namespace winnow::comm
