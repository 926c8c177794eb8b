// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <winnow/error.hpp>

#include "kernels/value_coding.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/targets.hpp"
#include "tests/kernels/value_formats.hpp"

namespace winnow::tests {
namespace {

using kernels::FeedbackPiece;
using kernels::Partition;
using kernels::RandomKey;
using kernels::ValueFormat;

constexpr RandomKey kKey{.seed = 77, .call = 5, .rank = 2, .stage = 1000};
constexpr std::uint32_t kNobody = 0xffffffff;

/// Where pieces lie: base and size, and the whole.
struct Pieces {
  std::vector<std::pair<std::uint64_t, std::size_t>> at;
  std::uint64_t count;
};

/// One piece of everything; many with and without gaps, some shorter than a unit, one empty.
std::vector<Pieces> all_pieces() {
  std::vector<Pieces> all;
  for (const std::size_t count : {0u, 1u, 63u, 64u, 65u, 255u, 257u, 4097u, 9000u}) {
    all.push_back({{{0, count}}, count});
  }
  all.push_back(
      {{{0, 100}, {128, 1}, {192, 64}, {256, 65}, {1024, 0}, {1024, 3000}, {4096, 1234}}, 5330});
  all.push_back({{{64, 7000}, {7104, 63}, {20'032, 68}}, 20'100});
  all.push_back({{{640, 5000}}, 30'001});
  return all;
}

struct State {
  std::vector<std::vector<float>> gradient, residual;  // by piece
  std::vector<Coded> out;                              // by owner
  std::vector<float> own;
  bool finite = false;
};

struct Step {
  Pieces pieces;
  Partition partition;
  std::uint32_t self;
  float decay;
  ValueFormat format;
};

State begin(const Step& step, Input input) {
  State state;
  for (std::size_t p = 0; p < step.pieces.at.size(); ++p) {
    const auto seed = static_cast<std::uint32_t>(2 * p);
    state.gradient.push_back(make_input(input, step.pieces.at[p].second, seed));
    state.residual.push_back(make_input(Input::normal, step.pieces.at[p].second, seed + 1));
  }
  for (std::uint32_t o = 0; o < step.partition.owners(); ++o) {
    state.out.emplace_back(step.format, o == step.self ? 0 : step.partition.local_count(o));
  }
  if (step.self < step.partition.owners()) state.own.resize(step.partition.local_count(step.self));
  return state;
}

State run(const Step& step, State state, const Exec& exec) {
  std::vector<FeedbackPiece> pieces;
  for (std::size_t p = 0; p < step.pieces.at.size(); ++p) {
    pieces.push_back({state.gradient[p], state.residual[p], step.pieces.at[p].first});
  }
  std::vector<std::span<std::byte>> out;
  for (Coded& coded : state.out) out.push_back(coded.span());
  Workspace workspace;
  Exec with_workspace = exec;
  with_workspace.workspace = &workspace;
  std::uint32_t not_finite = 0;
  kernels::feedback_quantize(with_workspace, {.pieces = kernels::place<FeedbackPiece>(exec, pieces),
                                              .decay = step.decay,
                                              .partition = step.partition,
                                              .self = step.self,
                                              .format = step.format,
                                              .key = kKey,
                                              .out = out,
                                              .own = state.own,
                                              .not_finite = &not_finite});
  state.finite = not_finite == 0;
  return state;
}

/// The same in plain loops over positions, with quantize.
State specified(const Step& step, State state) {
  const Partition& partition = step.partition;
  std::vector<std::vector<float>> acc(partition.owners());
  std::vector<std::vector<float*>> residual(partition.owners());
  for (std::uint32_t o = 0; o < partition.owners(); ++o) {
    acc[o].resize(partition.local_count(o));
    residual[o].resize(partition.local_count(o));
  }
  state.finite = true;
  for (std::size_t p = 0; p < step.pieces.at.size(); ++p) {
    for (std::size_t i = 0; i < step.pieces.at[p].second; ++i) {
      const std::uint64_t position = step.pieces.at[p].first + i;
      const std::uint32_t owner = partition.owner_of_unit(position / Partition::kUnit);
      const float kept = step.decay * state.residual[p][i];
      const float sum = state.gradient[p][i] + kept;
      const bool finite = std::isfinite(sum);
      state.finite = state.finite && finite;
      const std::uint64_t local = partition.local(position);
      acc[owner][local] = finite || owner == step.self ? sum : 0;
      if (finite) residual[owner][local] = &state.residual[p][i];
    }
  }
  for (std::uint32_t o = 0; o < partition.owners(); ++o) {
    if (o == step.self) {
      state.own = acc[o];
      continue;
    }
    RandomKey key = kKey;
    key.stage += o;
    quantize({.place = Place::reference}, step.format, key, acc[o], state.out[o].span());
    for (std::size_t i = 0; i < acc[o].size(); ++i) {
      if (residual[o][i] != nullptr) *residual[o][i] = acc[o][i];
    }
  }
  return state;
}

void expect_equal(const State& got, const State& expected) {
  EXPECT_EQ(got.finite, expected.finite);
  EXPECT_TRUE(got.out == expected.out);
  EXPECT_TRUE(same_bits(got.own, expected.own));
  for (std::size_t p = 0; p < got.residual.size(); ++p) {
    EXPECT_TRUE(same_bits(got.gradient[p], expected.gradient[p])) << "piece " << p;
    EXPECT_TRUE(same_bits(got.residual[p], expected.residual[p])) << "piece " << p;
  }
}

/// Runs both bodies on every target and with several threads.
void expect_specified(const Step& step, Input input) {
  const State before = begin(step, input);
  const State expected = specified(step, before);
  expect_equal(run(step, before, {.place = Place::reference}), expected);
  for_each_target([&] {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(threads);
      expect_equal(run(step, before, {.threads = threads}), expected);
    }
  });
}

TEST(FeedbackQuantize, EveryFormatIsAsSpecified) {
  for (const ValueFormat& format : all_formats()) {
    SCOPED_TRACE(name_of(format));
    for (const Pieces& pieces : all_pieces()) {
      SCOPED_TRACE(pieces.count);
      expect_specified({pieces, Partition(1, pieces.count), kNobody, 1, format}, Input::normal);
      expect_specified({pieces, Partition(3, pieces.count), 1, 0.75f, format}, Input::normal);
    }
  }
}

TEST(FeedbackQuantize, EveryPartitionIsAsSpecified) {
  for (const ValueFormat& format : all_formats()) {
    if (format.block != format.coding->default_block) continue;
    SCOPED_TRACE(name_of(format));
    for (const std::uint32_t owners : {1u, 2u, 4u, 7u}) {
      for (const std::uint32_t self : {kNobody, 0u, owners - 1}) {
        SCOPED_TRACE(std::to_string(owners) + " owners, self " + std::to_string(self));
        for (const Pieces& pieces : {all_pieces()[9], all_pieces()[10]}) {
          expect_specified({pieces, Partition(owners, pieces.count), self, 1, format},
                           Input::cauchy);
        }
      }
    }
  }
}

TEST(FeedbackQuantize, EveryInputIsAsSpecified) {
  const Pieces pieces = all_pieces()[9];
  for (const ValueFormat& format : all_formats()) {
    if (format.block != format.coding->default_block) continue;
    SCOPED_TRACE(name_of(format));
    for (const Input input : {Input::all_equal, Input::all_zero, Input::denormal, Input::not_finite,
                              Input::mostly_not_finite}) {
      SCOPED_TRACE(input);
      expect_specified({pieces, Partition(1, pieces.count), kNobody, 1, format}, input);
      expect_specified({pieces, Partition(4, pieces.count), 2, 1, format}, input);
    }
  }
}

TEST(FeedbackQuantize, OneElementThatIsNotFiniteKeepsItsResidualAlone) {
  constexpr std::size_t kCount = 5000;
  for (const std::size_t bad : {std::size_t{0}, std::size_t{777}, kCount - 1}) {
    for (const ValueFormat& format : all_formats()) {
      const Pieces pieces{{{0, kCount}}, kCount};
      const Step step{pieces, Partition(1, kCount), kNobody, 1, format};
      State before = begin(step, Input::normal);
      before.gradient[0][bad] = std::numeric_limits<float>::infinity();
      const State after = run(step, before, {});
      EXPECT_FALSE(after.finite);
      EXPECT_EQ(after.residual[0][bad], before.residual[0][bad]);
      expect_equal(after, specified(step, before));
    }
  }
}

/// A residual decides no more than its value: what is sent and what is kept make up what there was.
TEST(FeedbackQuantize, NothingIsLost) {
  constexpr std::size_t kCount = 5000;
  for (const ValueFormat& format : all_formats()) {
    const Pieces pieces{{{0, kCount}}, kCount};
    const Step step{pieces, Partition(1, kCount), kNobody, 1, format};
    const State before = begin(step, Input::normal);
    State after = run(step, before, {});
    std::vector<float> decoded(kCount);
    dequantize({}, format, kCount, after.out[0].span(), 0, decoded);
    std::size_t lost = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const float acc = before.gradient[0][i] + before.residual[0][i];
      lost += after.residual[0][i] != acc - decoded[i];
    }
    EXPECT_EQ(lost, 0u) << name_of(format);
  }
}

TEST(FeedbackQuantize, TakesNoMemoryPastTheFirstStep) {
  const ValueFormat format = all_formats().back();
  std::vector<float> gradient(20'000, 1), residual(20'000);
  const FeedbackPiece piece{gradient, residual, 0};
  const Partition partition(1, gradient.size());
  Coded coded(format, gradient.size());
  const std::span<std::byte> out[] = {coded.span()};
  Workspace workspace;
  const Exec exec{.threads = 2, .workspace = &workspace};
  const auto step = [&] {
    std::uint32_t not_finite = 0;
    kernels::feedback_quantize(exec, {.pieces = kernels::place<FeedbackPiece>(exec, {&piece, 1}),
                                      .partition = partition,
                                      .format = format,
                                      .key = kKey,
                                      .out = out,
                                      .not_finite = &not_finite});
  };
  step();
  const auto allocations = workspace.allocations();
  EXPECT_LE(workspace.capacity(), std::size_t{256} << 10);
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(workspace.allocations(), allocations);
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
