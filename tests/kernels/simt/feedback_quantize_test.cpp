// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernels/cuda/check_values.cuh"
#include "kernels/cuda/dequantize.cuh"
#include "kernels/cuda/quantize_plan.hpp"
#include "lab/reference/place.hpp"
#include "tests/harness/sanitized.hpp"
#include "tests/kernels/cases/check_cases.hpp"
#include "tests/kernels/cases/quantize_cases.hpp"
#include "tests/kernels/simt/launch_shared.hpp"
#include "tests/model/in_a_child.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"

namespace winnow::tests {
namespace {

using kernels::ValueFormat;

QuantizeBody on(Machine& machine, const kernels::RandomKey& key = kQuantizeKey) {
  return [&machine, key](const QuantizeCase& c, const ValueFormat& format, float decay,
                         QuantizeState& state) {
    const auto pieces = state.pieces(c);
    const auto messages = state.messages();
    std::uint32_t not_finite = 0;
    const kernels::FeedbackQuantizeJob job{.pieces = {pieces, pieces.data()},
                                           .decay = decay,
                                           .partition = c.partition(),
                                           .self = c.self,
                                           .format = format,
                                           .key = key,
                                           .out = messages,
                                           .own = state.own,
                                           .not_finite = &not_finite};
    kernels::cuda::launch_quantize(
        format, kernels::cuda::make_quantize_call(job), c.owners,
        [&](std::size_t owner) {
          return kernels::cuda::make_quantize_message(job, static_cast<std::uint32_t>(owner));
        },
        [&](unsigned blocks, const auto& kernel) { machine.launch(blocks, kernel); });
    if (c.self < c.owners) {
      machine.launch<kernels::cuda::FeedbackOwn>(2, kernels::cuda::make_own_kernel(job));
    }
    state.finite = not_finite == 0;
  };
}

class FeedbackQuantizeOnModel : public testing::TestWithParam<SimtOrder> {
 protected:
  Machine machine_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Orders, FeedbackQuantizeOnModel, testing::ValuesIn(simt_orders()));

TEST_P(FeedbackQuantizeOnModel, EveryFormatEqualsReferenceAtAwkwardSizes) {
  for (const ValueFormat& format : all_formats()) {
    for (const QuantizeCase& c : awkward_sizes()) expect_equals_reference(c, format, on(machine_));
  }
}

TEST_P(FeedbackQuantizeOnModel, EveryListOfPiecesEqualsReference) {
  for (const ValueFormat& format : all_formats()) {
    for (const QuantizeCase& c : piece_lists()) expect_equals_reference(c, format, on(machine_));
  }
}

TEST_P(FeedbackQuantizeOnModel, HalvesEqualReference) {
  for (const ValueFormat& format : default_formats()) {
    for (QuantizeCase c : shared_pieces()) {
      c.type = kHalves[c.owners % 2];
      c.input = Input::not_finite;
      for (const std::size_t offset : {0U, 3U}) {
        c.offset = offset;
        expect_equals_reference(c, format, on(machine_));
      }
    }
  }
}

TEST_P(FeedbackQuantizeOnModel, SeveralOwnersEqualReference) {
  for (const ValueFormat& format : default_formats()) {
    for (QuantizeCase c : shared_pieces()) {
      c.input = c.owners == 3 ? Input::not_finite : Input::cauchy;
      expect_equals_reference(c, format, on(machine_));
    }
  }
}

/// Full launches and one that is not.
TEST_P(FeedbackQuantizeOnModel, MoreOwnersThanALaunchTakesEqualReference) {
  constexpr std::uint32_t kOwners = 2 * kernels::cuda::kQuantizedTogether + 3;
  for (const ValueFormat& format : default_formats()) {
    QuantizeCase c = piece_lists().back();
    c.owners = kOwners;
    c.self = 5;
    expect_equals_reference(c, format, on(machine_));
  }
}

TEST_P(FeedbackQuantizeOnModel, EveryInputEqualsReference) {
  for (const ValueFormat& format : default_formats()) {
    for (const Input input : {Input::cauchy, Input::all_equal, Input::all_zero, Input::denormal,
                              Input::not_finite, Input::mostly_not_finite}) {
      QuantizeCase c = piece_lists()[0];
      c.input = input;
      expect_equals_reference(c, format, on(machine_));
    }
  }
}

/// Each step rounds by the call that stands in memory when it runs, whatever the key says.
TEST_P(FeedbackQuantizeOnModel, ACallInMemoryIsReadByEachStep) {
  kernels::RandomKey key = kQuantizeKey, there = kQuantizeKey;
  there.device_call = &key.call;
  for (const ValueFormat& format : default_formats()) {
    SCOPED_TRACE(name_of(format));
    QuantizeCase c = piece_lists()[0];
    c.owners = 3;
    QuantizeState state = begin(c, format), expected = begin(c, format);
    for (int step = 0; step < 2; ++step) {
      ++key.call;
      on(machine_, there)(c, format, 1, state);
      quantize_by_reference_with(key, c, format, 1, expected);
      EXPECT_TRUE(state.out == expected.out) << "step " << step;
    }
  }
}

/// Decodes all values, those from the middle on, and to memory off the alignment of vectors.
TEST_P(FeedbackQuantizeOnModel, DequantizeEqualsReference) {
  for (const ValueFormat& format : all_formats()) {
    for (const std::size_t count : {0U, 1U, 31U, 32U, 33U, 4095U, 4097U}) {
      SCOPED_TRACE(testing::Message() << name_of(format) << ", " << count << " values");
      std::vector<float> values = make_values(Values::cauchy, count, 3);
      Coded coded(format, count);
      kernels::quantize({.place = lab::kReference}, format, kQuantizeKey, values, coded.span());
      for (const std::size_t begin : {std::size_t{0}, count / 3}) {
        std::vector<float> expected(count - begin), got(count - begin + begin % 4);
        kernels::dequantize({.place = lab::kReference}, format, count, coded.span(), begin,
                            expected);
        const std::span<float> out = std::span(got).subspan(begin % 4);
        machine_.launch<kernels::cuda::Dequantize>(
            2, {kernels::cuda::device_values(format, count, coded.span()), begin, out.data(),
                out.size()});
        EXPECT_TRUE(same_bits(out, expected));
      }
    }
  }
}

void check_all(Machine& machine, const ValueFormat& format,
               std::span<const kernels::CheckValuesJob> jobs) {
  kernels::visit_coding(*format.coding, [&](auto coding) {
    launch_shared<kernels::cuda::CheckValues<decltype(coding)>>(
        machine, jobs, [&](const kernels::CheckValuesJob& job) {
          return kernels::cuda::make_check_task(format, job);
        });
  });
}

TEST_P(FeedbackQuantizeOnModel, ChecksEqualReference) {
  expect_checks_equal_reference(
      [this](const ValueFormat& format, std::uint64_t k, std::span<const std::byte> coded) {
        std::uint32_t refused = 0;
        const kernels::CheckValuesJob job{k, coded, &refused};
        check_all(machine_, format, {&job, 1});
        return refused == 0;
      });
}

TEST_P(FeedbackQuantizeOnModel, MessagesShareACheck) {
  expect_shared_check(
      [this](const ValueFormat& format, std::span<const kernels::CheckValuesJob> jobs) {
        check_all(machine_, format, jobs);
      });
}

TEST_P(FeedbackQuantizeOnModel, MisalignedGradientsEqualReference) {
  for (const ValueFormat& format : default_formats()) {
    for (std::size_t offset = 1; offset < 4; ++offset) {
      expect_equals_reference({.at = {{0, 3001}}, .count = 3001, .offset = offset}, format,
                              on(machine_));
    }
  }
}

/// Scale blocks longer than a tile, which the kernel reads twice.
TEST_P(FeedbackQuantizeOnModel, LongBlocksEqualReference) {
  for (ValueFormat format : default_formats()) {
    if (format.block == 0) continue;
    for (const std::uint32_t block : {4096U, 65536U}) {
      format.block = block;
      for (const Input input : {Input::normal, Input::not_finite}) {
        expect_equals_reference({.at = {{64, 9000}}, .count = 9100, .input = input}, format,
                                on(machine_));
      }
    }
  }
}

/// The magnitudes, or the values, have an infinite sum; the scale is their mean.
TEST_P(FeedbackQuantizeOnModel, SumsThatOverflowEqualReference) {
  for (const ValueFormat& format : all_formats()) {
    bool takes_mean = false;
    kernels::visit_coding(*format.coding, [&](auto coding) {
      takes_mean = requires { coding.scale_of_mean(1.0f); };
    });
    if (!takes_mean) continue;
    const auto largest = [&](const QuantizeBody& body) {
      QuantizeState state{.gradient = {make_values(Values::largest, 3000, 1)},
                          .residual = {std::vector<float>(3000)},
                          .halves = std::vector<std::vector<std::uint16_t>>(1),
                          .out = {Coded(format, 3000)},
                          .own = {}};
      body({.at = {{0, 3000}}, .count = 3000}, format, 1, state);
      return state;
    };
    const QuantizeState got = largest(on(machine_)), expected = largest(quantize_by_reference);
    EXPECT_TRUE(got.out == expected.out);
    EXPECT_TRUE(same_bits(got.residual[0], expected.residual[0]));
  }
}

/// Without any one of its barriers the kernel goes wrong in some order, on inputs whose largest
/// magnitude comes last or whose sums overflow.
TEST(FeedbackQuantizeModel, EveryBarrierIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "hundreds of processes, each slow to start under a sanitizer";
  const QuantizeCase c{.at = {{0, 5000}}, .count = 5000, .input = Input::ascending};
  for (ValueFormat format : default_formats()) {
    if (format.block == 0 || format.rounding == kernels::Rounding::stochastic) continue;
    for (const std::uint32_t block : {format.block, 1024U, 4096U}) {
      format.block = block;
      SCOPED_TRACE(name_of(format));
      std::vector<QuantizeState> before(2, begin(c, format));
      before[1].gradient[0] = make_values(Values::largest, 5000, 1);
      for (std::size_t i = 0; i < 5000; ++i) {  // no mean is so large that a scale is cut
        before[1].gradient[0][i] *= i % 3 == 0 ? 0.0625F : 0.25F;
      }
      std::vector<QuantizeState> expected = before;
      for (QuantizeState& state : expected) quantize_by_reference(c, format, 1, state);
      const auto works = [&](const SimtOrder& order, int skipped, int* barriers = nullptr) {
        Machine machine(order);
        machine.skip_barrier(skipped);
        bool equal = true;
        for (std::size_t s = 0; s < before.size(); ++s) {
          QuantizeState state = before[s];
          on(machine)(c, format, 1, state);
          if (barriers != nullptr) *barriers = std::max(*barriers, machine.barriers());
          equal = equal && state.out == expected[s].out &&
                  same_bits(state.residual[0], expected[s].residual[0]);
        }
        return equal;
      };
      int barriers = 0;
      EXPECT_TRUE(works({}, -1, &barriers));
      constexpr std::uint32_t kOfWarp = 256;  // a warp finds the largest of these alone
      EXPECT_TRUE(barriers > 0 || format.block <= kOfWarp);
      for (int skipped = 0; skipped < barriers; ++skipped) {
        const auto orders = simt_orders(4);
        EXPECT_TRUE(std::ranges::any_of(orders,
                                        [&](const SimtOrder& order) {
                                          return !works_in_a_child(
                                              [&] { return works(order, skipped); });
                                        }))
            << "barrier " << skipped << " of " << barriers;
      }
    }
  }
}

}  // namespace
}  // namespace winnow::tests
