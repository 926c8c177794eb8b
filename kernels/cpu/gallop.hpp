// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace winnow::kernels::cpu {

/// The first place in [from, end) that is not `before`, or `end`: all places before it are, all
/// behind are not. Asks of twice as many places as it passes over have digits, so that a walk over
/// a list in short strides costs no search of the whole. (Bentley and Yao, 1976.)
template <class Before>
std::size_t gallop(std::size_t from, std::size_t end, const Before& before) {
  std::size_t step = 1;
  while (step <= end - from && before(from + step - 1)) {
    from += step;
    step *= 2;
  }
  std::size_t to = from + std::min(step - 1, end - from);
  while (from < to) {
    const std::size_t middle = from + (to - from) / 2;
    if (before(middle)) {
      from = middle + 1;
    } else {
      to = middle;
    }
  }
  return from;
}

}  // namespace winnow::kernels::cpu
