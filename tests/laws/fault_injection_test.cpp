// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Law 5 under every fault: whichever allocation or transport operation of a rank's first or second
// call fails, all ranks learn of it at once, and nothing is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "kernels/half.hpp"
#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/thread_allocations.hpp"
#include "tests/laws/kept.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

enum class End { sums, usage_error, comm_error, other };

struct Outcome {
  End end = End::sums;
  std::string text;
};

Outcome outcome_of(AllReducer& reducer, TestBucket& bucket) {
  try {
    reducer.all_reduce(bucket.segments());
    return {};
  } catch (const UsageError& error) {
    return {End::usage_error, error.what()};
  } catch (const CommError& error) {
    return {End::comm_error, error.what()};
  } catch (const std::exception& error) {
    return {End::other, error.what()};
  }
}

/// Throws at operation number `victim` from when it is armed.
class FaultyTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void send(std::span<const std::byte> message, int peer) override {
    count();
    ForwardingTransport::send(message, peer);
  }
  void recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) override {
    count();
    ForwardingTransport::recv(buffer, peer, message_bytes);
  }
  Ticket start(const Exec& exec) override {
    count();
    return ForwardingTransport::start(exec);
  }
  void wait(Ticket ticket, Deadline deadline) override {
    count();
    ForwardingTransport::wait(ticket, deadline);
  }

  bool armed = false, has_failed = false;
  std::uint64_t victim = 0;

 private:
  void count() {
    if (!armed || victim-- != 0) return;
    armed = false;
    has_failed = true;
    throw CommError("the wire was cut");
  }
};

enum class Fault { allocation, operation };
const char* name_of(Fault fault) {
  return fault == Fault::allocation ? "allocation" : "operation";
}

struct Case {
  const char* name;
  const char* options;
};

class FaultInjection : public testing::TestWithParam<Case> {
 protected:
  using Values = std::vector<std::vector<float>>;
  static constexpr int kRanks = 3;
  static inline const std::vector<Parameter> kParameters = {{1, 3000}, {2, 300, 1}, {3, 500}};

  /// What a rank has lost, or what is wrong with its error; or empty.
  static std::string wrong(const Outcome& outcome, const Values& gradient, const Values& bucket,
                           const Values& before, const Values& after) {
    if (outcome.text.find("deadline") != std::string::npos) return "waited: " + outcome.text;
    if (outcome.end == End::other) return "neither UsageError nor CommError: " + outcome.text;
    if (outcome.end == End::usage_error && (bucket != gradient || before != after))
      return "touched something: " + outcome.text;
    for (std::size_t p = 0; outcome.end == End::comm_error && p < gradient.size(); ++p) {
      if (bucket[p] != std::vector<float>(bucket[p].size())) return "not zero: " + outcome.text;
      if (after[p].size() != gradient[p].size()) return "no residual: " + outcome.text;
      for (std::size_t i = 0; i < gradient[p].size(); ++i) {
        const float held = before[p].empty() ? 0.0F : before[p][i];
        if (std::abs(after[p][i] - (gradient[p][i] + held)) > 1e-6F) return "lost: " + outcome.text;
      }
    }
    return "";
  }

  /// Lets allocation or operation `n` of call `call` fail on rank 0. Returns whether there was one.
  static bool fail_at(Fault fault, std::uint64_t n, int call) {
    const Options options =
        Options::parse(std::string(GetParam().options) + " min_bytes=0 deadline=20");
    Kept<TestBucket> buckets;
    bool has_failed = false;
    std::array<Outcome, kRanks> outcomes;
    run_ranks(kRanks, [&](const std::shared_ptr<Transport>& world) {
      const int rank = world->rank();
      const auto transport = std::make_shared<FaultyTransport>(world);
      AllReducer reducer(transport, options);
      TestBucket& bucket = buckets.make(kParameters);
      for (int before = 0; before < call; ++before) {
        bucket.fill(Kind::normal, rank, before);
        reducer.all_reduce(bucket.segments());
      }
      const Values before = residuals(reducer);
      bucket.fill(Kind::normal, rank, call);
      const Values gradient = bucket.values();
      tell_rank_0(*world);
      if (rank == 0) {
        transport->victim = n;
        transport->armed = fault == Fault::operation;
        if (fault == Fault::allocation) fail_allocation(n);
      }
      const Outcome outcome = outcome_of(reducer, bucket);
      if (rank == 0) has_failed = stop_failing() || transport->has_failed;
      outcomes[static_cast<std::size_t>(rank)] = outcome;
      EXPECT_EQ(wrong(outcome, gradient, bucket.values(), before, residuals(reducer)), "")
          << "rank " << rank << ", " << name_of(fault) << " " << n << " of call " << call;
    });
    const auto refused = std::ranges::count(outcomes, End::usage_error, &Outcome::end);
    EXPECT_TRUE(refused == 0 || refused == kRanks)
        << name_of(fault) << " " << n << " of call " << call;
    return has_failed;
  }

