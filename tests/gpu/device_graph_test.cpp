// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Calls of an AllReducer that a CUDA graph holds, and how many kernels they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string_view>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/winnow.hpp>

#include "comm/transport/one_of_many.hpp"
#include "kernels/exec/place_memory.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/device_buckets.hpp"
#include "tests/harness/graph.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// A graph holds one rank's call and replays it with other gradients, one of them poisoned. Replays
/// round and draw as calls do, and the calls after them go on from there. Each kernel takes
/// microseconds to start, whatever it does, so the test counts them, and the clears.
TEST_F(DeviceTest, AGraphReplaysACall) {
  constexpr std::size_t kCount = 3000;
  struct Case {
    const char* compressor;
    std::size_t kernels_of_call, clears = 2;
  };
  for (const auto& [compressor, kernels_of_call, clears] : {Case{"topk:0.05", 7},
                                                            {"topk:0.05,int4,bitmap", 9},
                                                            {"topk:0.05,int4:stochastic", 9},
                                                            {"randomk:0.05", 9, 3},
                                                            {"randomk:0.05,int8:stochastic", 11, 3},
                                                            {"int8", 6},
                                                            {"int8:stochastic", 6}}) {
    SCOPED_TRACE(compressor);
    const Options options{.compressor = compressor, .schedule = "gather", .min_bytes = 0};
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer plain(std::make_shared<comm::OneOfManyTransport>(), options, place);
    AllReducer captured(std::make_shared<comm::OneOfManyTransport>(), options, place);
    const AllReducer* reducer = &captured;
    kernels::PlaceArray<float> here(place, kCount), there(place, kCount);
    const auto step = [&](int number, const auto& call) {
      auto gradient = make_gradient(Kind::heavy_tailed, kCount, 0, number, 7);
      if (number == 4) gradient[17] = std::numeric_limits<float>::quiet_NaN();
      bring(place, here.span(), gradient);
      bring(place, there.span(), gradient);
      plain.all_reduce(here.span(), 7);
      call();
      EXPECT_TRUE(same_bits(on_host(place, there.span()), on_host(place, here.span())))
          << "step " << number;
      EXPECT_TRUE(
          same_bits(on_host(place, reducer->residual(7)), on_host(place, plain.residual(7))));
    };
    const auto call = [&] { captured.all_reduce(there.span(), 7); };
    step(0, call);
    step(1, call);
    const Graph graph(stream, call, cudaStreamCaptureModeGlobal);  // as PyTorch captures
    EXPECT_EQ(graph.count(cudaGraphNodeTypeKernel), kernels_of_call);
    EXPECT_EQ(graph.count(cudaGraphNodeTypeMemset), clears);
    EXPECT_EQ(graph.count(cudaGraphNodeTypeMemcpy), 0U);
    for (int number = 2; number < 7; ++number) step(number, [&] { graph.launch(stream); });
    step(7, call);
    step(8, [&] { graph.launch(stream); });
    AllReducer restored(std::make_shared<comm::OneOfManyTransport>(), options, place);
    restored.load(captured.save());  // which waits, and so has counted the replay
    EXPECT_EQ(captured.totals().poisoned, 1U);
    reducer = &restored;
    step(9, [&] { restored.all_reduce(there.span(), 7); });
  }
}

/// All parameters of a call share its kernels. With more than one, further kernels store the tables
/// that say where they are: as many as their length in units of 32,000 bytes demands. So do other
/// kernels that parameters need: where half of them are exempt, 8 bring those to one place, add
/// their residuals, tell of a spoiled call, judge the sums, put them back or write them, and mark
/// the residuals; their elements of 16 bits are widened, clipped and narrowed; of those of other
/// parameters what is too large is kept; inputs are copied; a rate applied where all is sent. The
/// two copies are the transport's.
TEST_F(DeviceTest, ParametersShareTheKernelsOfACall) {
  enum Kind { plain, half_exempt, bf16, bf16_half_exempt, out_of_place, rate };
  struct Case {
    const char* compressor;
    Kind kind;
    std::size_t parameters, kernels_of_call, clears = 2, copies = 0;
  };
  for (const auto& [compressor, kind, parameters, kernels_of_call, clears, copies] :
       {Case{"topk:0.05", plain, 1, 7},
        {"topk:0.05", plain, 2, 7 + 1 + 1},
        {"topk:0.05", plain, 60, 7 + 1 + 1},
        {"topk:0.05", plain, 1000, 7 + 2 + 10},
        {"topk:0.05", half_exempt, 2, 7 + 8, 2, 2},
        {"topk:0.05", half_exempt, 60, 9 + 8, 2, 2},
        {"topk:0.05", bf16, 60, 9 + 1},
        {"topk:0.05", bf16_half_exempt, 60, 9 + 1 + 8 + 3, 2, 2},
        {"topk:0.05", out_of_place, 60, 9 + 1},
        {"int8", rate, 60, 8 + 1},
        {"int8", bf16, 60, 8 + 1},
        {"none", bf16, 60, 1 + 2, 0, 2}}) {
    SCOPED_TRACE(testing::Message() << compressor << ", kind " << kind << ", " << parameters);
    constexpr std::size_t kCount = 52;  // whole vectors, so that widened ones follow each other
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(std::make_shared<comm::OneOfManyTransport>(),
                       {.compressor = compressor,
                        .schedule = std::string_view(compressor) == "none" ? "dense" : "gather",
                        .min_bytes = 0},
                       place);
    kernels::PlaceArray<float> bucket(place, parameters * kCount), input(place, bucket.size());
    for (auto* each : {&bucket, &input}) {
      kernels::zero(place, std::as_writable_bytes(each->span()));
    }
    std::vector<Segment> segments(parameters);
    for (std::size_t p = 0; p < parameters; ++p) {
      const std::span<float> elements = bucket.span().subspan(p * kCount, kCount);
      segments[p].elements = elements;
      if (kind == bf16 || kind == bf16_half_exempt) {
        segments[p].elements = Elements(elements.data(), kCount, ElementType::bf16);
      }
      segments[p].id = p + 1;
      if (kind == half_exempt || kind == bf16_half_exempt) {
        segments[p].dimensions = p % 2 == 0 ? 1 : 2;
      }
      if (kind == out_of_place) {
        segments[p].input = std::span<const float>(input.span().subspan(p * kCount, kCount));
      }
      if (kind == rate) segments[p].rate = 0.5F;
    }
    const auto call = [&] { reducer.all_reduce(segments); };
    for (int first = 0; first < 2; ++first) call();
    const Graph graph(stream, call);
    EXPECT_EQ(graph.count(cudaGraphNodeTypeKernel), kernels_of_call);
    EXPECT_EQ(graph.count(cudaGraphNodeTypeMemset), clears);
    EXPECT_EQ(graph.count(cudaGraphNodeTypeMemcpy), copies);
  }
}

