// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "examples/skeleton/fixedk.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>
#include <winnow/error.hpp>

#include "examples/skeleton/one_part.hpp"
#include "tests/harness/ranks.hpp"

namespace winnow::tests {
namespace {

/// Distinct magnitudes of both signs, in no order.
std::vector<float> shuffled(std::size_t count) {
  std::vector<float> gradient(count);
  for (std::size_t i = 0; i < count; ++i) {
    gradient[i] = static_cast<float>(i * 7919 % 4001) * (i % 2 == 0 ? 1.0F : -1.0F);
  }
  return gradient;
}

TEST(FixedK, SendsTheLargestAndKeepsTheRest) {
  const compress::Compressor compressor(compress::kFixedK.parse("64", {}), {});
  run_ranks(1, [&](const std::shared_ptr<Transport>& world) {
    if (world->size() > 1) return;  // under mpirun
    for (const std::size_t count : {1U, 63U, 64U, 65U, 3001U}) {
      SCOPED_TRACE(count);
      const std::vector<float> gradient = shuffled(count);
      std::vector<float> sizes;
      for (const float x : gradient) sizes.push_back(std::fabs(x));
      std::ranges::sort(sizes, std::greater());
      const float least = sizes[std::min<std::size_t>(64, count) - 1];
      const Ran ran = run_part(comm::kGather, *world, compressor, gradient);
      for (std::size_t i = 0; i < count; ++i) {
        const bool is_sent = std::fabs(gradient[i]) >= least;
        EXPECT_EQ(ran.sum[i], is_sent ? gradient[i] : 0) << i;
        EXPECT_EQ(ran.residual[i], is_sent ? 0 : gradient[i]) << i;
      }
    }
  });
}

TEST(FixedK, ReadsItsArgument) {
  EXPECT_EQ(compress::kFixedK.parse("64", {}).name, "fixedk:64");
  for (const char* wrong : {"", "0", "-1", "1.5", "64x"}) {
    EXPECT_THROW((void)compress::kFixedK.parse(wrong, {}), UsageError) << wrong;
  }
}

}  // namespace
}  // namespace winnow::tests