  static Values residuals(const AllReducer& reducer) {
    Values all;
    for (const Parameter& parameter : kParameters) {
      const auto residual = reducer.residual(parameter.id);
      all.emplace_back(residual.begin(), residual.end());
    }
    return all;
  }
};

TEST_P(FaultInjection, LosesNothingAndLeavesNobodyWaiting) {
  for (const Fault fault : {Fault::allocation, Fault::operation}) {
    for (const int call : {0, 1}) {
      int n = 0;
      while (fail_at(fault, static_cast<std::uint64_t>(n), call)) ++n;
      std::printf("%s: each %s of call %d has failed, %d in all\n", GetParam().name, name_of(fault),
                  call, n);
      RecordProperty(name_of(fault) + std::string("s_of_call_") + std::to_string(call), n);
      if (fault == Fault::operation || call == 0) {
        EXPECT_GT(n, 0);
      } else {
        EXPECT_EQ(n, 0);  // law 8
      }
    }
  }
}

// Buckets of 16 bits are widened into scratch before anything else.
TEST(FaultInjectionOfHalves, LosesNothingAndLeavesNobodyWaiting) {
  const float one = 1;
  std::uint16_t one_in_bits = 0;
  kernels::narrow({}, ElementType::bf16, {&one, 1}, {&one_in_bits, 1});
  Kept<std::vector<std::uint16_t>> buckets;
  std::uint64_t n = 0;
  for (bool more = true; more; ++n) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& world) {
      AllReducer reducer(world, {.compressor = "topk:0.1",
                                 .schedule = "gather",
                                 .op = ReduceOp::sum,
                                 .min_bytes = 0,
                                 .deadline = 20});
      auto& bucket = buckets.make(40000, one_in_bits);
      const auto gradient = bucket;
      const Elements elements(bucket.data(), bucket.size(), ElementType::bf16);
      tell_rank_0(*world);
      if (world->rank() == 0) fail_allocation(n);
      try {
        reducer.all_reduce(elements, 1);
      } catch (const UsageError&) {
        EXPECT_EQ(bucket, gradient) << n;
      } catch (const CommError& error) {
        EXPECT_EQ(std::string(error.what()).find("deadline"), std::string::npos) << error.what();
        EXPECT_EQ(bucket, std::vector<std::uint16_t>(bucket.size())) << n;
        const auto residual = reducer.residual(1);
        EXPECT_EQ(std::vector<float>(residual.begin(), residual.end()),
                  std::vector<float>(bucket.size(), 1.0F))
            << n;
      }
      if (world->rank() == 0) more = stop_failing();
    });
  }
  EXPECT_GT(n, 1U);  // the last one met no allocation
}

INSTANTIATE_TEST_SUITE_P(Laws, FaultInjection,
                         testing::Values(Case{"gather", "schedule=gather compressor=topk:0.02"},
                                         Case{"balanced", "schedule=balanced compressor=topk:0.02"},
                                         Case{"balanced_int8", "schedule=balanced compressor=int8"},
                                         Case{"doubling", "schedule=doubling compressor=topk:0.02"},
                                         Case{"shared", "schedule=shared compressor=topk:0.02"},
                                         Case{"gather_threshold",
                                              "schedule=gather compressor=threshold:1"},
                                         Case{"dense", "schedule=dense"}),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

}  // namespace
}  // namespace winnow::tests
