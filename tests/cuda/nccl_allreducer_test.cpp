// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// An AllReducer whose messages go over NCCL: buckets in device memory, and in that of the host.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>
#include <winnow/nccl.hpp>
#include <winnow/winnow.hpp>

#include "compress/compressor.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/place_memory.hpp"
#include "tests/cuda/device.hpp"
#include "tests/cuda/nccl_ranks.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

const std::vector<Parameter> kParameters = {{1, 5000}, {2, 300, 1}, {3, 2000}};
constexpr int kSteps = 3;

class AllReducerOverNccl : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_nccl_ranks(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

struct Case {
  const char* compressor;
  double density;
  std::uint64_t max_part = Options::kMaxPart;
};

/// Steps of a bucket against the reference, bit for bit.
void expect_equals_reference(const std::shared_ptr<Transport>& transport, const Case& c,
                             const Exec& place) {
  AllReducer reducer(transport,
                     {.compressor = c.compressor,
                      .schedule = "gather",
                      .min_bytes = 0,
                      .exempt_1d = false,
                      .max_part = c.max_part},
                     place);
  Reference reference(
      transport->size(), kParameters,
      {.density = c.density, .value = compress::make_compressor(c.compressor)->codings().value});
  std::vector<kernels::PlaceArray<float>> memory;
  std::vector<Segment> segments;
  for (const Parameter& p : kParameters) {
    memory.emplace_back(place, p.count);
    segments.push_back({.elements = memory.back().span(), .id = p.id, .dimensions = p.dimensions});
  }
  for (int step = 0; step < kSteps; ++step) {
    const auto all = all_gradients(kParameters, Kind::heavy_tailed, transport->size(), step);
    const auto& gradients = all[static_cast<std::size_t>(transport->rank())];
    for (std::size_t p = 0; p < kParameters.size(); ++p) {
      kernels::copy(place, memory[p].span(), std::span<const float>(gradients[p]));
    }
    kernels::wait(place);
    reducer.all_reduce(segments);
    const auto expected = reference.step(all);
    for (std::size_t p = 0; p < kParameters.size(); ++p) {
      std::vector<float> result(kParameters[p].count), residual(kParameters[p].count);
      kernels::read(place, std::as_writable_bytes(std::span(result)),
                    std::as_bytes(memory[p].span()));
      kernels::read(place, std::as_writable_bytes(std::span(residual)),
                    std::as_bytes(reducer.residual(kParameters[p].id)));
      EXPECT_TRUE(same_bits(result, expected[p])) << "step " << step << " parameter " << p;
      EXPECT_TRUE(same_bits(residual, reference.residual(transport->rank(), p)));
    }
  }
  EXPECT_EQ(reducer.last().schedule, "gather");
}

TEST_F(AllReducerOverNccl, EqualsReference) {
  for (const int ranks : {2, 3}) {
    std::string folder = testing::TempDir() + "winnow_nccl_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    run_nccl_ranks(ranks, [&](int rank) {
      const Stream stream;
      const std::shared_ptr<Transport> transport =
          nccl_transport({.path = folder + "/id", .job = 7, .rank = rank, .size = ranks},
                         Deadline::after(std::chrono::seconds(60)));
      expect_equals_reference(transport, {"topk:0.01", 0.01}, stream.exec());
      expect_equals_reference(transport, {"topk:1", 1, 2048}, stream.exec());  // in parts
      expect_equals_reference(transport, {"int8", 1}, stream.exec());
      expect_equals_reference(transport, {"topk:0.05,int4", 0.05}, stream.exec());
      expect_equals_reference(transport, {"topk:0.05,int4", 0.05}, {});  // by host messages
    });
    EXPECT_EQ(::rmdir(folder.c_str()), 0);
  }
}

/// NCCL's own allreduce, and tensors that lie apart.
TEST_F(AllReducerOverNccl, DenseIsNcclsOwn) {
  std::string folder = testing::TempDir() + "winnow_nccl_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    const std::shared_ptr<Transport> transport =
        nccl_transport({.path = folder + "/id", .job = 7, .rank = rank, .size = 2},
                       Deadline::after(std::chrono::seconds(60)));
    AllReducer reducer(transport, {.compressor = "none", .op = ReduceOp::sum}, place);
    kernels::PlaceArray<float> first(place, 1000), second(place, 500);
    kernels::fill(place, first.span(), static_cast<float>(rank + 1));
    kernels::fill(place, second.span(), static_cast<float>(rank + 2));
    const Segment segments[] = {{.elements = first.span(), .id = 1},
                                {.elements = second.span(), .id = 2}};
    reducer.all_reduce(segments);
    EXPECT_EQ(reducer.last().schedule, "dense");
    std::vector<float> here(1000);
    kernels::read(place, std::as_writable_bytes(std::span(here)), std::as_bytes(first.span()));
    EXPECT_EQ(here, std::vector<float>(1000, 3));
    here.resize(500);
    kernels::read(place, std::as_writable_bytes(std::span(here)), std::as_bytes(second.span()));
    EXPECT_EQ(here, std::vector<float>(500, 5));
  });
  EXPECT_EQ(::rmdir(folder.c_str()), 0);
}

}  // namespace
}  // namespace winnow::tests
