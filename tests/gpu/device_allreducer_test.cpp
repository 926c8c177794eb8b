// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// An AllReducer whose buckets lie in device memory beside others with host buckets, its errors, and
// its calls in flight. The laws check its sums (see on_device in tests/meson.build).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <latch>
#include <limits>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/winnow.hpp>

#include "comm/transport/bridge/staged.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/device_buckets.hpp"
#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

using std::literals::operator""sv;
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
    const Exec no_stream{.place = wrong ? Place::cuda : Place::cpu};
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

/// Changes bits of the next messages that it sends.
class Corrupting final : public ForwardingTransport {
 public:
  Corrupting(std::shared_ptr<Transport> inner, const Exec& place, bool sizes_travel = true)
      : ForwardingTransport(std::move(inner)), place_(place), sizes_travel_(sizes_travel) {}
  bool sizes_travel() const override { return sizes_travel_; }
  void send(std::span<const std::byte> message, int peer) override {
    if (armed > 0) {
      --armed;
      kernels::read(place_, copies_.emplace_back(message.size()), message);
      copies_.back()[message.size() - 9] ^= std::byte{1};
      message = copies_.back();
    }
    ForwardingTransport::send(message, peer);
  }
  int armed = 0;  ///< messages

 private:
  Exec place_;
  bool sizes_travel_;
  std::vector<std::vector<std::byte>> copies_;  // the messages that travel
};

/// The device detects bits that changed on the way, and the host learns of it: within the call if
/// the schedule waits for the device, otherwise when it asks. The gradient is put back.
TEST_F(DeviceTest, ACorruptMessageIsNamed) {
  struct Case {
    const char *compressor, *schedule;
    bool waits = false;
  };
  for (const auto& [compressor, schedule, waits] :
       {Case{"topk:0.01", "gather"}, Case{"topk:0.01", "balanced"}, Case{"topk:0.01", "doubling"},
        Case{"threshold:1", "gather", true}, Case{"int8", "balanced"},
        Case{"randomk:0.01", "balanced"}, Case{"topk:0.01", "shared"},
        Case{"topk:0.01,int8", "shared"}}) {
    SCOPED_TRACE(testing::Message() << compressor << " by " << schedule);
    std::latch over(1);  // the call of rank 0, which must not hear of it by its peer's failure
    run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
      const Stream stream;
      const Exec place = stream.exec();
      const auto transport = std::make_shared<Corrupting>(inner, place);
      AllReducer reducer(transport,
                         {.compressor = compressor, .schedule = schedule, .min_bytes = 0}, place);
      kernels::PlaceArray<float> bucket(place, 3000);
      const auto gradient = make_gradient(Kind::normal, 3000, inner->rank(), 0, 1);
      bring(place, bucket.span(), gradient);
      reducer.all_reduce(bucket.span(), 1);
      const std::vector<float> before = on_host(place, reducer.residual(1));
      bring(place, bucket.span(), gradient);
      transport->armed = inner->rank() == 0 ? 100 : 0;
      std::string said;
      try {
        reducer.all_reduce(bucket.span(), 1);
        EXPECT_FALSE(waits && inner->rank() == 1);
        if (!waits && inner->rank() == 1) over.wait();
        reducer.synchronize();
      } catch (const CommError& error) {
        said = error.what();
      }
      const auto expect_put_back = [&] {
        const std::vector<float> after = on_host(place, reducer.residual(1));
        for (std::size_t i = 0; i < after.size(); ++i) {
          EXPECT_FLOAT_EQ(after[i], gradient[i] + before[i]);
        }
      };
      if (inner->rank() == 0) {
        over.count_down();
        if (schedule == "gather"sv || schedule == "doubling"sv) return;  // what it got is sound
        EXPECT_EQ(said, "");
        EXPECT_EQ(reducer.totals().poisoned, 1U);
        expect_put_back();
        return;
      }
      EXPECT_THAT(said, HasSubstr(waits ? "message from rank 0: its checksum"
                                        : "message from rank 0: the device found it damaged"));
      EXPECT_THAT([&] { reducer.all_reduce(bucket.span(), 1); },
                  ThrowsMessage<CommError>(HasSubstr("message from rank 0")));
      for (const float element : on_host(place, bucket.span())) {
        EXPECT_TRUE(waits ? element == 0 : std::isnan(element));
      }
      expect_put_back();
    });
  }
}

/// Sums of a rank that cannot read what it got carry poison: of three ranks by doubling, rank 0
/// adds what its guest sent and tells rank 2 and the guest, also where it first tells how long its
/// sum is.
class UnionsOnDevice : public DeviceTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Sizes, UnionsOnDevice, testing::Bool());

