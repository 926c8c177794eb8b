// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Law 7: a message that loses its end on the way is noticed, whatever it carries.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/kept.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

/// Cuts the last word off the message that it sends as number `victim`.
class CuttingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void send(std::span<const std::byte> message, int peer) override {
    const bool cut = victim >= 0 && sent_++ == victim && message.size() >= sizeof(float);
    has_cut |= cut;
    ForwardingTransport::send(cut ? message.first(message.size() - sizeof(float)) : message, peer);
  }

  int victim = -1;
  bool has_cut = false;

 private:
  int sent_ = 0;
};

struct Case {
  const char* name;
  const char* options;
};

class Damage : public testing::TestWithParam<Case> {};

// Each message of rank 0 in turn. Whoever notices aborts, so rank 0 learns of it in the same call
// or in the next.
TEST_P(Damage, AMessageCutShortIsAnError) {
  const Options options =
      Options::parse(std::string(GetParam().options) + " min_bytes=0 deadline=60");
  const std::vector<Parameter> parameters = {{1, 3000}, {2, 700}};
  constexpr int kMessages = 24;  // more than rank 0 sends in a call
  int cuts = 0, worlds = 0;      // of rank 0, if it runs in this process
  for (int victim = 0; victim < kMessages; ++victim) {
    Kept<TestBucket> buckets;
    run_worlds(options.schedule, [&](const std::shared_ptr<Transport>& world) {
      if (world->size() == 1) return;
      const auto transport = std::make_shared<CuttingTransport>(world);
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
      if (!transport->has_cut) return;
      EXPECT_TRUE(failed) << "message " << victim << " of " << world->size() << " ranks";
      ++cuts;
    });
  }
  EXPECT_TRUE(worlds == 0 || cuts > 0);
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
