// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/value_coding.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/halves.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/value_formats.hpp"

namespace winnow::tests {

// Cases of feedback_quantize, and what the reference leaves of them.

inline constexpr kernels::RandomKey kQuantizeKey{
    .seed = 77, .call = (1ULL << 33) + 5, .rank = 2, .stage = 1000};

struct QuantizeCase {
  std::vector<std::pair<std::uint64_t, std::size_t>> at;  ///< base and size of each piece
  std::uint64_t count;
  Input input = Input::normal;
  std::size_t offset = 0;  ///< gradients begin so many floats past a multiple of 16 bytes
  std::uint32_t owners = 1;
  std::uint32_t self = 0xffffffff;
  ElementType type = ElementType::float32;  ///< of gradients

  kernels::Partition partition() const { return {owners, count}; }
};

/// The inputs and outputs of a step.
struct QuantizeState {
  std::vector<std::vector<float>> gradient, residual;  ///< by piece; gradients from `offset` on
  std::vector<std::vector<std::uint16_t>> halves;      ///< the gradients where they have 16 bits
  std::vector<Coded> out;                              ///< by owner; empty for self
  std::vector<float> own;
  bool finite = true;

  std::vector<kernels::FeedbackPiece> pieces(const QuantizeCase& c) {
    std::vector<kernels::FeedbackPiece> all;
    for (std::size_t p = 0; p < c.at.size(); ++p) {
      const Elements given = gradient_of(c.type, gradient[p], halves[p]);
      all.push_back({given.subspan(c.offset, c.at[p].second), residual[p], c.at[p].first});
    }
    return all;
  }
  std::vector<std::span<std::byte>> messages() {
    std::vector<std::span<std::byte>> all;
    for (Coded& message : out) all.push_back(message.span());
    return all;
  }
};

inline QuantizeState begin(const QuantizeCase& c, const kernels::ValueFormat& format) {
  QuantizeState state{.gradient = {}, .residual = {}, .halves = {}, .out = {}, .own = {}};
  for (std::uint32_t owner = 0; owner < c.owners; ++owner) {
    const std::uint64_t count = c.partition().local_count(owner);
    state.out.emplace_back(format, owner == c.self ? 0 : count);
    if (owner == c.self) state.own.assign(count, 7);  // the memory holds other values before
  }
  for (std::size_t p = 0; p < c.at.size(); ++p) {
    const auto seed = static_cast<std::uint32_t>(2 * p);
    std::vector<float> gradient = make_input(c.input, c.at[p].second, seed);
    gradient.insert(gradient.begin(), c.offset, 0.0F);
    round_to(c.type, gradient);
    state.halves.push_back(halves_of(c.type, gradient));
    state.gradient.push_back(std::move(gradient));
    state.residual.push_back(make_input(Input::normal, c.at[p].second, seed + 1));
  }
  return state;
}

using QuantizeBody = std::function<void(const QuantizeCase&, const kernels::ValueFormat&,
                                        float decay, QuantizeState&)>;

inline void quantize_by_reference_with(const kernels::RandomKey& key, const QuantizeCase& c,
                                       const kernels::ValueFormat& format, float decay,
                                       QuantizeState& state) {
  Workspace workspace;
  const auto pieces = state.pieces(c);
  const Exec exec{.place = lab::kReference, .workspace = &workspace};
  const auto messages = state.messages();
  std::uint32_t not_finite = 0;
  kernels::feedback_quantize(exec, {.pieces = kernels::place<kernels::FeedbackPiece>(exec, pieces),
                                    .decay = decay,
                                    .partition = c.partition(),
                                    .self = c.self,
                                    .format = format,
                                    .key = key,
                                    .out = messages,
                                    .own = state.own,
                                    .not_finite = &not_finite});
  state.finite = not_finite == 0;
}

inline void quantize_by_reference(const QuantizeCase& c, const kernels::ValueFormat& format,
                                  float decay, QuantizeState& state) {
  quantize_by_reference_with(kQuantizeKey, c, format, decay, state);
}

inline testing::Message described(const QuantizeCase& c, const kernels::ValueFormat& format) {
  return testing::Message() << name_of(format) << ", " << c.count << " values of " << c.at.size()
                            << " pieces, " << c.input << ", +" << c.offset << ", " << c.owners
                            << " owners";
}

inline void expect_equals_reference(const QuantizeCase& c, const kernels::ValueFormat& format,
                                    const QuantizeBody& body) {
  SCOPED_TRACE(described(c, format));
  constexpr float kDecay = 0.875F;
  QuantizeState got = begin(c, format), expected = begin(c, format);
  body(c, format, kDecay, got);
  quantize_by_reference(c, format, kDecay, expected);
  EXPECT_EQ(got.finite, expected.finite);
  EXPECT_TRUE(got.out == expected.out);
  EXPECT_TRUE(same_bits_or_nan(got.own, expected.own));
  for (std::size_t p = 0; p < c.at.size(); ++p) {
    EXPECT_TRUE(same_bits(got.gradient[p], expected.gradient[p])) << "piece " << p;
    EXPECT_TRUE(got.halves[p] == expected.halves[p]) << "piece " << p;
    EXPECT_TRUE(same_bits(got.residual[p], expected.residual[p])) << "piece " << p;
  }
}

inline std::vector<kernels::ValueFormat> default_formats() {
  std::vector<kernels::ValueFormat> formats;
  for (const kernels::ValueFormat& format : all_formats()) {
    if (format.block == format.coding->default_block) formats.push_back(format);
  }
  return formats;
}

/// One piece holds all positions. The sizes lie around those of vectors, warps, units and tiles.
inline std::vector<QuantizeCase> awkward_sizes() {
  std::vector<QuantizeCase> cases;
  for (const std::size_t count : {0U, 1U, 3U, 31U, 32U, 33U, 63U, 65U, 257U, 2048U, 4095U, 4097U}) {
    cases.push_back({.at = {{0, count}}, .count = count});
  }
  return cases;
}

/// Many pieces, with gaps and without, and with gaps at both ends. Some pieces are shorter than a
/// unit, and one is empty.
inline std::vector<QuantizeCase> piece_lists() {
  return {
      {.at = {{0, 100}, {128, 1}, {192, 64}, {256, 65}, {1024, 0}, {1024, 3000}, {4096, 1234}},
       .count = 5330},
      {.at = {{64, 3000}, {3072, 63}, {5056, 68}}, .count = 6000},
      {.at = {{640, 1500}}, .count = 4500},
  };
}

/// The pieces of piece_lists, shared among owners. This rank is one of the owners, or none of them.
inline std::vector<QuantizeCase> shared_pieces() {
  std::vector<QuantizeCase> cases;
  for (const std::uint32_t owners : {1U, 2U, 3U, 7U}) {
    for (const std::uint32_t self : {owners - 1, 0xffffffffU}) {
      for (QuantizeCase c : piece_lists()) {
        c.owners = owners;
        c.self = self;
        cases.push_back(c);
      }
      // The last unit is cut short, and there are more owners than units.
      cases.push_back({.at = {{0, 65}}, .count = 65, .owners = owners, .self = self});
      cases.push_back({.at = {}, .count = 0, .owners = owners, .self = self});
    }
  }
  return cases;
}

}  // namespace winnow::tests
