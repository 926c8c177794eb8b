// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <span>

#include "train/exit.hpp"
#include "train/launch.hpp"
#include "train/sgd.hpp"

namespace train {
namespace {

const Recipe kRecipe{.shape = {.context = 4, .embedding = 8, .hidden = 32},
                     .batch = 8,
                     .steps = 40,
                     .seed = 3,
                     .held_out_windows = 300};

std::string repeating_text() {
  std::string text;
  while (text.size() < 8000) text += "the quick brown fox jumps over the lazy dog. ";
  return text;
}

/// One run over `ranks` threads for each of `compressors`, as rank 0 reports it.
std::vector<Run> runs_over_threads(int ranks, const std::vector<std::string>& compressors,
                                   const Recipe& recipe = kRecipe) {
  const Corpus corpus(repeating_text(), recipe.shape.context);
  std::vector<Run> runs;
  const int status = launch_threads(ranks, compressors.size(), [&](Links links) {
    Group group(std::move(links.group));
    Progress silent(Show::never, group.rank(), recipe.steps * compressors.size());
    for (std::size_t i = 0; i < compressors.size(); ++i) {
      winnow::Options options{.compressor = compressors[i], .schedule = "least_bytes"};
      options.min_bytes = 0;
      winnow::AllReducer reducer(links.reducers[i], options);
      const Run run = train(recipe, corpus, reducer, group, silent);
      if (group.rank() == 0) runs.push_back(run);
    }
  });
  EXPECT_EQ(status, 0);
  return runs;
}

/// The same training, written out: rank 0's parameters, with gradients taken at the weights minus
/// `share` times the residual.
std::vector<float> weights_by_hand(int ranks, const winnow::Options& options, float share) {
  const Corpus corpus(repeating_text(), kRecipe.shape.context);
  std::vector<float> result;
  launch_threads(ranks, 1, [&](Links links) {
    const int rank = links.place;
    winnow::AllReducer reducer(links.reducers[0], options);
    Model<float> model(kRecipe.shape, kRecipe.seed);
    const auto weights = model.parameters();
    std::vector<float> kept(weights.begin(), weights.end()), velocity(weights.size());
    std::vector<std::uint64_t> targets(kRecipe.batch);
    for (std::uint64_t step = 0; step < kRecipe.steps; ++step) {
      std::vector<winnow::Segment> bucket;
      std::ranges::copy(kept, weights.begin());
      for (const Tensor& tensor : model.tensors()) {
        const std::span<const float> residual = reducer.residual(tensor.begin);
        for (std::size_t i = 0; i < residual.size(); ++i) {
          weights[tensor.begin + i] -= share * residual[i];
        }
        bucket.push_back({.elements = model.gradients().subspan(tensor.begin, tensor.count),
                          .id = tensor.begin,
                          .dimensions = tensor.dimensions});
      }
      corpus.sample(kRecipe.seed, step, rank, targets);
      model.loss_and_gradients({corpus.bytes(), targets});
      const Schedule rates{kRecipe.rate, kRecipe.last_rate_share, 0, kRecipe.steps};
      for (float& gradient : model.gradients()) gradient *= rates.rate(step);
      reducer.all_reduce(bucket);
      for (std::size_t i = 0; i < kept.size(); ++i) {
        velocity[i] = kRecipe.momentum * velocity[i] + model.gradients()[i];
        kept[i] -= velocity[i];
      }
    }
    if (rank == 0) result = kept;
  });
  return result;
}

bool same_losses(const Run& a, const Run& b) {
  return std::ranges::equal(a.curve, b.curve, [](const Point& x, const Point& y) {
    return x.step == y.step && x.training_loss == y.training_loss &&
           x.held_out_loss == y.held_out_loss;
  });
}

TEST(Trainer, LearnsAndEveryRunStartsAfresh) {
  const auto runs = runs_over_threads(3, {"none", "none", "topk:0.1"});
  ASSERT_EQ(runs.size(), 3u);
  for (const auto& run : runs) {
    EXPECT_EQ(run.curve.size(), 20u);
    EXPECT_EQ(run.curve.back().step, kRecipe.steps);
    EXPECT_LT(run.curve.back().held_out_loss, run.curve.front().held_out_loss - 0.5);
    EXPECT_TRUE(std::ranges::is_sorted(run.curve, std::ranges::less_equal(), &Point::seconds));
  }
  EXPECT_TRUE(same_losses(runs[0], runs[1]));
  EXPECT_EQ(runs[0].parameters_hash, runs[1].parameters_hash);
  EXPECT_NE(runs[0].parameters_hash, runs[2].parameters_hash);
  EXPECT_LT(runs[2].wire_bytes_per_step, runs[0].wire_bytes_per_step);
}

TEST(Trainer, GivesTheSameBitsAgain) {
  const auto once = runs_over_threads(2, {"topk:0.1"}).at(0);
  const auto again = runs_over_threads(2, {"topk:0.1"}).at(0);
  EXPECT_TRUE(same_losses(once, again));
  EXPECT_EQ(once.parameters_hash, again.parameters_hash);
}

TEST(Trainer, LooksAheadByTheShareOfTheResidual) {
  const winnow::Options options{
      .compressor = "topk:0.1", .schedule = "least_bytes", .min_bytes = 0};
  Recipe recipe = kRecipe;
  for (const std::optional<float> share : {std::optional<float>(), {0.0F}, {0.75F}}) {
    recipe.look_ahead = share;
    const auto run = runs_over_threads(2, {"topk:0.1"}, recipe).at(0);
    const float expected = share.value_or(1 / (4 * (1 - kRecipe.momentum)));
    EXPECT_NEAR(run.look_ahead, expected, 1e-5);
    EXPECT_EQ(run.parameters_hash, hash_of(weights_by_hand(2, options, run.look_ahead)));
  }
  recipe.look_ahead = 0.75F;
  const auto dense = runs_over_threads(2, {"none"}, recipe).at(0);
  EXPECT_EQ(dense.look_ahead, 0);
  EXPECT_EQ(dense.parameters_hash, runs_over_threads(2, {"none"}).at(0).parameters_hash);
}

// With two ranks the order of adding does not matter, and top-k selects from each parameter
// separately: layer by layer gives the same bits as all at once.
TEST(Trainer, OverlapGivesTheSameBits) {
  Recipe overlapped = kRecipe;
  overlapped.overlap = true;
  const std::vector<std::string> compressors = {"none", "topk:0.1"};
  const auto blocking = runs_over_threads(2, compressors);
  const auto overlapping = runs_over_threads(2, compressors, overlapped);
  for (std::size_t i = 0; i < compressors.size(); ++i) {
    EXPECT_TRUE(same_losses(blocking[i], overlapping[i])) << compressors[i];
    EXPECT_EQ(blocking[i].parameters_hash, overlapping[i].parameters_hash);
  }
}

/// 300 windows over 1, 2, 3 and 7 ranks: every rank gets one number. Other shares only change the
/// order of sums in double, and of products in float, by the columns beside them.
TEST(Trainer, HeldOutLossIsTheSameOnEveryRankAndForEveryNumberOfRanks) {
  const Corpus corpus(repeating_text(), kRecipe.shape.context);
  const std::vector<std::uint64_t> targets = corpus.held_out(kRecipe.held_out_windows);
  Model<float> alone(kRecipe.shape, kRecipe.seed);
  const double expected = alone.loss({corpus.bytes(), targets}) / 300;
  for (const int ranks : {1, 2, 3, 7}) {
    std::vector<double> losses(static_cast<std::size_t>(ranks)), again = losses;
    launch_threads(ranks, 0, [&](Links links) {
      Group group(std::move(links.group));
      Model<float> model(kRecipe.shape, kRecipe.seed);
      const auto rank = static_cast<std::size_t>(group.rank());
      losses[rank] = held_out_loss(model, corpus, targets, group);
      again[rank] = held_out_loss(model, corpus, targets, group);
    });
    for (const double loss : losses) EXPECT_EQ(loss, losses.front()) << ranks << " ranks";
    EXPECT_EQ(losses, again);
    EXPECT_NEAR(losses.front(), expected, 1e-6 * expected) << ranks << " ranks";
  }
}

/// A reducer whose averages differ between ranks, since there are two jobs of one rank each.
TEST(Trainer, FailsOnEveryRankWhereParametersDiffer) {
  const Corpus corpus(repeating_text(), kRecipe.shape.context);
  std::vector<std::string> messages(2);
  const int status = launch_threads(2, 0, [&](Links links) {
    Group group(std::move(links.group));
    Progress silent(Show::never, group.rank(), kRecipe.steps);
    winnow::AllReducer reducer(std::shared_ptr(std::move(winnow::local_transports(1)[0])),
                               {.compressor = "none"});
    try {
      train(kRecipe, corpus, reducer, group, silent);
    } catch (const Exit& exit) {
      messages[static_cast<std::size_t>(group.rank())] = exit.what();
      EXPECT_EQ(exit.status(), kFailureStatus);
    }
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_TRUE(messages[0].starts_with("the ranks disagree: the parameters of rank 1 differ"))
      << messages[0];
}

TEST(Group, AFailureOfRank0EndsEveryRankWithItsStatus) {
  std::mutex mutex;
  std::vector<std::string> messages;
  launch_threads(3, 0, [&](Links links) {
    Group group(std::move(links.group));
    EXPECT_EQ(group.from_first_rank([&] { return std::to_string(group.rank()) + " says"; }),
              "0 says");
    EXPECT_EQ(group.from_first_rank([] { return std::string(); }), "");
    try {
      group.from_first_rank([]() -> std::string { throw Exit(kUsageStatus, "refused"); });
    } catch (const Exit& exit) {
      EXPECT_EQ(exit.status(), kUsageStatus);
      const std::lock_guard lock(mutex);
      messages.emplace_back(exit.what());
    }
  });
  EXPECT_EQ(messages, std::vector<std::string>(3, "refused"));
}

TEST(Sgd, FollowsItsFormula) {
  std::vector<float> parameters = {1, 2};
  Sgd sgd(0.5f);
  sgd.step(parameters, std::vector<float>{1, -2});
  EXPECT_EQ(parameters, (std::vector<float>{0, 4}));  // v = 1, -2
  sgd.step(parameters, std::vector<float>{1.5f, 0});
  EXPECT_EQ(parameters, (std::vector<float>{-2, 5}));  // v = 2, -1
}

TEST(Schedule, RateFallsAlongACosine) {
  const Schedule rates{.peak = 0.1f, .last_share = 0.05f, .warm_up = 0, .steps = 1001};
  EXPECT_EQ(rates.rate(0), 0.1f);
  EXPECT_NEAR(rates.rate(500), 0.0525, 1e-8);
  EXPECT_NEAR(rates.rate(1000), 0.005, 1e-9);
  EXPECT_EQ((Schedule{0.1f, 0.05f, 0, 1}.rate(0)), 0.1f);
}

TEST(Schedule, RateRisesBefore) {
  const Schedule rates{.peak = 0.8f, .last_share = 0, .warm_up = 4, .steps = 9};
  const std::vector<double> expected = {0.2, 0.4, 0.6, 0.8, 0.8, 0.8 * (2 + std::sqrt(2)) / 4, 0.4};
  for (std::size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(rates.rate(step), expected[step], 1e-7) << step;
  }
  EXPECT_NEAR(rates.rate(8), 0, 1e-7);
  EXPECT_EQ((Schedule{0.8f, 0, 4, 2}.rate(1)), 0.4f);  // a run that ends in it
  EXPECT_EQ((Schedule{0.8f, 0, 4, 5}.rate(4)), 0.8f);
}

}  // namespace
}  // namespace train
