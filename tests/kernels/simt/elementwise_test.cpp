// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/elementwise.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/half.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/take.cuh"
#include "tests/kernels/cases/elementwise_cases.hpp"
#include "tests/kernels/simt/pieces.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"

namespace winnow::tests {
namespace {

constexpr unsigned kBlocks = 2;

class ElementwiseOnModel : public testing::TestWithParam<SimtOrder> {
 protected:
  /// Of one piece.
  template <class Task>
  void launch(const Task& task) {
    launch_one_piece(machine_, kBlocks, task);
  }
  Machine machine_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Orders, ElementwiseOnModel, testing::ValuesIn(simt_orders()));

TEST_P(ElementwiseOnModel, ScaleEqualsReference) {
  expect_scale_equals_reference([this](std::span<float> elements, float factor) {
    launch<kernels::cuda::Scale>({elements.data(), elements.size(), factor});
  });
}

TEST_P(ElementwiseOnModel, LookAheadEqualsReference) {
  expect_look_ahead_equals_reference([this](std::span<const float> weights,
                                            std::span<const float> residual, float share,
                                            std::span<float> ahead) {
    machine_.launch<kernels::cuda::LookAhead>(
        kBlocks, {weights.data(), residual.data(), share, ahead.data(), ahead.size()});
  });
}

TEST_P(ElementwiseOnModel, MomentsEqualReference) {
  const MomentBody body{
      [this](std::span<float> gradient, std::span<float> moment,
             const kernels::SecondMomentStep& by) {
        launch<kernels::cuda::DivideByMoment>(
            {gradient.data(), moment.data(), gradient.size(), by});
      },
      [this](std::span<float> gradient, std::span<float> moment, std::span<const float> residual,
             const kernels::MomentumStep& by) {
        launch<kernels::cuda::CorrectMomentum>(
            {gradient.data(), moment.data(), residual.data(), gradient.size(), by});
      }};
  expect_divide_by_moment_equals_reference(body);
  expect_correct_momentum_equals_reference(body);
}

TEST_P(ElementwiseOnModel, AllFiniteEqualsReference) {
  expect_all_finite_equals_reference([this](std::span<const float> elements) {
    std::uint32_t not_finite = 0;
    machine_.launch<kernels::cuda::AllFinite>(kBlocks,
                                              {elements.data(), elements.size(), &not_finite});
    return not_finite == 0;
  });
}

TEST_P(ElementwiseOnModel, HalvesEqualReference) {
  using namespace kernels::cuda;
  const HalfBody body{
      [this](ElementType type, std::span<const std::uint16_t> in, std::span<float> out) {
        const ConstElements halves(in.data(), in.size(), type);
        launch<Widen>({device_elements(halves), out.data(), in.size()});
      },
      [this](ElementType type, std::span<const float> in, std::span<std::uint16_t> out) {
        const Elements halves(out.data(), out.size(), type);
        launch<Narrow>({in.data(), device_elements(halves), in.size()});
      },
      [this](kernels::RestJob job) {
        std::uint32_t too_large = 0;
        job.too_large = &too_large;
        launch<KeepRest>({job, kernels::range_of(job.type), job.sums.size()});
        return too_large != 0;
      }};
  expect_widen_equals_reference(body);
  expect_narrow_equals_reference(body);
  expect_keep_rest_equals_reference(body);
}

TEST_P(ElementwiseOnModel, ReductionsEqualReference) {
  using namespace kernels::cuda;
  expect_reduce_equals_reference(
      {[this](ReduceOp op, const Elements& into, const ConstElements& from) {
         visit_reduce_kernel(into.type(), op, [&]<class Kernel, class T>(Kernel, T) {
           machine_.launch<Kernel>(kBlocks,
                                   {into.as<T>().data(), from.as<T>().data(), into.size()});
         });
       },
       [this](const Elements& sums, int ranks) {
         kernels::with_type(sums.type(), [&]<class T>(T) {
           machine_.launch<Average<T>>(kBlocks, {sums.as<T>().data(), sums.size(), ranks});
         });
       }});
}

TEST_P(ElementwiseOnModel, FloatsAsIntegersEqualTheArithmetic) {
  using namespace kernels::cuda;
  expect_ordered_equals_arithmetic(
      {[&](const Elements& floats, ReduceOp op) {
         kernels::visit_floats(floats, [&]<class T>(T, kernels::BitsOf<T>* elements) {
           machine_.launch<ToOrdered<T>>(kBlocks, {elements, floats.size(), op});
         });
       },
       [&](const Elements& floats) {
         kernels::visit_floats(floats, [&]<class T>(T, kernels::BitsOf<T>* elements) {
           machine_.launch<FromOrdered<T>>(kBlocks, {elements, floats.size()});
         });
       }});
}

TEST_P(ElementwiseOnModel, TakeAndPutEqualReference) {
  expect_take_equals_reference(
      {[this](std::span<float> elements, std::uint32_t base, std::span<const std::uint32_t> index,
              std::span<float> value) {
         machine_.launch<kernels::cuda::Take>(
             kBlocks, {elements.data(), base, index.data(), value.data(), index.size()});
       },
       [this](std::span<float> elements, std::uint32_t base, const kernels::SparseView& list) {
         machine_.launch<kernels::cuda::Put>(kBlocks, {elements.data(), base, list.index.data(),
                                                       list.value.data(), list.index.size()});
       }});
}

}  // namespace
}  // namespace winnow::tests
