// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// An AllReducer whose buckets lie in device memory beside others with host buckets, its errors, and
// its calls in flight. The laws check its sums (see on_device in tests/meson.build).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/winnow.hpp>

#include "comm/transport/bridge/staged.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/device_buckets.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Odd ranks have device memory, even ones host memory: equal bits on all of them, and equal
/// messages on the wire.
TEST_F(DeviceTest, RanksOfEitherMemoryAgree) {
  constexpr std::size_t kCount = 5000;
  using Plan = std::pair<const char*, const char*>;
  for (const auto& [compressor, schedule] :
       {Plan{"topk:0.01", "gather"}, Plan{"topk:0.05,int8:stochastic,bitmap", "gather"},
        Plan{"int4", "gather"}, Plan{"topk:0.01", "balanced"},
        Plan{"topk:0.05,int8:stochastic,bitmap", "balanced"}, Plan{"int4", "balanced"},
        Plan{"topk:0.05,int8", "doubling"}, Plan{"topk:0.3", "doubling"},
        Plan{"topk:0.05,mean", "gather"}, Plan{"blocktopk:64/1024,mean", "doubling"},
        Plan{"topk:0.05", "shared"}, Plan{"topk:0.05,int4", "shared"},
        Plan{"threshold:3", "gather"}, Plan{"threshold:0.5,int4:stochastic", "gather"},
        Plan{"threshold:3,bitmap", "doubling"}, Plan{"threshold", "doubling"},
        Plan{"threshold:5,raw32", "balanced"}, Plan{"threshold:0.5,int8:stochastic", "balanced"}}) {
    for (const std::uint64_t max_part : {0U, 1000U}) {
      const Options options{
          .compressor = compressor, .schedule = schedule, .min_bytes = 0, .max_part = max_part};
      run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
        const Stream stream;
        const bool on_device = transport->rank() % 2 == 1;
        const Exec place = on_device ? stream.exec() : Exec();
        AllReducer reducer(transport, options, place);
        kernels::PlaceArray<float> bucket(place, kCount);
        std::vector<float> all(kCount * 4);
        for (int step = 0; step < 3; ++step) {
          const auto gradient =
              make_gradient(Kind::heavy_tailed, kCount, transport->rank(), step, 7);
          bring(place, bucket.span(), gradient);
          reducer.all_reduce(bucket.span(), 7);
          const std::vector<float> result = on_host(place, bucket.span());
          Workspace workspace;
          transport->all_gather({.workspace = &workspace}, std::as_bytes(std::span(result)),
                                std::as_writable_bytes(std::span(all)), Deadline::never());
          for (std::size_t rank = 0; rank < 4; ++rank) {
            EXPECT_TRUE(same_bits(result, std::span(all).subspan(rank * kCount, kCount)));
          }
        }
        EXPECT_EQ(reducer.last().schedule, options.schedule);
      });
    }
  }
}

/// So do they if a part has several parameters, which share kernels on a device.
TEST_F(DeviceTest, RanksOfEitherMemoryAgreeOnParameters) {
  constexpr std::size_t kSizes[] = {900, 64, 5000, 1, 130};
  constexpr std::size_t kCount = 900 + 64 + 5000 + 1 + 130;
  using Plan = std::pair<const char*, const char*>;
  for (const auto& [compressor, schedule] :
       {Plan{"topk:0.01", "gather"}, Plan{"topk:0.05", "balanced"},
        Plan{"topk:0.05,int4", "shared"}, Plan{"blocktopk:3/64", "balanced"},
        Plan{"threshold:3", "balanced"}}) {
    SCOPED_TRACE(testing::Message() << compressor << ' ' << schedule);
    const Options options{.compressor = compressor, .schedule = schedule, .min_bytes = 0};
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      const Stream stream;
      const Exec place = transport->rank() % 2 == 1 ? stream.exec() : Exec();
      AllReducer reducer(transport, options, place);
      kernels::PlaceArray<float> bucket(place, kCount);
      std::vector<Segment> segments;
      std::size_t end = 0;
      for (const std::size_t size : kSizes) {
        Segment& segment = segments.emplace_back();
        segment.elements = bucket.span().subspan(end, size);
        segment.id = segments.size();
        end += size;
      }
      std::vector<float> all(kCount * 3);
      for (int step = 0; step < 4; ++step) {
        bring(place, bucket.span(),
              make_gradient(Kind::heavy_tailed, kCount, transport->rank(), step, 7));
        reducer.all_reduce(segments);
        const std::vector<float> result = on_host(place, bucket.span());
        Workspace workspace;
        transport->all_gather({.workspace = &workspace}, std::as_bytes(std::span(result)),
                              std::as_writable_bytes(std::span(all)), Deadline::never());
        for (std::size_t rank = 0; rank < 3; ++rank) {
          EXPECT_TRUE(same_bits(result, std::span(all).subspan(rank * kCount, kCount)));
        }
      }
    });
  }
}

