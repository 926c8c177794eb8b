// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Law 5 under every fault: whichever allocation or transport operation fails when a rank makes its
// AllReducer, or in its first or second call, all ranks learn of it at once, and nothing is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <latch>
#include <memory>
#include <optional>
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

/// Of act(), whose thread's allocations may fail.
template <class Act>
Outcome outcome_of(const Act& act) {
  const auto end_of = [](End end, const std::exception& error) {
    (void)stop_failing();
    return Outcome{end, error.what()};
  };
  try {
    act();
    return {};
  } catch (const UsageError& error) {
    return end_of(End::usage_error, error);
  } catch (const CommError& error) {
    return end_of(End::comm_error, error);
  } catch (const std::exception& error) {
    return end_of(End::other, error);
  }
}

/// Throws at operation number `victim` from when it is armed.
class FaultyTransport final : public ForwardingTransport {
 public:
  FaultyTransport(std::shared_ptr<Transport> inner, int ranks_per_node)
      : ForwardingTransport(std::move(inner)), node_(rank() / ranks_per_node) {}
  int node() const override { return node_; }
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

  int node_;
};

/// One allocation fails, or all from one on, or an operation of the transport.
enum class Fault { allocation, memory, operation };
const char* name_of(Fault fault) {
  constexpr std::array kNames{"allocation", "allocation and its successors", "operation"};
  return kNames[static_cast<std::size_t>(fault)];
}

/// How a rank makes its calls.
enum class Way { blocking, in_flight };

struct Case {
  const char* name;
  const char* options;
  int ranks = 3, ranks_per_node = 3;
  Way way = Way::blocking;
};

/// Lets fault number `n` happen on this rank from now on.
void arm(FaultyTransport& transport, Fault fault, std::uint64_t n) {
  transport.victim = n;
  transport.armed = fault == Fault::operation;
  if (fault == Fault::operation) return;
  fail_allocation(n, fault == Fault::memory ? Failing::all : Failing::one);
}

class FaultInjection : public testing::TestWithParam<Case> {
 protected:
  using Values = std::vector<std::vector<float>>;
  static inline const std::vector<Parameter> kParameters = {{1, 3000}, {2, 300, 1}, {3, 500}};