/// The AllReducer refuses a call that a graph cannot hold before it touches anything, and the
/// capture goes on.
TEST_F(DeviceTest, WhatNoGraphHoldsIsRefused) {
  const Stream stream;
  const Exec place = stream.exec();
  kernels::PlaceArray<float> bucket(place, 1000);
  const auto expect_refused = [&](const Options& options, const char* why, int calls = 1) {
    AllReducer reducer(std::make_shared<comm::OneOfManyTransport>(), options, place);
    for (int call = 0; call < calls; ++call) reducer.all_reduce(bucket.span(), 1);
    const Graph graph(stream, [&] {
      EXPECT_THAT([&] { reducer.all_reduce(bucket.span(), 1); },
                  ThrowsMessage<UsageError>(HasSubstr(why)));
    });
    reducer.all_reduce(bucket.span(), 1);
    reducer.synchronize();
  };
  expect_refused({.compressor = "topk:0.1", .schedule = "gather", .min_bytes = 0},
                 "make some before the capture", 0);
  expect_refused({.compressor = "topk:0.1", .schedule = "balanced", .min_bytes = 0},
                 "within the schedule balanced");
  expect_refused({.compressor = "topk:0.1", .schedule = "shared", .min_bytes = 0},
                 "the same rank would pick");
  expect_refused({.compressor = "threshold:1", .schedule = "gather", .min_bytes = 0},
                 "to read how many elements threshold:1 keeps");
  expect_refused({.compressor = "topk:0.1,mean", .schedule = "gather", .min_bytes = 0},
                 "elements of the same sign");
  expect_refused({.compressor = "topk:0.1", .schedule = "gather", .min_bytes = 0, .stats = 2},
                 "stats=2");
  expect_refused({.compressor = "topk:0.1",
                  .schedule = "gather",
                  .precondition = "second_moment:0.9",
                  .min_bytes = 0},
                 "the bias of second moments");
  expect_refused({.op = ReduceOp::maximum}, "only sums and averages of gradients");
  AllReducer reducer(std::make_shared<comm::OneOfManyTransport>(), {}, place);
  reducer.all_reduce(bucket.span(), 1);
  reducer.begin_step();
  const Graph graph(stream, [&] {
    EXPECT_THAT([&] { reducer.all_reduce(bucket.span(), 1); },
                ThrowsMessage<UsageError>(HasSubstr("may be discarded")));
  });
}

/// A parameter that travelled compressed in a larger bucket: what waits of it travels once.
TEST_F(DeviceTest, AGraphRefusesToRepeatAResidual) {
  const Stream stream;
  const Exec place = stream.exec();
  kernels::PlaceArray<float> first(place, 1000), second(place, 1000);
  const Segment both[] = {{.elements = first.span(), .id = 1},
                          {.elements = second.span(), .id = 2}};
  AllReducer reducer(std::make_shared<comm::OneOfManyTransport>(),
                     {.compressor = "topk:0.1",
                      .schedule = "gather",
                      .min_bytes = both[0].elements.bytes().size() + 1,
                      .exempt_1d = false},
                     place);
  const auto call = [&] { reducer.all_reduce(first.span(), 1); };
  kernels::fill(place, first.span(), 1);
  kernels::fill(place, second.span(), 1);
  call();
  reducer.all_reduce(both);
  {
    const Graph graph(stream, [&] {
      EXPECT_THAT(call, ThrowsMessage<UsageError>(HasSubstr("left in a residual")));
    });
  }
  call();
  reducer.synchronize();
  const Graph graph(stream, call);
  graph.launch(stream);
  reducer.synchronize();
}

}  // namespace
}  // namespace winnow::tests
