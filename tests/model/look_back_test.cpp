// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/look_back.cuh"

#include <gtest/gtest.h>

#include <vector>

#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"

namespace winnow::tests {
namespace {

/// One tile that looks back over what others have published.
struct OneTile {
  std::uint64_t* tiles;
  std::uint32_t tile;
  std::uint64_t mine;
  std::uint64_t* before;

  struct Shared {
    kernels::cuda::TileTicket turn;
  };
  void run(Shared& shared) const {
    before[simt::thread()] = kernels::cuda::look_back(shared.turn, tiles, tile, mine);
  }
};

/// Tiles up to `known` have published the sum to their end; those behind it only their own, as when
/// many blocks are ahead of one that waits.
TEST(LookBack, AddsOwnSumsOfAsManyTilesAsThereAre) {
  for (const SimtOrder& order : simt_orders()) {
    Machine machine(order);
    for (const std::uint32_t tile : {0U, 1U, 32U, 33U, 65U, 256U, 257U, 600U}) {
      for (std::uint32_t known = 0; known < tile || known == 0; known += 37) {
        std::vector<std::uint64_t> tiles(tile + 1), before(simt::kThreads);
        std::uint64_t sum = 0;
        for (std::uint32_t t = 0; t < tile; ++t) {
          const std::uint64_t own = std::uint64_t{t + 1} << 20;
          sum += own;
          tiles[t] = t <= known ? kernels::cuda::kSumToEnd | sum : kernels::cuda::kOwnSum | own;
        }
        machine.launch<OneTile>(1, {tiles.data(), tile, 5, before.data()});
        EXPECT_EQ(before, std::vector<std::uint64_t>(simt::kThreads, sum))
            << "tile " << tile << ", known to " << known << ", " << order;
        EXPECT_EQ(tiles[tile], kernels::cuda::kSumToEnd | (sum + 5));
      }
    }
  }
}

}  // namespace
}  // namespace winnow::tests
