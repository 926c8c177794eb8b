// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "kernels/arithmetic/partition.hpp"
#include "kernels/half.hpp"
#include "kernels/terms.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/cases/add_cases.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/supports.hpp"

namespace winnow::tests {

// Cases of add_owned, store_owned and write_owned for bodies of any place, and on the SIMT machine.

/// Elements of a part, with gaps between the pieces.
struct OwnedPiece {
  std::uint64_t base;
  std::vector<float> elements;
};

enum class OwnedOp : std::uint8_t { add, store, write };

struct OwnedCase {
  OwnedOp op;
  kernels::Partition partition;
  std::uint32_t owner;
  SumList values;       ///< by local number
  std::uint64_t count;  ///< the number of values
  float factor = 1;     ///< write multiplies by it
};

/// Changes the pieces. Returns whether write wrote only finite elements.
using OwnedBody = std::function<bool(const OwnedCase&, std::vector<OwnedPiece>&)>;

/// The specification of add_owned, store_owned and write_owned.
inline bool move_by_definition(const OwnedCase& c, std::vector<OwnedPiece>& pieces) {
  bool finite = true;
  for (std::size_t j = 0; j < c.count; ++j) {
    const std::uint64_t local = c.values.index.empty() ? j : c.values.index[j];
    const std::uint64_t position = c.partition.position(c.owner, local);
    const float value = c.values.value[j];
    for (OwnedPiece& piece : pieces) {
      if (position < piece.base || position - piece.base >= piece.elements.size()) continue;
      float& element = piece.elements[position - piece.base];
      if (c.op == OwnedOp::add) element += value;
      if (c.op == OwnedOp::store && std::isfinite(value)) element = value;
      if (c.op != OwnedOp::write) continue;
      element = value * c.factor;
      finite = finite && std::isfinite(element);
    }
  }
  return finite;
}

/// The specification of take_owned.
inline std::vector<float> take_by_definition(const OwnedCase& c, std::vector<OwnedPiece>& pieces) {
  std::vector<float> taken(c.count);
  for (std::size_t j = 0; j < c.count; ++j) {
    const std::uint64_t local = c.values.index.empty() ? j : c.values.index[j];
    const std::uint64_t position = c.partition.position(c.owner, local);
    for (OwnedPiece& piece : pieces) {
      if (position < piece.base || position - piece.base >= piece.elements.size()) continue;
      taken[j] = std::exchange(piece.elements[position - piece.base], 0.0F);
    }
  }
  return taken;
}

inline void expect_moved(const OwnedCase& c, const std::vector<OwnedPiece>& pieces,
                         const OwnedBody& body) {
  std::vector<OwnedPiece> expected = pieces, got = pieces;
  const bool finite = move_by_definition(c, expected);
  EXPECT_EQ(body(c, got), finite);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    EXPECT_TRUE(same_bits(got[p].elements, expected[p].elements)) << "piece " << p;
  }
}

/// Pieces within `count` positions. The first may begin behind 0, one lies within a unit, and each
/// but the last ends before the next begins.
inline std::vector<OwnedPiece> make_pieces(std::uint32_t count) {
  std::vector<OwnedPiece> pieces;
  const std::uint64_t sizes[] = {100, 1, 64, count};
  std::uint64_t base = count > 1000 ? 64 : 0;
  for (const std::uint64_t size : sizes) {
    if (base >= count) break;
    const std::uint64_t fits = size < count - base ? size : count - base;
    pieces.push_back({base, make_input(Input::normal, fits, static_cast<std::uint32_t>(base))});
    base = (base + fits + 63) / 64 * 64;
  }
  return pieces;
}

/// Lists, and values for every local number; coded and not; whole lists and their first halves.
inline void expect_moves(const OwnedBody& body) {
  for (const OwnedOp op : {OwnedOp::add, OwnedOp::store, OwnedOp::write}) {
    for (const std::uint32_t count : {1U, 65U, 4097U}) {
      for (const std::uint32_t owners : {1U, 3U}) {
        const kernels::Partition partition(owners, count);
        for (std::uint32_t owner = 0; owner < owners; ++owner) {
          const auto locals = static_cast<std::uint32_t>(partition.local_count(owner));
          for (const Support support : {Support::dense, Support::random}) {
            SCOPED_TRACE(testing::Message() << "op " << static_cast<int>(op) << " owner " << owner
                                            << " of " << owners << ", " << count << " positions");
            SumList list = make_list(support, locals, owner, Input::normal);
            if (support == Support::dense) list.index.clear();
            const std::uint64_t k = list.value.size();
            const auto pieces = make_pieces(count);
            expect_moved({op, partition, owner, list, k, 0.3F}, pieces, body);
            expect_moved(
                {op, partition, owner, code(list, {&kernels::value_codings()[3], 64}), k, 0.3F},
                pieces, body);
            if (!list.index.empty()) {
              expect_moved({op, partition, owner, list, k / 2}, pieces, body);
            }
          }
        }
      }
    }
  }
}

