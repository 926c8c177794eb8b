// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Residuals of device buckets that wait in pinned host memory.
#include <gtest/gtest.h>

#include <limits>
#include <vector>
#include <winnow/winnow.hpp>

#include "comm/transport/one_of_many.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

constexpr std::size_t kCount = 5000, kExempt = 300;
constexpr int kRanks = 4, kSteps = 5, kPoisoned = 2;

class ResidualMemoryOnDevice : public DeviceTest {};

std::vector<float> on_host(const Exec& exec, std::span<const float> there) {
  std::vector<float> here(there.size());
  kernels::read(exec, std::as_writable_bytes(std::span(here)), std::as_bytes(there));
  return here;
}

void bring(const Exec& exec, std::span<float> there, std::span<const float> here) {
  kernels::copy(exec, std::as_writable_bytes(there), std::as_bytes(here));
  kernels::wait(exec);
}

cudaMemoryType type_of(const void* memory) {
  cudaPointerAttributes found{};
  WINNOW_CUDA_TRY(cudaPointerGetAttributes(&found, memory));
  return found.type;
}

/// A rank's results, residuals and weights ahead, by step. One step is poisoned, so put-back
/// restores everything.
std::vector<std::vector<float>> run_steps(const std::shared_ptr<Transport>& transport,
                                          Options options, ResidualMemory memory) {
  options.residual_memory = memory;
  const Stream stream;
  const Exec place = stream.exec();
  AllReducer reducer(transport, options, place);
  kernels::PlaceArray<float> matrix(place, kCount), norm(place, kExempt);
  kernels::PlaceArray<float> weights(place, kCount), ahead(place, kCount);
  bring(place, weights.span(), make_gradient(Kind::normal, kCount, 0, 0, 3));
  const Segment segments[] = {{.elements = matrix.span(), .id = 1, .dimensions = 2},
                              {.elements = norm.span(), .id = 2, .dimensions = 1}};
  std::vector<std::vector<float>> seen;
  for (int step = 0; step < kSteps; ++step) {
    for (const Segment& segment : segments) {
      auto gradient = make_gradient(Kind::heavy_tailed, segment.elements.size(), transport->rank(),
                                    step, segment.id);
      if (step == kPoisoned && transport->rank() == 1) {
        gradient[17] = std::numeric_limits<float>::infinity();
      }
      bring(place, segment.elements.floats(), gradient);
    }
    reducer.all_reduce(segments);
    reducer.synchronize();
    EXPECT_EQ(reducer.last().poisoned, step == kPoisoned ? 1U : 0U);
    if (step > 0 && step != kPoisoned) {  // in these an exempt gradient may get its residual
      EXPECT_EQ(reducer.last().allocations, 0U) << "step " << step;
    }
    for (const Segment& segment : segments) {
      const std::span<const float> residual = reducer.residual(segment.id);
      if (!residual.empty()) {
        EXPECT_EQ(type_of(residual.data()), memory == ResidualMemory::pinned_host
                                                ? cudaMemoryTypeHost
                                                : cudaMemoryTypeDevice);
      }
      seen.push_back(on_host(place, segment.elements.floats()));
      seen.push_back(on_host(place, residual));
    }
    reducer.look_ahead(1, weights.span(), ahead.span(), 0.5F);
    seen.push_back(on_host(place, ahead.span()));
  }
  EXPECT_EQ(reducer.residual(1).size(), kCount);
  return seen;
}

/// The bits equal those of residuals in device memory, even if only some ranks ask for pinned
/// memory.
TEST_F(ResidualMemoryOnDevice, PinnedResidualsHaveTheSameBits) {
  using Plan = std::pair<const char*, const char*>;
  for (const auto& [compressor, schedule] :
       {Plan{"topk:0.05", "gather"}, Plan{"topk:0.05,int4:stochastic,bitmap", "gather"},
        Plan{"int8", "gather"}, Plan{"topk:0.05,int8", "balanced"}, Plan{"int4", "balanced"},
        Plan{"topk:0.05", "doubling"}, Plan{"topk:0.05,int8", "shared"},
        Plan{"topk:0.05", "two_level:balanced"}}) {
    SCOPED_TRACE(std::string(compressor) + " " + schedule);
    const Options options{.compressor = compressor, .schedule = schedule, .min_bytes = 0};
    std::vector<std::vector<std::vector<float>>> expected(kRanks);
    run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
      expected[static_cast<std::size_t>(transport->rank())] =
          run_steps(transport, options, ResidualMemory::device);
    });
    run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
      const bool pinned = transport->rank() != 2;
      const auto seen = run_steps(transport, options,
                                  pinned ? ResidualMemory::pinned_host : ResidualMemory::device);
      const auto& mine = expected[static_cast<std::size_t>(transport->rank())];
      for (std::size_t i = 0; i < seen.size(); ++i) {
        EXPECT_TRUE(same_bits(seen[i], mine[i])) << "rank " << transport->rank() << ", " << i;
      }
    });
  }
}

/// A graph's kernels reach pinned residuals, too: those of a call, and of a look ahead.
TEST_F(ResidualMemoryOnDevice, AGraphReplaysACall) {
  const Stream stream;
  const Exec place = stream.exec();
  Options options{.compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0};
  AllReducer plain(std::make_shared<comm::OneOfManyTransport>(), options, place);
  options.residual_memory = ResidualMemory::pinned_host;
  AllReducer captured(std::make_shared<comm::OneOfManyTransport>(), options, place);
  kernels::PlaceArray<float> here(place, kCount), there(place, kCount);
  kernels::PlaceArray<float> weights(place, kCount), ahead(place, kCount),
      device_ahead(place, kCount);
  bring(place, weights.span(), make_gradient(Kind::normal, kCount, 0, 0, 3));
  const auto step = [&](int number, const auto& call) {
    const auto gradient = make_gradient(Kind::heavy_tailed, kCount, 0, number, 7);
    bring(place, here.span(), gradient);
    bring(place, there.span(), gradient);
    plain.all_reduce(here.span(), 7);
    plain.look_ahead(7, weights.span(), ahead.span(), 0.5F);
    call();
    EXPECT_TRUE(same_bits(on_host(place, there.span()), on_host(place, here.span())));
    EXPECT_TRUE(same_bits(on_host(place, device_ahead.span()), on_host(place, ahead.span())));
    const std::vector<float> expected = on_host(place, plain.residual(7));
    captured.synchronize();
    EXPECT_TRUE(same_bits(captured.residual(7), expected));  // the host reads them where they lie
  };
  const auto call = [&] {
    captured.all_reduce(there.span(), 7);
    captured.look_ahead(7, weights.span(), device_ahead.span(), 0.5F);
  };
  step(0, call);
  step(1, call);
  const Graph graph(stream, call);
  for (int number = 2; number < 5; ++number) step(number, [&] { graph.launch(stream); });
}

/// The option does not concern host buckets.
TEST_F(ResidualMemoryOnDevice, BucketsOfTheHostKeepTheirs) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    AllReducer reducer(transport, {.compressor = "topk:0.05",
                                   .schedule = "gather",
                                   .min_bytes = 0,
                                   .residual_memory = ResidualMemory::pinned_host});
    std::vector<float> bucket(kCount, 1);
    reducer.all_reduce(bucket, 7);
    EXPECT_EQ(type_of(reducer.residual(7).data()), cudaMemoryTypeUnregistered);
  });
}

}  // namespace
}  // namespace winnow::tests