/// Elements of other types, other operations and tensors apart in memory travel dense.
TEST_F(DeviceTest, WhatIsNoGradientTravelsDense) {
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(transport, {.compressor = "topk:0.01"}, place);
    const int rank = transport->rank();
    kernels::PlaceArray<float> first(place, 100), second(place, 50);
    bring(place, first.span(), std::vector<float>(100, static_cast<float>(rank)));
    bring(place, second.span(), std::vector<float>(50, static_cast<float>(-rank)));
    const Segment segments[] = {{.elements = first.span(), .id = 1},
                                {.elements = second.span(), .id = 2}};
    reducer.all_reduce(segments, ReduceOp::maximum);
    EXPECT_EQ(on_host(place, first.span()), std::vector<float>(100, 2));
    EXPECT_EQ(on_host(place, second.span()), std::vector<float>(50, 0));
    reducer.all_reduce(segments, ReduceOp::average);  // below min_bytes
    EXPECT_EQ(on_host(place, first.span()), std::vector<float>(100, 2));
    EXPECT_EQ(reducer.last().schedule, "dense");
  });
}

/// The call runs in stream order, out of place, on the AllReducer's thread.
TEST_F(DeviceTest, CallsInFlightFollowTheStream) {
  constexpr std::size_t kCount = 3000;
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(
        transport,
        {.compressor = "topk:1", .schedule = "gather", .op = ReduceOp::sum, .min_bytes = 0}, place);
    kernels::PlaceArray<float> in(place, kCount), out(place, kCount), after(place, kCount);
    kernels::fill(place, in.span(), static_cast<float>(transport->rank() + 1));
    Work work = reducer.all_reduce_async(std::as_const(in).span(), out.span(), 1);
    work.wait();
    kernels::copy(place, after.span(), out.span());
    EXPECT_EQ(on_host(place, after.span()), std::vector<float>(kCount, 6));
    EXPECT_EQ(on_host(place, in.span()),
              std::vector<float>(kCount, static_cast<float>(transport->rank() + 1)));
  });
}

