// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Several reducers over one meeting of ranks.
#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include <winnow/conformance/transport.hpp>
#include <winnow/mixed.hpp>
#include <winnow/winnow.hpp>

#include "tests/harness/nodes_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/ranks_world.hpp"
#include "tests/harness/usage_error.hpp"

namespace winnow::tests {
namespace {

const bool kRegistered =
    conformance::register_checks("Duplicates", conformance::kDuplicates, ranks_world());

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

/// Steps of a model whose gradient is `rank + step + share` at every `stride`-th position and zero
/// elsewhere: what topk:0.1 keeps of it if stride is 10.
void train(const std::shared_ptr<Transport>& transport, const Options& options, std::size_t stride,
           float share) {
  AllReducer reducer(transport, options);
  const int ranks = transport->size();
  std::vector<float> gradient(5000);
  for (int step = 0; step < 20; ++step) {
    const int total = ranks * (ranks - 1) / 2 + ranks * step;
    std::vector<float> sum(gradient.size());
    gradient.assign(gradient.size(), 0);
    for (std::size_t i = 0; i < gradient.size(); i += stride) {
      gradient[i] = static_cast<float>(transport->rank() + step) + share;
      sum[i] = static_cast<float>(total) + static_cast<float>(ranks) * share;
    }
    reducer.all_reduce(gradient, 0);
    EXPECT_EQ(gradient, sum) << "step " << step << " of " << options.compressor;
  }
}

const Options kSparse{
    .compressor = "topk:0.1", .schedule = "gather", .op = ReduceOp::sum, .min_bytes = 0};
const Options kDense{.compressor = "none", .op = ReduceOp::sum};

TEST(TwoReducers, WorkAtOnce) {
  conformance::for_each_size(ranks_world(), [](conformance::Rank& rank) {
    const std::shared_ptr<Transport> one = rank.transport().duplicate(soon());
    const std::shared_ptr<Transport> other = rank.transport().duplicate(soon());
    if (!one->allows_threads()) {
      train(one, kSparse, 10, 0.5F);
      train(other, kDense, 1, 0.25F);
      return;
    }
    std::exception_ptr error;
    std::thread beside([&] {
      try {
        train(one, kSparse, 10, 0.5F);
      } catch (const std::exception& thrown) {
        error = std::current_exception();
        one->abort(thrown.what());
      }
    });
    try {
      train(other, kDense, 1, 0.25F);
    } catch (const std::exception& thrown) {
      other->abort(thrown.what());
      beside.join();
      throw;
    }
    beside.join();
    if (error) std::rethrow_exception(error);
  });
}

TEST(TwoReducers, OneGoesOnWhenTheOtherIsAborted) {
  conformance::for_each_size(ranks_world(), [](conformance::Rank& rank) {
    const std::shared_ptr<Transport> one = rank.transport().duplicate(soon());
    const std::shared_ptr<Transport> other = rank.transport().duplicate(soon());
    AllReducer failing(one, kDense);
    conformance::exchange_all(rank, {10});  // all have made theirs
    if (rank.rank() == 0) one->abort("a model is done for");
    std::vector<float> gradient(100, 1.0F);
    if (rank.size() > 1) {
      EXPECT_THROW(failing.all_reduce(gradient, 0), CommError);
    }
    train(other, kSparse, 10, 0.5F);
    train(rank.transport().duplicate(soon()), kDense, 1, 0.25F);
  });
}

// Collectives of a transport and the calls of its reducer come one after another, as on every rank,
// though the calls were only begun: the thread that runs them, and this one, move no messages at
// once.
TEST(TwoReducers, ADuplicateIsMadeBesideCallsInFlight) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      const auto size = static_cast<float>(transport->size());
      AllReducer reducer(transport, kSparse);
      for (int step = 0; step < 3; ++step) {
        std::vector<std::vector<float>> gradients(8, std::vector<float>(20000));
        std::vector<float> sum(20000);
        for (std::size_t i = 0; i < sum.size(); i += 10) sum[i] = size;
        std::vector<Work> works;
        for (std::size_t id = 0; id < gradients.size(); ++id) {
          for (std::size_t i = 0; i < sum.size(); i += 10) gradients[id][i] = 1;
          works.push_back(reducer.all_reduce_async(gradients[id], id));
        }
        const std::shared_ptr<Transport> other = transport->duplicate(soon());
        EXPECT_EQ(gradients.back(), sum);
        EXPECT_EQ(discover(*transport, soon()).ranks(), transport->size());
        train(other, kDense, 1, 0.25F);
        for (Work& work : works) work.wait();
        for (const auto& gradient : gradients) EXPECT_EQ(gradient, sum);
      }
      // A callback stands between two calls, and where, ranks do not agree on.
      std::vector<float> gradient(100, 1.0F);
      std::string text;
      Work work = reducer.all_reduce_async(gradient, 100);
      work.on_complete([&](const std::exception_ptr&) {
        text = usage_error([&] { (void)transport->duplicate(soon()); });
      });
      reducer.synchronize();
      EXPECT_NE(text.find("callback"), std::string::npos) << text;
      work.wait();
    });
  }
}

