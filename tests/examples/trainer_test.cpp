// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

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

TEST(Sgd, RateFallsAlongACosine) {
  EXPECT_EQ(cosine_rate(0.1f, 0.05f, 0, 1001), 0.1f);
  EXPECT_NEAR(cosine_rate(0.1f, 0.05f, 500, 1001), 0.0525, 1e-8);
  EXPECT_NEAR(cosine_rate(0.1f, 0.05f, 1000, 1001), 0.005, 1e-9);
  EXPECT_EQ(cosine_rate(0.1f, 0.05f, 0, 1), 0.1f);
}

}  // namespace
}  // namespace train