/// The gradients go from one of which the threshold keeps nothing to one that it keeps whole, and
/// back. So messages have any size, and only the first call allocates. The host waits for sizes
/// that nobody knows in advance.
TEST_F(DeviceTest, AThresholdKeepsNothingAndAll) {
  constexpr std::size_t kCount = 200'000;
  struct Plan {
    const char* compressor;
    const char* schedule;
    int ranks;
    bool keeps = true;  // whether the threshold keeps anything of these gradients
  };
  for (const auto& [compressor, schedule, ranks, keeps_any] :
       {Plan{"threshold", "gather", 1}, Plan{"threshold", "gather", 3},
        Plan{"threshold", "doubling", 3}, Plan{"threshold", "balanced", 3},
        Plan{"threshold:0.5,bf16", "gather", 2}, Plan{"threshold:0.5,bf16", "balanced", 2},
        Plan{"threshold:3.4e38", "gather", 2, false},
        Plan{"threshold:3.4028235e38", "balanced", 2, false}}) {
    const bool keeps = keeps_any;
    SCOPED_TRACE(testing::Message() << compressor << " " << schedule);
    const Options options{
        .compressor = compressor, .schedule = schedule, .op = ReduceOp::sum, .min_bytes = 0};
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const Stream stream;
      const Exec place = stream.exec();
      AllReducer reducer(transport, options, place);
      kernels::PlaceArray<float> bucket(place, kCount);
      float carried = 0;
      const auto step = [&](float value) {
        kernels::fill(place, bucket.span(), value);
        reducer.all_reduce(bucket.span(), 1);
        reducer.synchronize();
        if (!keeps) carried += value;
        const float sum = keeps ? value * static_cast<float>(transport->size()) : 0;
        const std::vector<float> result = on_host(place, bucket.span());
        const std::vector<float> residual = on_host(place, reducer.residual(1));
        for (std::size_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(result[i], sum) << "element " << i;
          ASSERT_EQ(residual[i], carried) << "element " << i;
        }
      };
      step(0);
      EXPECT_EQ(reducer.last().kept, 0U);
      step(0);
      for (const float value : {1.0F, 0.0F, 3.0F}) {
        step(value);
        EXPECT_EQ(reducer.last().allocations, 0U);
      }
      EXPECT_EQ(reducer.last().kept > 0, keeps);
    });
  }
}

/// The ring serves if a deadline is set and the native collective has none.
TEST_F(DeviceTest, TheRingRunsOnDeviceMemory) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const Stream stream;
      Workspace workspace, scratch(kernels::memory_of(Place::cuda));
      Exec place = stream.exec();
      place.workspace = &workspace;
      place.device_workspace = &scratch;
      const auto staged = comm::staged(*transport);
      kernels::PlaceArray<float> bucket(place, 1001);
      kernels::fill(place, bucket.span(), static_cast<float>(transport->rank() + 1));
      staged->Transport::all_reduce(place, bucket.span(), ReduceOp::sum, Deadline::never());
      const float sum = static_cast<float>(ranks * (ranks + 1)) / 2;
      EXPECT_EQ(on_host(place, bucket.span()), std::vector<float>(1001, sum));
    });
  }
}

template <class Call>
void expect_refusal(const Call& call, const char* why) {
  EXPECT_THAT(call, ThrowsMessage<UsageError>(HasSubstr(why)));
}

/// Every rank gets the error, even if only one rank is wrong.
TEST_F(DeviceTest, WhatItCannotDoIsSaidOnEveryRank) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const Stream stream;
    expect_refusal(
        [&] {
          AllReducer reducer(transport,
                             {.compressor = "threshold", .schedule = "shared", .min_bytes = 0},
                             stream.exec());
          kernels::PlaceArray<float> bucket(stream.exec(), 10'000);
          reducer.all_reduce(bucket.span(), 1);
        },
        "needs to know how many elements travel");
    const bool wrong = transport->rank() == 1;
    const Exec no_stream{.place = wrong ? Place::cuda : Place::host};
    expect_refusal([&] { AllReducer(transport, {}, no_stream); },
                   wrong ? "in the order of a stream" : "rank 1");
    Workspace workspace;
    const Exec own_workspace{.workspace = wrong ? &workspace : nullptr};
    expect_refusal([&] { AllReducer(transport, {}, own_workspace); },
                   wrong ? "workspaces of its own" : "rank 1");

    AllReducer reducer(transport, {.compressor = "topk:0.01", .schedule = "gather", .min_bytes = 0},
                       stream.exec());
    kernels::PlaceArray<float> bucket(stream.exec(), 1000);
    std::vector<float> here(1000);
    const std::span<float> given = wrong ? std::span(here) : bucket.span();
    expect_refusal([&] { reducer.all_reduce(given, 2, ReduceOp::maximum); },
                   wrong ? "parameter 2 does not lie in the memory" : "rank 1");
    expect_refusal([&] { reducer.look_ahead(3, here, bucket.span(), 1); }, "in the memory of this");
    expect_refusal([&] { reducer.look_ahead(3, bucket.span(), here, 1); }, "in the memory of this");
  });
}