TEST_P(UnionsOnDevice, CarryPoisonAfterACorruptMessage) {
  std::latch over(2);  // the calls of those that hear of it by poison alone
  run_ranks(3, [&](const std::shared_ptr<Transport>& inner) {
    const Stream stream;
    const Exec place = stream.exec();
    const auto transport = std::make_shared<Corrupting>(inner, place, GetParam());
    AllReducer reducer(transport,
                       {.compressor = "topk:0.01", .schedule = "doubling", .min_bytes = 0}, place);
    kernels::PlaceArray<float> bucket(place, 3000);
    const auto gradient = make_gradient(Kind::normal, 3000, inner->rank(), 0, 1);
    bring(place, bucket.span(), gradient);
    reducer.all_reduce(bucket.span(), 1);
    reducer.synchronize();
    const std::vector<float> before = on_host(place, reducer.residual(1));
    bring(place, bucket.span(), gradient);
    transport->armed = inner->rank() == 1 ? 1 : 0;
    reducer.all_reduce(bucket.span(), 1);
    for (const float element : on_host(place, bucket.span())) EXPECT_TRUE(std::isnan(element));
    const std::vector<float> after = on_host(place, reducer.residual(1));
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_FLOAT_EQ(after[i], gradient[i] + before[i]);
    }
    if (inner->rank() == 0) {
      over.wait();
      EXPECT_THAT([&] { reducer.synchronize(); },
                  ThrowsMessage<CommError>(HasSubstr("message from rank 1: the device found it")));
    } else {
      reducer.synchronize();
      EXPECT_EQ(reducer.totals().poisoned, 1U);
      over.count_down();
    }
  });
}

/// The rank that got it says so by the sums of exempt parameters, so no rank keeps the bucket.
TEST_F(DeviceTest, ExemptParametersTellOfACorruptMessage) {
  std::latch over(1);  // the call of rank 0, which must not hear of it by its peer's end
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    const Stream stream;
    const Exec place = stream.exec();
    const auto transport = std::make_shared<Corrupting>(inner, place);
    AllReducer reducer(transport, {.compressor = "topk:0.01", .schedule = "gather", .min_bytes = 0},
                       place);
    kernels::PlaceArray<float> weights(place, 3000), bias(place, 100);
    const std::vector<Segment> segments{{.elements = weights.span(), .id = 1, .dimensions = 2},
                                        {.elements = bias.span(), .id = 2, .dimensions = 1}};
    const auto gradient = make_gradient(Kind::normal, 3000, inner->rank(), 0, 1);
    const auto call = [&] {
      bring(place, weights.span(), gradient);
      bring(place, bias.span(), std::span(gradient).first(100));
      reducer.all_reduce(segments);
    };
    call();
    reducer.synchronize();
    transport->armed = inner->rank() == 0 ? 1 : 0;
    try {
      call();
      if (inner->rank() == 0) reducer.synchronize();
    } catch (const CommError& error) {
      ADD_FAILURE() << error.what();
    }
    if (inner->rank() == 0) {
      over.count_down();
    } else {
      over.wait();
    }
    EXPECT_EQ(reducer.totals().poisoned, inner->rank() == 0 ? 1U : 0U);  // rank 1 has not asked
    for (const float element : on_host(place, bias.span())) EXPECT_TRUE(std::isnan(element));
    const std::vector<float> residual = on_host(place, reducer.residual(2));
    for (std::size_t i = 0; i < residual.size(); ++i) EXPECT_EQ(residual[i], gradient[i]);
  });
}

/// In `shared`, values have no header that could tell the device that they never came. An older
/// message lies where they should be.
TEST_F(DeviceTest, ValuesThatNeverComeAreMissed) {
  class Losing final : public ForwardingTransport {
   public:
    Losing(std::shared_ptr<Transport> inner, const Exec& place)
        : ForwardingTransport(std::move(inner)), place_(place) {}
    void recv(std::span<std::byte> buffer, int peer, std::uint64_t* bytes) override {
      if (--losing == 0) {
        auto& spare = spares_.emplace_back(place_, buffer.size() / sizeof(float));
        buffer = std::as_writable_bytes(spare.span());
      }
      ForwardingTransport::recv(buffer, peer, bytes);
    }
    int losing = 0;  ///< the receipt that loses its message, from 1 on; or none

   private:
    Exec place_;
    std::vector<kernels::PlaceArray<float>> spares_;  // where what is lost arrives
  };
  for (const int round : {2, 3}) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
      const Stream stream;
      const Exec place = stream.exec();
      const auto transport = std::make_shared<Losing>(inner, place);
      AllReducer reducer(transport,
                         {.compressor = "topk:0.01", .schedule = "shared", .min_bytes = 0}, place);
      kernels::PlaceArray<float> bucket(place, 3000);
      const auto gradient = make_gradient(Kind::normal, 3000, inner->rank(), 0, 1);
      const auto call = [&] {
        bring(place, bucket.span(), gradient);
        reducer.all_reduce(bucket.span(), 1);
        reducer.synchronize();
      };
      for (int whole = 0; whole < 2; ++whole) call();
      const std::vector<float> before = on_host(place, reducer.residual(1));
      if (inner->rank() == 1) transport->losing = round;
      call();
      const bool hears = inner->rank() == 1 || round == 2;  // sums of missing values travel
      EXPECT_EQ(reducer.totals().poisoned, hears ? 1U : 0U);
      if (!hears) return;
      for (const float element : on_host(place, bucket.span())) EXPECT_TRUE(std::isnan(element));
      const std::vector<float> after = on_host(place, reducer.residual(1));
      for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i], gradient[i] + before[i]);
    });
  }
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