template <class Make>
void expect_a_duplicate_is_named(const Make& make) {
  const std::string text = usage_error(make);
  EXPECT_NE(text.find("Transport::duplicate"), std::string::npos) << text;
}

// Their messages would be taken for each other: sums would be wrong, and nobody would know.
TEST(TwoReducers, OnOneTransportAreRefused) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      std::vector<int> all;
      for (int rank = 0; rank < transport->size(); ++rank) all.push_back(rank);
      const std::shared_ptr<Transport> subset = transport->subset(all);
      const std::shared_ptr<Transport> of_subset = subset->subset(all);
      {
        AllReducer first(transport, kDense);
        std::vector<float> gradient(1000, 1.0F), other(1000, 1.0F);
        Work work = first.all_reduce_async(gradient, 0);
        for (const auto& taken : {transport, subset, of_subset}) {
          expect_a_duplicate_is_named([&] { AllReducer(taken, kDense); });
          expect_a_duplicate_is_named([&] { AllReducer(taken, kSparse); });
        }
        work.wait();
        first.all_reduce(other, 1);
        const std::vector<float> sum(1000, static_cast<float>(transport->size()));
        EXPECT_EQ(gradient, sum);
        EXPECT_EQ(other, sum);
        // Who moves it keeps it.
        AllReducer moved = std::move(first);
        expect_a_duplicate_is_named([&] { AllReducer(transport, kDense); });
      }
      train(transport, kSparse, 10, 0.5F);
      {
        const AllReducer first(of_subset, kDense);
        expect_a_duplicate_is_named([&] { AllReducer(transport, kDense); });
        expect_a_duplicate_is_named([&] { AllReducer(subset, kDense); });
      }
      train(subset, kDense, 1, 0.25F);
      // One that is refused for another reason takes nothing.
      EXPECT_THROW(AllReducer(transport, {.compressor = "topq"}), UsageError);
      train(transport, kDense, 1, 0.5F);
    });
  }
}

TEST(TwoReducers, AreRefusedByWhatAMixedTransportIsMadeOf) {
  constexpr int kRanks = 4;
  auto world_of = local_transports(kRanks);
  std::vector<std::unique_ptr<Transport>> node_of;
  for (int node = 0; node < 2; ++node) {
    for (auto& rank : local_transports(2)) node_of.push_back(std::move(rank));
  }
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto world = std::make_shared<NodesTransport>(std::move(world_of[rank]), 2);
      const std::shared_ptr<Transport> node = std::move(node_of[rank]);
      {
        const auto mixed = mixed_transport(world, node, soon());
        for (const std::shared_ptr<Transport>& taken : {std::shared_ptr<Transport>(world), node}) {
          expect_a_duplicate_is_named([&] { AllReducer(taken, kDense); });
        }
        expect_a_duplicate_is_named([&] { (void)mixed_transport(world, node, soon()); });
        train(mixed, kSparse, 10, 0.5F);
      }
      {
        const AllReducer first(world, kDense);
        expect_a_duplicate_is_named([&] { (void)mixed_transport(world, node, soon()); });
      }
      train(mixed_transport(world, node, soon()), kDense, 1, 0.25F);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Duplicates, AreRefusedByWhatLiesOverAnother) {
  conformance::for_each_size(ranks_world(), [](conformance::Rank& rank) {
    const auto subset = rank.transport().subset(std::vector{rank.rank()});
    EXPECT_THROW((void)subset->duplicate(soon()), UsageError);
    conformance::exchange_all(rank, {10});
  });
}

}  // namespace
}  // namespace winnow::tests
