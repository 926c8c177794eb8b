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
#include <winnow/winnow.hpp>

#include "tests/harness/ranks.hpp"
#include "tests/harness/ranks_world.hpp"

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

TEST(Duplicates, AreRefusedByWhatLiesOverAnother) {
  conformance::for_each_size(ranks_world(), [](conformance::Rank& rank) {
    const auto subset = rank.transport().subset(std::vector{rank.rank()});
    EXPECT_THROW((void)subset->duplicate(soon()), UsageError);
    conformance::exchange_all(rank, {10});
  });
}

}  // namespace
}  // namespace winnow::tests