/// Pieces of 16 bits with the numbers that are in others.
struct HalfPieces {
  std::vector<std::vector<std::uint16_t>> halves;
  std::vector<kernels::PlacedSpan> spans;

  HalfPieces(ElementType type, const std::vector<OwnedPiece>& pieces) {
    for (const OwnedPiece& piece : pieces) {
      auto& half = halves.emplace_back(piece.elements.size());
      kernels::narrow({.place = lab::kReference}, type, piece.elements, half);
    }
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      spans.push_back({{halves[p].data(), halves[p].size(), type}, pieces[p].base});
    }
  }
};

/// What a write to elements of 16 bits said.
struct Said {
  bool not_finite, too_large;
  bool operator==(const Said&) const = default;
};

/// Writes values to pieces of 16 bits. Then, with residuals at the same positions, keeps rests.
using HalfWriteBody = std::function<Said(
    const OwnedCase&, HalfPieces&, std::vector<OwnedPiece>& residuals, const kernels::RestKeeper&)>;

/// By their definition: what is too large becomes the largest finite element, and the rest goes
/// into a residual.
inline Said clip_by_definition(ElementType type, std::vector<OwnedPiece>& sums,
                               std::vector<OwnedPiece>& residuals,
                               const kernels::RestKeeper& keeper) {
  Said said{};
  for (std::size_t p = 0; p < sums.size(); ++p) {
    std::uint32_t too_large = 0;
    kernels::keep_rest({.place = lab::kReference}, {.type = type,
                                                    .sums = sums[p].elements,
                                                    .residual = residuals[p].elements,
                                                    .base = sums[p].base,
                                                    .keeper = keeper,
                                                    .too_large = &too_large});
    said.too_large = said.too_large || too_large != 0;
    for (const float sum : sums[p].elements)
      said.not_finite = said.not_finite || !std::isfinite(sum);
  }
  return said;
}

inline void expect_halves_written(const HalfWriteBody& body) {
  for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
    for (const std::uint32_t owners : {1U, 3U}) {
      for (const bool is_list : {true, false}) {
        for (const float factor : {0.3F, 1e5F, 3e38F}) {
          constexpr std::uint32_t kCount = 4097;
          const kernels::Partition partition(owners, kCount);
          const auto locals = static_cast<std::uint32_t>(partition.local_count(owners - 1));
          SumList list =
              make_list(is_list ? Support::random : Support::dense, locals, 3, Input::normal);
          if (!is_list) list.index.clear();
          const OwnedCase c{OwnedOp::write, partition, owners - 1, list, list.value.size(), factor};
          const auto pieces = make_pieces(kCount);
          HalfPieces got(type, pieces);
          std::vector<OwnedPiece> wide = pieces, kept = pieces, expected_kept = pieces;
          for (std::size_t p = 0; p < pieces.size(); ++p) {
            kernels::widen({.place = lab::kReference}, type, got.halves[p], wide[p].elements);
          }
          (void)move_by_definition(c, wide);
          const kernels::RestKeeper keeper{{2, kCount}, 1, 2};
          const Said expected_said = clip_by_definition(type, wide, expected_kept, keeper);
          const HalfPieces expected(type, wide);
          EXPECT_EQ(body(c, got, kept, keeper), expected_said);
          EXPECT_EQ(got.halves, expected.halves);
          for (std::size_t p = 0; p < pieces.size(); ++p) {
            EXPECT_TRUE(same_bits(kept[p].elements, expected_kept[p].elements));
          }
        }
      }
    }
  }
}

/// add adds values that are not finite, and store leaves them out. write writes them and reports
/// them; it also reports finite values whose product is not finite.
inline void expect_moves_of_infinities(const OwnedBody& body) {
  const kernels::Partition partition(2, 300);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const SumList list{.index = {0, 5, 64}, .value = {1, kInf, 2}};
  const SumList large{.index = {3}, .value = {std::numeric_limits<float>::max()}};
  for (const OwnedOp op : {OwnedOp::add, OwnedOp::store, OwnedOp::write}) {
    expect_moved({op, partition, 1, list, 3}, make_pieces(300), body);
    expect_moved({op, partition, 1, large, 1, 2}, make_pieces(300), body);
  }
}

}  // namespace winnow::tests
