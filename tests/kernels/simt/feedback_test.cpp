// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/feedback.cuh"

#include <gtest/gtest.h>

#include "tests/kernels/cases/feedback_cases.hpp"
#include "tests/kernels/simt/pieces.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"

namespace winnow::tests {
namespace {

class FeedbackOnModel : public testing::TestWithParam<SimtOrder> {
 protected:
  template <class Kernel>
  FeedbackBody body() {
    return [this](std::span<float> into, std::span<const float> from, float decay) {
      launch_one_piece<Kernel>(machine_, 2, {into.data(), from.data(), into.size(), decay});
    };
  }

  void keep(std::span<float> residual, const ConstElements& gradient, float decay,
            const kernels::Precondition& precondition) {
    launch_one_piece<kernels::cuda::FeedbackKeep>(
        machine_, 2,
        {residual.data(), kernels::cuda::device_elements(gradient), residual.size(), decay,
         precondition});
  }

 private:
  Machine machine_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Orders, FeedbackOnModel, testing::ValuesIn(simt_orders()));

TEST_P(FeedbackOnModel, AddEqualsReference) {
  expect_feedback_equals_reference(FeedbackKind::add, body<kernels::cuda::FeedbackAdd>());
}

TEST_P(FeedbackOnModel, KeepEqualsReference) {
  expect_feedback_equals_reference(
      FeedbackKind::keep, [this](std::span<float> into, std::span<const float> from, float decay) {
        keep(into, from, decay, {});
      });
  expect_keep_equals_reference([this](std::span<float> residual, const ConstElements& gradient,
                                      float decay, const kernels::Precondition& precondition) {
    keep(residual, gradient, decay, precondition);
  });
}

}  // namespace
}  // namespace winnow::tests
