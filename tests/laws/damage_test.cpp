// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Messages that are damaged on the way are noticed: those that lose their end, whatever they carry,
// every flipped bit, of those with a header and, with checksum=all, of all, and those that reach
// another owner than theirs.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/kept.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

enum class Fault { cut, flipped, misdirected };

/// Damages the message that it sends as number `victim`: cuts its last word off, flips a bit, or
/// exchanges it with the next, which another rank is to get.
class DamagingTransport final : public ForwardingTransport {
 public:
  DamagingTransport(std::shared_ptr<Transport> inner, Fault fault)
      : ForwardingTransport(std::move(inner)), fault_(fault) {}
  void send(std::span<const std::byte> message, int peer) override {
    if (held_) {
      const auto [held, held_peer] = *held_;
      held_.reset();
      const bool exchanges = held_peer != peer && !std::ranges::equal(held, message);
      has_damaged |= exchanges;
      ForwardingTransport::send(exchanges ? message : held, held_peer);
      ForwardingTransport::send(exchanges ? held : message, peer);
      return;
    }
    if (victim < 0 || sent_++ != victim || message.size() < sizeof(float)) {
      ForwardingTransport::send(message, peer);
      return;
    }
    if (fault_ == Fault::misdirected) {
      held_ = {message, peer};
      return;
    }
    has_damaged = true;
    if (fault_ == Fault::cut) {
      ForwardingTransport::send(message.first(message.size() - sizeof(float)), peer);
      return;
    }
    auto& damaged = copies_.make(message.begin(), message.end());
    damaged[message.size() / 2] ^= std::byte{1};
    ForwardingTransport::send(damaged, peer);
  }

  Ticket start(const Exec& exec) override {
    if (held_) {  // there was no next one in its round
      ForwardingTransport::send(held_->first, held_->second);
      held_.reset();
    }
    return ForwardingTransport::start(exec);
  }

  int victim = -1;
  bool has_damaged = false;

 private:
  Fault fault_;
  int sent_ = 0;
  std::optional<std::pair<std::span<const std::byte>, int>> held_;
  Kept<std::vector<std::byte>> copies_;
};

struct Case {
  const char* name;
  const char* options;
};

class Damage : public testing::TestWithParam<Case> {};

/// Damages each message of rank 0 in turn. Whoever notices aborts, so rank 0 learns of it in the
/// same call or in the next.
void damage(const Options& options, Fault fault) {
  std::vector<Parameter> parameters = {{1, 3000}, {2, 700}};
  if (fault == Fault::misdirected) parameters = {{1, 3072}, {2, 1024}};  // owners are alike
  constexpr int kMessages = 16;  // as many as rank 0 of four sends in a call, and more
  int found = 0, worlds = 0;     // of rank 0, if it runs in this process
  for (int victim = 0; victim < kMessages; ++victim) {
    Kept<TestBucket> buckets;
    Kept<std::shared_ptr<DamagingTransport>> transports;  // peers may read their copies
    run_worlds(options.schedule, [&](const std::shared_ptr<Transport>& world) {
      if (world->size() == 1 || world->size() > 4) return;
      const auto transport = transports.make(std::make_shared<DamagingTransport>(world, fault));
      Reducer reducer(transport, options);
      TestBucket& bucket = buckets.make(parameters);
      bucket.fill(Kind::normal, world->rank(), 0);
      reducer.all_reduce(bucket.segments());
      bucket.fill(Kind::normal, world->rank(), 1);
      tell_rank_0(*world);
      if (world->rank() == 0) {
        transport->victim = victim;
        ++worlds;
      }
      bool failed = false;
      for (int call = 0; call < 2 && !failed; ++call) {
        try {
          reducer.all_reduce(bucket.segments());
        } catch (const Error&) {
          failed = true;
        }
        transport->victim = -1;
      }
      if (!transport->has_damaged) return;
      EXPECT_TRUE(failed) << "message " << victim << " of " << world->size() << " ranks";
      ++found;
    });
  }
  EXPECT_TRUE(worlds == 0 || found > 0);
}

Options options_of(const Case& test) {
  return Options::parse(std::string(test.options) + " min_bytes=0 deadline=60");
}

TEST_P(Damage, AMessageCutShortIsAnError) {
  damage(options_of(GetParam()), Fault::cut);
}

TEST_P(Damage, AFlippedBitIsAnErrorWhereEveryByteIsChecked) {
  Options options = options_of(GetParam());
  options.checksum = Checksum::all;
  damage(options, Fault::flipped);
}

TEST(DamageOfWhatIsCompressed, AFlippedBitIsAnError) {
  for (const char* schedule : {"gather", "balanced", "doubling"}) {
    SCOPED_TRACE(schedule);
    damage({.compressor = "topk:0.01", .schedule = schedule, .min_bytes = 0, .deadline = 60},
           Fault::flipped);
  }
}

// Owners expect as many of as many positions, so nothing but the owner in the header tells.
TEST(DamageOfContributions, AnotherOwnersIsAnError) {
  for (const char* options :
       {"schedule=balanced compressor=topk:0.01", "schedule=balanced compressor=randomk:0.25",
        "schedule=balanced compressor=int8", "schedule=shared compressor=topk:0.0625,int8"}) {
    SCOPED_TRACE(options);
    damage(Options::parse(std::string(options) + " min_bytes=0 deadline=60"), Fault::misdirected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Laws, Damage,
    testing::Values(Case{"gather", "schedule=gather compressor=topk:0.01"},
                    Case{"gather_threshold", "schedule=gather compressor=threshold:1"},
                    Case{"balanced", "schedule=balanced compressor=topk:0.01"},
                    Case{"balanced_int8", "schedule=balanced compressor=int8"},
                    Case{"doubling", "schedule=doubling compressor=topk:0.01"},
                    Case{"shared", "schedule=shared compressor=topk:0.01"},
                    Case{"shared_int8", "schedule=shared compressor=topk:0.01,int8"},
                    Case{"two_level_gather", "schedule=two_level:gather compressor=topk:0.01"},
                    Case{"two_level_doubling", "schedule=two_level:doubling compressor=topk:0.01"},
                    Case{"two_level_shared", "schedule=two_level:shared compressor=topk:0.01"},
                    Case{"dense", "schedule=dense"}),
    [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

}  // namespace
}  // namespace winnow::tests
