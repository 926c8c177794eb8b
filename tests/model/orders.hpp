// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tests/model/machine.hpp"

namespace winnow::tests {

/// Orders in which to try a kernel: threads ascending, descending, and, with several blocks in
/// flight, `seeds` times in each random order.
inline std::vector<SimtOrder> simt_orders(std::uint32_t seeds = 1) {
  std::vector<SimtOrder> orders = {
      {.pick = SimtOrder::Pick::ascending},
      {.pick = SimtOrder::Pick::descending, .resident = 2},
  };
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    orders.push_back({.pick = SimtOrder::Pick::random, .seed = seed, .resident = 3});
    orders.push_back({.pick = SimtOrder::Pick::warps, .seed = seed, .resident = 3});
  }
  return orders;
}

}  // namespace winnow::tests
