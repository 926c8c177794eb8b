// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "train/random.hpp"

namespace train {
namespace {

constexpr Shape kSmall{.context = 3, .embedding = 4, .hidden = 9, .symbols = 256};

std::vector<std::uint8_t> random_text(std::size_t count) {
  std::vector<std::uint8_t> text(count);
  for (std::size_t i = 0; i < count; ++i) text[i] = static_cast<std::uint8_t>(random_bits({7, i}));
  return text;
}

const std::vector<std::uint8_t> kText = random_text(200);
const std::vector<std::uint64_t> kTargets = {3, 17, 17, 60, 199};  // 3: the first with a context

/// For every parameter of a layer, and for embeddings that occur and that do not, the analytic
/// derivative equals the central difference. In double and with h = 1e-5 the difference errs by
/// about h^2 = 1e-10 (curvature) and 1e-16 / h = 1e-11 (rounding); with this seed no ReLU lies
/// within h of its kink.
TEST(Model, GradientIsTheDerivativeOfTheMeanLoss) {
  Model<double> model(kSmall, 5);
  const Windows windows{kText, kTargets};
  const auto mean_loss = [&] { return model.loss(windows) / static_cast<double>(kTargets.size()); };
  model.loss_and_gradients(windows);
  const std::vector<double> gradients(model.gradients().begin(), model.gradients().end());
  constexpr double h = 1e-5;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    double& parameter = model.parameters()[i];
    const double before = parameter;
    parameter = before + h;
    const double above = mean_loss();
    parameter = before - h;
    const double below = mean_loss();
    parameter = before;
    ASSERT_NEAR(gradients[i], (above - below) / (2 * h), 1e-8) << "parameter " << i;
  }
}

TEST(Model, LossAndGradientsReturnTheLoss) {
  Model<double> model(kSmall, 5);
  const Windows windows{kText, kTargets};
  EXPECT_EQ(model.loss_and_gradients(windows), model.loss(windows));
}

/// With all weights zero every byte has probability 1 / 256.
TEST(Model, LossOfAnUntaughtModelIsLog256) {
  Model<float> model(kSmall, 1);
  std::fill(model.parameters().begin(), model.parameters().end(), 0.0f);
  EXPECT_NEAR(model.loss({kText, kTargets}), std::log(256.0) * 5, 1e-5);
}

/// Scores of several hundred must not overflow the softmax.
TEST(Model, LossStaysFiniteForLargeScores) {
  Model<float> model(kSmall, 1);
  for (float& parameter : model.parameters()) parameter *= 30;
  const double loss = model.loss_and_gradients({kText, kTargets});
  EXPECT_TRUE(std::isfinite(loss));
  EXPECT_GT(loss, 100);
  for (const float gradient : model.gradients()) ASSERT_TRUE(std::isfinite(gradient));
}

TEST(Model, GradientsDoNotDependOnEarlierCalls) {
  Model<float> model(kSmall, 1), fresh(kSmall, 1);
  model.loss_and_gradients({kText, std::vector<std::uint64_t>{40, 41, 42}});
  model.loss_and_gradients({kText, kTargets});
  fresh.loss_and_gradients({kText, kTargets});
  EXPECT_TRUE(std::ranges::equal(model.gradients(), fresh.gradients()));
}

TEST(Model, TensorsCoverTheArenaInOrder) {
  Model<float> model(Shape{}, 1);
  std::size_t end = 0;
  std::vector<std::string> names;
  for (const Tensor& tensor : model.tensors()) {
    EXPECT_EQ(tensor.begin, end) << tensor.name;
    EXPECT_EQ(tensor.dimensions, tensor.name.ends_with("bias") ? 1 : 2) << tensor.name;
    end += tensor.count;
    names.push_back(tensor.name);
  }
  EXPECT_EQ(end, model.parameters().size());
  EXPECT_EQ(end, model.gradients().size());
  EXPECT_EQ(end, 256u * 32 + (512u + 1) * 768 + (768u + 1) * 768 + (768u + 1) * 256);
  EXPECT_EQ(names, (std::vector<std::string>{"embedding.weight", "hidden1.weight", "hidden1.bias",
                                             "hidden2.weight", "hidden2.bias", "output.weight",
                                             "output.bias"}));
}

TEST(Model, StartIsAFunctionOfTheSeed) {
  Model<float> one(kSmall, 1), same(kSmall, 1), other(kSmall, 2);
  EXPECT_TRUE(std::ranges::equal(one.parameters(), same.parameters()));
  EXPECT_FALSE(std::ranges::equal(one.parameters(), other.parameters()));
}

}  // namespace
}  // namespace train