  static void make_call(AllReducer& reducer, const TestBucket& bucket) {
    if (GetParam().way == Way::blocking) {
      reducer.all_reduce(bucket.segments());
    } else {
      reducer.all_reduce_async(bucket.segments()).wait();
    }
  }

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
    const auto ranks = static_cast<std::size_t>(GetParam().ranks);
    std::vector<Outcome> outcomes(ranks);
    run_ranks(GetParam().ranks, [&](const std::shared_ptr<Transport>& world) {
      const int rank = world->rank();
      const auto transport = std::make_shared<FaultyTransport>(world, GetParam().ranks_per_node);
      AllReducer reducer(transport, options);
      TestBucket& bucket = buckets.make(kParameters);
      for (int before = 0; before < call; ++before) {
        bucket.fill(Kind::normal, rank, before);
        make_call(reducer, bucket);
      }
      const Values before = residuals(reducer);
      bucket.fill(Kind::normal, rank, call);
      const Values gradient = bucket.values();
      tell_rank_0(*world);
      if (rank == 0) arm(*transport, fault, n);
      const Outcome outcome = outcome_of([&] { make_call(reducer, bucket); });
      if (rank == 0) has_failed = stop_failing() || transport->has_failed;
      outcomes[static_cast<std::size_t>(rank)] = outcome;
      EXPECT_EQ(wrong(outcome, gradient, bucket.values(), before, residuals(reducer)), "")
          << "rank " << rank << ", " << name_of(fault) << " " << n << " of call " << call;
    });
    const auto refused = std::ranges::count(outcomes, End::usage_error, &Outcome::end);
    EXPECT_TRUE(refused == 0 || refused == GetParam().ranks)
        << name_of(fault) << " " << n << " of call " << call;
    return has_failed;
  }

  /// Lets allocation or operation `n` fail while rank 0 makes its AllReducer; those who have one
  /// then call it. Returns whether there was one.
  static bool fail_in_construction(Fault fault, std::uint64_t n) {
    const Options options =
        Options::parse(std::string(GetParam().options) + " min_bytes=0 deadline=20");
    Kept<std::vector<float>> buckets;
    bool has_failed = false;
    run_ranks(GetParam().ranks, [&](const std::shared_ptr<Transport>& world) {
      const auto transport = std::make_shared<FaultyTransport>(world, GetParam().ranks_per_node);
      std::vector<float>& bucket = buckets.make(1000, 1.0F);
      tell_rank_0(*world);
      if (world->rank() == 0) arm(*transport, fault, n);
      std::optional<AllReducer> reducer;
      Outcome outcome = outcome_of([&] { reducer.emplace(transport, options); });
      if (world->rank() == 0) has_failed = stop_failing() || transport->has_failed;
      if (reducer) outcome = outcome_of([&] { reducer->all_reduce(bucket, 1); });
      // With no memory at all there is none for an error of Winnow's own, either.
      EXPECT_TRUE(outcome.end != End::other || (fault == Fault::memory && world->rank() == 0))
          << outcome.text;
      EXPECT_EQ(outcome.text.find("deadline"), std::string::npos)
          << "rank " << world->rank() << ", " << name_of(fault) << " " << n << ": " << outcome.text;
    });
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

TEST_P(FaultInjection, LeavesNobodyWaitingInConstruction) {
  for (const Fault fault : {Fault::allocation, Fault::memory, Fault::operation}) {
    int n = 0;
    while (fail_in_construction(fault, static_cast<std::uint64_t>(n))) ++n;
    std::printf("%s: each %s of a construction has failed, %d in all\n", GetParam().name,
                name_of(fault), n);
    EXPECT_GT(n, 0);
  }
}

TEST_P(FaultInjection, LosesNothingAndLeavesNobodyWaiting) {
  for (const Fault fault : {Fault::allocation, Fault::memory, Fault::operation}) {
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

void gather(Transport& world, std::size_t bytes, Deadline deadline) {
  const std::vector<std::byte> mine(bytes);
  std::vector<std::byte> all(bytes * static_cast<std::size_t>(world.size()));
  world.all_gather({}, mine, all, deadline);
}

// Their buffers may end with their caller, so a rank whose collective fails has aborted it for all.
TEST(FaultInjectionOfCollectives, LeavesNobodyWaitingNorReading) {
  using Collective = void (*)(Transport&, const Exec&, Deadline);
  constexpr std::array<Collective, 4> kCollectives{
      [](Transport& world, const Exec&, Deadline deadline) { gather(world, 8, deadline); },
      [](Transport& world, const Exec&, Deadline deadline) { gather(world, 10'000, deadline); },
      [](Transport& world, const Exec& exec, Deadline deadline) {
        std::vector<float> elements(1000);
        world.all_reduce(exec, elements, ReduceOp::sum, deadline);
      },
      [](Transport& world, const Exec& exec, Deadline deadline) {
        std::vector<float> elements(1000);
        world.reduce_scatter(exec, elements, deadline);
      }};
  for (const Collective& collective : kCollectives) {
    std::uint64_t n = 0;
    for (bool has_failed = true; has_failed; ++n) {
      has_failed = false;
      std::latch others(2);
      run_ranks(3, [&](const std::shared_ptr<Transport>& world) {
        FaultyTransport transport(world, 3);
        Workspace workspace;
        tell_rank_0(*world);
        if (world->rank() == 0) arm(transport, Fault::operation, n);
        const Outcome outcome = outcome_of([&] {
          collective(transport, {.workspace = &workspace},
                     Deadline::after(std::chrono::seconds(20)));
        });
        // Nobody has to learn of it from the end of this rank's transport.
        world->rank() == 0 ? others.wait() : others.count_down();
        if (world->rank() == 0) has_failed = transport.has_failed;
        EXPECT_TRUE(outcome.end == End::sums || outcome.end == End::comm_error) << outcome.text;
        EXPECT_EQ(outcome.text.find("deadline"), std::string::npos) << n << ": " << outcome.text;
      });
      if (HasFailure()) return;  // the rest would wait, too
    }
    EXPECT_GT(n, 3U);
  }
}

// Selected from as they are, or widened into scratch first.
class FaultInjectionOfHalvesBy : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Laws, FaultInjectionOfHalvesBy, testing::Values("topk:0.1", "int8"),
                         [](const auto& test) { return "case" + std::to_string(test.index); });

TEST_P(FaultInjectionOfHalvesBy, LosesNothingAndLeavesNobodyWaiting) {
  const float one = 1;
  std::uint16_t one_in_bits = 0;
  kernels::narrow({}, ElementType::bf16, {&one, 1}, {&one_in_bits, 1});
  Kept<std::vector<std::uint16_t>> buckets;
  std::uint64_t n = 0;
  for (bool more = true; more; ++n) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& world) {
      AllReducer reducer(world, {.compressor = GetParam(),
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

/// A rate in the second call has what int8 took as given before widened, for the first time.
TEST(FaultInjectionOfHalves, OfALaterCallLosesNothing) {
  Kept<std::vector<std::uint16_t>> buckets;
  run_ranks(2, [&](const std::shared_ptr<Transport>& world) {
    AllReducer reducer(world, {.compressor = "int8",
                               .schedule = "gather",
                               .op = ReduceOp::sum,
                               .min_bytes = 0,
                               .deadline = 20});
    constexpr std::uint16_t kOne = 0x3f80;  // of bf16
    auto& bucket = buckets.make(1 << 20, kOne);
    Segment segment{.elements = {bucket.data(), bucket.size(), ElementType::bf16}, .id = 1};
    reducer.all_reduce({&segment, 1});
    const auto sent = reducer.residual(1);
    const std::vector<float> before(sent.begin(), sent.end());
    std::ranges::fill(bucket, kOne);
    segment.rate = 0.5F;
    tell_rank_0(*world);
    if (world->rank() == 0) fail_allocation(0);
    EXPECT_THROW(reducer.all_reduce({&segment, 1}), CommError);
    if (world->rank() == 0) {
      EXPECT_TRUE(stop_failing());
    }
    EXPECT_EQ(bucket, std::vector<std::uint16_t>(bucket.size()));
    const auto residual = reducer.residual(1);
    ASSERT_EQ(residual.size(), bucket.size());
    for (std::size_t i = 0; i < residual.size(); ++i) {
      ASSERT_NEAR(residual[i], 0.5F + before[i], 1e-6F) << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Laws, FaultInjection,
    testing::Values(Case{"gather", "schedule=gather compressor=topk:0.02"},
                    Case{"balanced", "schedule=balanced compressor=topk:0.02"},
                    Case{"balanced_int8", "schedule=balanced compressor=int8"},
                    Case{"doubling", "schedule=doubling compressor=topk:0.02"},
                    Case{"shared", "schedule=shared compressor=topk:0.02"},
                    Case{"gather_threshold", "schedule=gather compressor=threshold:1"},
                    Case{"dense", "schedule=dense"},
                    Case{"in_flight", "schedule=gather compressor=topk:0.02", 2, 2, Way::in_flight},
                    Case{"two_level_balanced", "schedule=two_level:balanced compressor=topk:0.02",
                         4, 2}),
    [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

}  // namespace
}  // namespace winnow::tests
