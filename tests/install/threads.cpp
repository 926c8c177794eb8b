// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// examples/minimal.cpp for a copy that was built without MPI: its ranks are threads.
#include <iostream>
#include <memory>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/winnow.hpp>

int main() {
  std::vector<std::thread> ranks;
  for (auto& transport : winnow::local_transports(2)) {
    ranks.emplace_back([mine = std::shared_ptr(std::move(transport))] {
      winnow::AllReducer reducer(mine, {.compressor = "topk:0.01"});
      std::vector<float> gradient(1 << 20, 1.0F);
      reducer.all_reduce(gradient, 0);
      if (mine->rank() == 0) {
        std::cout << reducer.last().schedule << ": " << reducer.last().wire_bytes
                  << " bytes sent instead of " << reducer.last().dense_wire_bytes << '\n';
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}
