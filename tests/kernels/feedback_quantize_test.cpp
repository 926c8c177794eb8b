// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/value_coding.hpp"
#include "lab/reference/place.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/quantize_cases.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/value_formats.hpp"

namespace winnow::tests {
namespace {

using kernels::FeedbackPiece;
using kernels::Partition;
using kernels::RandomKey;
using kernels::ValueFormat;

constexpr std::uint32_t kNobody = 0xffffffff;

struct Step {
  QuantizeCase c;
  ValueFormat format;
  float decay = 0.875F;
};

void run_on(const Exec& exec, const Step& step, QuantizeState& state,
            const RandomKey& key = kQuantizeKey) {
  const QuantizeCase& c = step.c;
  const Workspace::Scope scope(kernels::scratch_of(exec));
  std::vector<OnPlace<float>> gradient, residual;
  std::vector<OnPlace<std::uint16_t>> halves;
  std::vector<OnPlace<std::byte>> out;
  std::vector<FeedbackPiece> pieces;
  std::vector<std::span<std::byte>> messages;
  for (std::size_t p = 0; p < c.at.size(); ++p) {
    gradient.emplace_back(exec, state.gradient[p]);
    residual.emplace_back(exec, state.residual[p]);
    halves.emplace_back(exec, state.halves[p]);
    const Elements given = gradient_of(c.type, gradient[p].span(), halves[p].span());
    pieces.push_back({given.subspan(c.offset, c.at[p].second), residual[p].span(), c.at[p].first});
  }
  for (const std::span<std::byte> message : state.messages()) {
    messages.push_back(out.emplace_back(exec, message).span());
  }
  OnPlace<float> own(exec, state.own);
  OnPlace<std::uint32_t> not_finite(exec, 1);
  kernels::feedback_quantize(exec, {.pieces = kernels::place<FeedbackPiece>(exec, pieces),
                                    .decay = step.decay,
                                    .partition = c.partition(),
                                    .self = c.self,
                                    .format = step.format,
                                    .key = key,
                                    .out = messages,
                                    .own = own.span(),
                                    .not_finite = not_finite.data()});
  for (std::size_t p = 0; p < c.at.size(); ++p) {
    state.gradient[p] = gradient[p].download();
    state.halves[p] = halves[p].download();
    state.residual[p] = residual[p].download();
  }
  for (std::size_t owner = 0; owner < out.size(); ++owner) {
    std::ranges::copy(out[owner].download(), state.out[owner].span().begin());
  }
  state.own = own.download();
  state.finite = not_finite.download().front() == 0;
}

/// The step in plain loops over positions, with quantize.
QuantizeState specified(const Step& step, QuantizeState state,
                        const RandomKey& key = kQuantizeKey) {
  const QuantizeCase& c = step.c;
  if (c.owners == 0) throw std::logic_error("a case without an owner");
  const Partition partition = c.partition();
  std::vector<std::vector<float>> acc(c.owners);
  std::vector<std::vector<float*>> residual(c.owners);
  for (std::uint32_t o = 0; o < c.owners; ++o) {
    acc[o].resize(partition.local_count(o));
    residual[o].resize(partition.local_count(o));
  }
  for (std::size_t p = 0; p < c.at.size(); ++p) {
    for (std::size_t i = 0; i < c.at[p].second; ++i) {
      const std::uint64_t position = c.at[p].first + i;
      const std::uint32_t owner = partition.owner_of_unit(position / Partition::kUnit);
      const float kept = step.decay * state.residual[p][i];
      const float sum = state.gradient[p][c.offset + i] + kept;
      const bool finite = std::isfinite(sum);
      state.finite = state.finite && finite;
      const std::uint64_t local = partition.local(position);
      acc[owner][local] = finite || owner == c.self ? sum : 0;
      residual[owner][local] = &state.residual[p][i];
      if (finite && owner != c.self) state.residual[p][i] = -0.0F;  // -0 + x is x, of -0 too
    }
  }
  for (std::uint32_t o = 0; o < c.owners; ++o) {
    if (o == c.self) {
      state.own = acc[o];
      continue;
    }
    RandomKey of_owner = key;
    of_owner.stage += o;
    kernels::quantize({.place = lab::kReference}, step.format, of_owner, acc[o],
                      state.out[o].span());
    for (std::size_t i = 0; i < acc[o].size(); ++i) {
      if (residual[o][i] != nullptr) *residual[o][i] += acc[o][i];
    }
  }
  return state;
}

void expect_equal(const QuantizeState& got, const QuantizeState& expected) {
  EXPECT_EQ(got.finite, expected.finite);
  EXPECT_TRUE(got.out == expected.out);
  EXPECT_TRUE(same_bits_or_nan(got.own, expected.own));
  for (std::size_t p = 0; p < got.residual.size(); ++p) {
    EXPECT_TRUE(same_bits(got.gradient[p], expected.gradient[p])) << "piece " << p;
    EXPECT_TRUE(same_bits(got.residual[p], expected.residual[p])) << "piece " << p;
  }
}

/// Runs each step by every body.
void expect_specified(const std::vector<Step>& steps) {
  std::vector<QuantizeState> expected;
  for (const Step& step : steps) expected.push_back(specified(step, begin(step.c, step.format)));
  for_each_body([&](const Exec& exec) {
    for (std::size_t s = 0; s < steps.size(); ++s) {
      SCOPED_TRACE(described(steps[s].c, steps[s].format));
      QuantizeState got = begin(steps[s].c, steps[s].format);
      run_on(exec, steps[s], got);
      expect_equal(got, expected[s]);
    }
  });
}

/// Longer lists than those of piece_lists, with and without gaps.
std::vector<QuantizeCase> long_lists() {
  return {{.at = {{0, 9000}}, .count = 9000},
          {.at = {{64, 7000}, {7104, 63}, {20'032, 68}}, .count = 20'100},
          {.at = {{640, 5000}}, .count = 30'001}};
}

TEST(FeedbackQuantize, EveryFormatIsAsSpecifiedAtAwkwardSizes) {
  std::vector<Step> steps;
  for (const ValueFormat& format : all_formats()) {
    for (QuantizeCase c : awkward_sizes()) {
      steps.push_back({c, format});
      c.owners = 3;
      c.self = 1;
      steps.push_back({c, format, 0.75F});
    }
  }
  expect_specified(steps);
}

TEST(FeedbackQuantize, HalvesAreAsSpecified) {
  std::vector<Step> steps;
  for (const ValueFormat& format : default_formats()) {
    for (const ElementType type : kHalves) {
      for (QuantizeCase c : awkward_sizes()) {
        c.type = type;
        for (const std::size_t offset : {0U, 3U}) {
          c.offset = offset;
          c.input = offset == 0 ? Input::not_finite : Input::denormal;
          c.owners = 1;
          c.self = 0xffffffff;
          steps.push_back({c, format});
          c.owners = 3;
          c.self = 1;
          steps.push_back({c, format});
        }
      }
    }
  }
  expect_specified(steps);
}

TEST(FeedbackQuantize, LongMessagesAreAsSpecified) {
  const std::size_t count = many(1 << 17);
  std::vector<Step> steps;
  for (const ValueFormat& format : default_formats()) {
    steps.push_back({{.at = {{0, count}}, .count = count}, format});
    for (const QuantizeCase& c : long_lists()) steps.push_back({c, format, 1});
  }
  expect_specified(steps);
}

TEST(FeedbackQuantize, EveryListOfPiecesIsAsSpecified) {
  std::vector<Step> steps;
  for (const ValueFormat& format : all_formats()) {
    for (const QuantizeCase& c : piece_lists()) steps.push_back({c, format});
  }
  expect_specified(steps);
}

TEST(FeedbackQuantize, EveryInputIsAsSpecified) {
  std::vector<Step> steps;
  for (const ValueFormat& format : default_formats()) {
    for (QuantizeCase c : piece_lists()) {
      for (const Input input : {Input::cauchy, Input::all_equal, Input::all_zero, Input::denormal,
                                Input::not_finite, Input::mostly_not_finite}) {
        c.input = input;
        steps.push_back({c, format});
      }
    }
  }
  expect_specified(steps);
}

TEST(FeedbackQuantize, EveryPartitionIsAsSpecified) {
  std::vector<Step> steps;
  for (const ValueFormat& format : default_formats()) {
    for (QuantizeCase c : shared_pieces()) {
      c.input = c.owners == 3 ? Input::not_finite : Input::cauchy;
      steps.push_back({c, format});
    }
  }
  expect_specified(steps);
}

TEST(FeedbackQuantize, MisalignedGradientsAndLongBlocksAreAsSpecified) {
  std::vector<Step> steps;
  for (ValueFormat format : default_formats()) {
    for (std::size_t offset = 1; offset < 4; ++offset) {
      steps.push_back({{.at = {{0, 3001}}, .count = 3001, .offset = offset}, format});
    }
    if (format.block == 0) continue;
    format.block = 65536;
    steps.push_back({{.at = {{64, 140'000}}, .count = 140'100}, format});
  }
  expect_specified(steps);
}

TEST(FeedbackQuantize, OneElementThatIsNotFiniteAloneKeepsItsResidualLessWhatTravels) {
  constexpr std::size_t kCount = 5000;
  for_each_body([&](const Exec& exec) {
    for (const std::size_t bad : {std::size_t{0}, std::size_t{777}, kCount - 1}) {
      for (const ValueFormat& format : default_formats()) {
        const Step step{{.at = {{0, kCount}}, .count = kCount}, format};
        QuantizeState before = begin(step.c, format);
        before.gradient[0][bad] = std::numeric_limits<float>::infinity();
        QuantizeState after = before;
        run_on(exec, step, after);
        EXPECT_FALSE(after.finite);
        float decoded[1];
        kernels::dequantize({}, format, kCount, after.out[0].span(), bad, decoded);
        EXPECT_EQ(after.residual[0][bad], before.residual[0][bad] - decoded[0]);
        expect_equal(after, specified(step, before));
      }
    }
  });
}

/// The step divides acc between message and residual: what it sends and what it keeps add up to
/// acc.
TEST(FeedbackQuantize, NothingIsLost) {
  constexpr std::size_t kCount = 5000;
  for_each_body([&](const Exec& exec) {
    for (const ValueFormat& format : all_formats()) {
      const Step step{{.at = {{0, kCount}}, .count = kCount}, format, 1};
      const QuantizeState before = begin(step.c, format);
      QuantizeState after = before;
      run_on(exec, step, after);
      std::vector<float> decoded(kCount);
      kernels::dequantize({}, format, kCount, after.out[0].span(), 0, decoded);
      std::size_t lost = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        const float acc = before.gradient[0][i] + before.residual[0][i];
        lost += after.residual[0][i] != acc - decoded[i];
      }
      EXPECT_EQ(lost, 0u) << name_of(format);
    }
  });
}

/// Each step rounds by the call that stands in memory when it runs, whatever the key says.
TEST(FeedbackQuantize, ACallInMemoryIsReadByEachStep) {
  for_each_body([](const Exec& exec) {
    RandomKey key = kQuantizeKey;
    for (const ValueFormat& format : default_formats()) {
      if (format.rounding == kernels::Rounding::nearest) continue;
      SCOPED_TRACE(name_of(format));
      Step step{piece_lists()[0], format};
      step.c.owners = 3;
      QuantizeState state = begin(step.c, format), expected = state;
      OnPlace<std::uint64_t> call(exec, 1);
      RandomKey there = kQuantizeKey;
      there.device_call = call.data();
      for (int i = 0; i < 2; ++i) {
        ++key.call;
        call.upload({&key.call, 1});
        run_on(exec, step, state, there);
        expected = specified(step, expected, key);
        EXPECT_TRUE(state.out == expected.out) << "step " << i;
      }
    }
  });
}

TEST(FeedbackQuantize, TakesNoMemoryPastTheFirstStep) {
  const Step step{{.at = {{0, 20'000}}, .count = 20'000}, all_formats().back()};
  for_each_body([&](const Exec& exec) {
    if (exec.place == lab::kReference) return;
    Workspace workspace;
    Exec own = exec;
    own.workspace = &workspace;
    const auto allocations = [&] {
      return workspace.allocations() +
             (exec.device_workspace != nullptr ? exec.device_workspace->allocations() : 0);
    };
    QuantizeState state = begin(step.c, step.format);
    run_on(own, step, state);
    EXPECT_LE(workspace.capacity(), std::size_t{256} << 10);
    const auto before = allocations();
    for (int i = 0; i < 3; ++i) run_on(own, step, state);
    EXPECT_EQ(allocations(), before);
  });
}

TEST(FeedbackQuantize, RefusesWrongUse) {
  const ValueFormat format = all_formats().front();
  std::vector<float> gradient(200), residual(200), own(136);
  Coded coded(format, 200), half(format, 128);
  Workspace workspace;
  const auto attempt = [&](std::vector<FeedbackPiece> pieces, std::uint32_t owners,
                           std::uint32_t self, std::vector<std::span<std::byte>> out,
                           std::span<float> own_part) {
    std::uint32_t not_finite = 0;
    const Exec exec{.workspace = &workspace};
    kernels::feedback_quantize(exec, {.pieces = kernels::place<FeedbackPiece>(exec, pieces),
                                      .partition = Partition(owners, 200),
                                      .self = self,
                                      .format = format,
                                      .out = out,
                                      .own = own_part,
                                      .not_finite = &not_finite});
  };
  const std::span<float> g(gradient), r(residual);
  EXPECT_NO_THROW(attempt({{g, r, 0}}, 1, kNobody, {coded.span()}, {}));
  EXPECT_NO_THROW(attempt({{g.first(8), r.first(8), 0}, {g.last(8), r.last(8), 192}}, 1, kNobody,
                          {coded.span()}, {}));
  EXPECT_THROW(attempt({{g, r.first(199), 0}}, 1, kNobody, {coded.span()}, {}), UsageError);
  EXPECT_THROW(attempt({{g.first(9), r.first(9), 32}}, 1, kNobody, {coded.span()}, {}), UsageError);
  EXPECT_THROW(attempt({{g, r, 64}}, 1, kNobody, {coded.span()}, {}), UsageError);
  EXPECT_THROW(attempt({{g.first(65), r.first(65), 0}, {g.last(9), r.last(9), 64}}, 1, kNobody,
                       {coded.span()}, {}),
               UsageError);
  std::vector<std::uint16_t> halves(8);
  const ConstElements other(halves.data(), halves.size(), ElementType::bf16);
  EXPECT_THROW(attempt({{g.first(8), r.first(8), 0}, {other, r.last(8), 192}}, 1, kNobody,
                       {coded.span()}, {}),
               UsageError);
  EXPECT_THROW(attempt({{g, r, 0}}, 1, kNobody, {}, {}), UsageError);
  EXPECT_THROW(attempt({{g, r, 0}}, 1, kNobody, {half.span()}, {}), UsageError);
  EXPECT_THROW(attempt({{g, r, 0}}, 1, kNobody, {coded.span()}, own), UsageError);
  EXPECT_THROW(attempt({{g, r, 0}}, 1, 0, {coded.span()}, own), UsageError);
  Coded one(format, 200);
  const std::span<std::byte> out[] = {one.span()};
  const FeedbackPiece piece{g, r, 0};
  std::uint32_t not_finite = 0;
  kernels::FeedbackQuantizeJob job{.pieces = {{&piece, 1}, &piece},
                                   .partition = Partition(1, 200),
                                   .format = format,
                                   .out = out,
                                   .not_finite = &not_finite};
  EXPECT_THROW(kernels::feedback_quantize({}, job), UsageError);  // without a workspace
  job.not_finite = nullptr;
  EXPECT_THROW(kernels::feedback_quantize({.workspace = &workspace}, job), UsageError);
}

}  // namespace
}  // namespace winnow::tests