/// A call is done when the device has done its work; another stream may wait instead of the host.
TEST_F(DeviceTest, AnotherStreamWaitsForACall) {
  constexpr std::size_t kCount = 3000;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const Stream stream, other;
    const Exec place = stream.exec();
    for (const char* schedule : {"gather", "balanced", "dense"}) {
      AllReducer reducer(
          transport,
          {.compressor = "topk:1", .schedule = schedule, .op = ReduceOp::sum, .min_bytes = 0},
          place);
      kernels::PlaceArray<float> bucket(place, kCount), copy(place, kCount);
      kernels::fill(place, bucket.span(), static_cast<float>(transport->rank() + 1));
      Work work = reducer.all_reduce_async(bucket.span(), 1);
      work.wait(other.get());
      kernels::copy(other.exec(), copy.span(), bucket.span());
      EXPECT_EQ(on_host(other.exec(), copy.span()), std::vector<float>(kCount, 3));
      work.wait();
      EXPECT_TRUE(work.test());
      work.wait(other.get());  // already done
      reducer.synchronize();
    }
  });
}

/// Callbacks of calls that return when they are enqueued run once the device has done them.
TEST_F(DeviceTest, CallbacksFollowTheDevice) {
  constexpr std::size_t kCount = 3000;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const Stream stream;
    const Exec place = stream.exec();
    for (const char* schedule : {"gather", "balanced", "dense"}) {
      AllReducer reducer(
          transport,
          {.compressor = "topk:1", .schedule = schedule, .op = ReduceOp::sum, .min_bytes = 0},
          place);
      kernels::PlaceArray<float> first(place, kCount), second(place, kCount);
      std::vector<int> order;
      for (int step = 0; step < 2; ++step) {
        for (kernels::PlaceArray<float>* bucket : {&first, &second}) {
          const int number = bucket == &first ? 1 : 2;
          kernels::fill(place, bucket->span(), 1);
          Work work = reducer.all_reduce_async(bucket->span(), static_cast<std::uint64_t>(number));
          work.on_complete([&, number](const std::exception_ptr& error) {
            EXPECT_EQ(error, nullptr);
            order.push_back(number);
          });
          work.detach();
        }
        reducer.synchronize();
        EXPECT_THAT(order, testing::ElementsAre(1, 2));
        order.clear();
        EXPECT_EQ(on_host(place, second.span()), std::vector<float>(kCount, 2));
      }
      Work work = reducer.all_reduce_async(first.span(), 1);
      work.wait();
      work.on_complete([&](const std::exception_ptr&) { order.push_back(3); });
      EXPECT_THAT(order, testing::ElementsAre(3));
    }
  });
}

/// The host learns of a poisoned call when it asks. A call for which it did not wait counts later.
TEST_F(DeviceTest, APoisonedCallIsHeardOf) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(transport, {.compressor = "topk:0.1", .schedule = "gather", .min_bytes = 0},
                       place);
    kernels::PlaceArray<float> first(place, 1000), second(place, 1000);
    if (transport->rank() == 1) {
      kernels::fill(place, second.span().subspan(7, 1), std::numeric_limits<float>::infinity());
    }
    reducer.all_reduce(first.span(), 1);
    reducer.all_reduce(second.span(), 2);
    reducer.synchronize();
    EXPECT_EQ(reducer.last().poisoned, 1U);
    EXPECT_EQ(reducer.totals().poisoned, 1U);
    EXPECT_EQ(reducer.bucket_stats()[0].totals.poisoned, 0U);
    EXPECT_EQ(reducer.bucket_stats()[1].totals.poisoned, 1U);
    EXPECT_EQ(on_host(place, first.span()), std::vector<float>(1000));
    for (const float element : on_host(place, second.span())) EXPECT_TRUE(std::isnan(element));
  });
}

}  // namespace
}  // namespace winnow::tests
