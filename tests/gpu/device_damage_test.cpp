// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Messages that come to a device damaged, or not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <latch>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/winnow.hpp>

#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/device_buckets.hpp"
#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/nodes_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

using std::literals::operator""sv;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Changes bits of the next messages that it sends.
class Corrupting final : public ForwardingTransport {
 public:
  Corrupting(std::shared_ptr<Transport> inner, const Exec& place, bool sizes_travel = true)
      : ForwardingTransport(std::move(inner)), place_(place), sizes_travel_(sizes_travel) {}
  bool sizes_travel() const override { return sizes_travel_; }
  void send(std::span<const std::byte> message, int peer) override {
    if (armed > 0 && sound-- <= 0) {
      --armed;
      kernels::read(place_, copies_.emplace_back(message.size()), message);
      copies_.back()[message.size() - 9] ^= std::byte{1};
      message = copies_.back();
    }
    ForwardingTransport::send(message, peer);
  }
  int armed = 0;  ///< messages
  int sound = 0;  ///< messages before them

 private:
  Exec place_;
  bool sizes_travel_;
  std::vector<std::vector<std::byte>> copies_;  // the messages that travel
};

/// The residual of bucket 1 holds what waited and the gradient that did not go through.
void expect_restored(const Exec& place, const AllReducer& reducer,
                     const std::vector<float>& gradient, const std::vector<float>& before) {
  const std::vector<float> after = on_host(place, reducer.residual(1));
  ASSERT_EQ(after.size(), gradient.size());
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_FLOAT_EQ(after[i], gradient[i] + before[i]);
}
void expect_nan(const Exec& place, std::span<const float> bucket) {
  for (const float element : on_host(place, bucket)) EXPECT_TRUE(std::isnan(element));
}

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
      if (inner->rank() == 0) {
        over.count_down();
        if (schedule == "gather"sv || schedule == "doubling"sv) return;  // what it got is sound
        EXPECT_EQ(said, "");
        EXPECT_EQ(reducer.totals().poisoned, 1U);
        expect_restored(place, reducer, gradient, before);
        return;
      }
      EXPECT_THAT(said, HasSubstr(waits ? "message from rank 0: its checksum"
                                        : "message from rank 0: the device found it damaged"));
      EXPECT_THAT([&] { reducer.all_reduce(bucket.span(), 1); },
                  ThrowsMessage<CommError>(HasSubstr("message from rank 0")));
      for (const float element : on_host(place, bucket.span())) {
        EXPECT_TRUE(waits ? element == 0 : std::isnan(element));
      }
      expect_restored(place, reducer, gradient, before);
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
    expect_nan(place, bucket.span());
    expect_restored(place, reducer, gradient, before);
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

/// In two levels the sum of all nodes is damaged on its way to the ranks of a node, which alone
/// refuse it.
TEST_P(UnionsOnDevice, ThatGoRoundANodeAreRefusedThere) {
  std::latch over(3);  // the calls of those that have the sum
  run_ranks(4, [&](const std::shared_ptr<Transport>& inner) {
    const Stream stream;
    const Exec place = stream.exec();
    const auto transport =
        std::make_shared<Corrupting>(std::make_shared<NodesTransport>(inner, 2), place, GetParam());
    AllReducer reducer(
        transport, {.compressor = "topk:0.01", .schedule = "two_level:doubling", .min_bytes = 0},
        place);
    kernels::PlaceArray<float> bucket(place, 3000);
    const auto gradient = make_gradient(Kind::normal, 3000, inner->rank(), 0, 1);
    bring(place, bucket.span(), gradient);
    reducer.all_reduce(bucket.span(), 1);
    reducer.synchronize();
    const std::vector<float> before = on_host(place, reducer.residual(1));
    bring(place, bucket.span(), gradient);
    transport->sound = 3;                 // a header, a gradient, its message to the other node
    if (!GetParam()) ++transport->sound;  // and how long the sum is
    transport->armed = inner->rank() == 0 ? 1 : 0;
    reducer.all_reduce(bucket.span(), 1);
    if (inner->rank() != 1) {
      reducer.synchronize();
      for (const float element : on_host(place, bucket.span())) EXPECT_TRUE(std::isfinite(element));
      over.count_down();
      return;
    }
    expect_nan(place, bucket.span());
    expect_restored(place, reducer, gradient, before);
    over.wait();
    EXPECT_THAT([&] { reducer.synchronize(); },
                ThrowsMessage<CommError>(HasSubstr("message from rank 0: the device found it")));
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
    expect_nan(place, bias.span());
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
      expect_nan(place, bucket.span());
      const std::vector<float> after = on_host(place, reducer.residual(1));
      for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i], gradient[i] + before[i]);
    });
  }
}

}  // namespace
}  // namespace winnow::tests
