// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/half.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/value_coding.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/supports.hpp"
#include "tests/kernels/value_formats.hpp"

namespace winnow::tests {

// Cases of sums for bodies that run on a device, or on the model of one.

/// One rank's term: positions, or no indices for every position, and values of all magnitudes, so
/// that the order of a sum shows.
struct SumList {
  std::vector<std::uint32_t> index;
  std::vector<float> value;
  kernels::ValueFormat format = {};       ///< of `coded`
  std::vector<std::uint64_t> coded = {};  ///< 64-bit words; then `value` is what they decode to

  kernels::SparseView view() const { return {index, value}; }
  /// The term as a device gets it; its spans may lie elsewhere.
  kernels::Term term() const {
    if (coded.empty()) return {.index = index, .value = value};
    return {.index = index,
            .format = format,
            .coded = std::as_bytes(std::span(coded)),
            .count = value.size()};
  }
};

/// The list with its values coded.
inline SumList code(SumList list, const kernels::ValueFormat& format) {
  const std::size_t k = list.value.size();
  list.format = format;
  list.coded.resize(kernels::value_bytes(format, k) / 8);
  const auto bytes = std::as_writable_bytes(std::span(list.coded));
  kernels::quantize({.place = lab::kReference}, format, {}, list.value, bytes);
  kernels::dequantize({.place = lab::kReference}, format, k, bytes, 0, list.value);
  return list;
}

inline SumList make_list(Support support, std::uint32_t count, std::uint32_t seed, Input input) {
  SumList list{make_support(support, count, seed), {}};
  list.value = make_input(input, list.index.size(), seed);
  return list;
}

/// Lists of several ranks that overlap, one of them empty.
inline std::vector<SumList> make_lists(std::size_t ranks, std::uint32_t count, Input input) {
  std::vector<SumList> lists;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    lists.push_back(make_list(kSupports[r % 6], r == 5 ? 0 : count, r, input));
  }
  return lists;
}

/// Sums of many sizes in one memory, with elements before, between and behind them that stay: some
/// fill several tiles, and many share one.
struct ManySums {
  std::vector<kernels::PlacedSpan> spans;  ///< in `memory`
  std::vector<float> memory;
  std::uint32_t positions = 0;

  explicit ManySums(float before) {
    struct Place {
      std::size_t offset, size;
      std::uint64_t base;
    };
    std::vector<Place> places;
    std::size_t offset = 3;
    std::uint64_t base = 128;
    const auto add = [&](std::size_t size, std::uint64_t gap) {
      places.push_back({offset, size, base});
      offset += size + 5;
      base = (base + size + 63) / 64 * 64 + gap;
    };
    for (const std::size_t size : {1U, 63U, 64U, 65U, 5000U, 2U, 9000U, 64U, 40'000U, 1U})
      add(size, 0);
    for (std::size_t i = 0; i < 200; ++i) add(1 + i * 7 % 130, i % 5 == 0 ? 64 : 0);
    add(4096, 8192);
    add(100, 0);
    memory.assign(offset, before);
    for (const auto& [at, size, first] : places)
      spans.push_back({std::span(memory).subspan(at, size), first});
    positions = static_cast<std::uint32_t>(base + 100);
  }
  ManySums(const ManySums&) = delete;
  ManySums& operator=(const ManySums&) = delete;

  /// The same spans in memory of the same size elsewhere.
  std::vector<kernels::PlacedSpan> in(std::span<float> other) const {
    std::vector<kernels::PlacedSpan> there = spans;
    for (kernels::PlacedSpan& span : there) {
      const auto at = static_cast<std::size_t>(span.elements.floats().data() - memory.data());
      span.elements = other.subspan(at, span.elements.size());
    }
    return there;
  }
};

/// Terms for ManySums, which also name what is between the sums: lists, and at last every position.
inline std::vector<SumList> terms_for(const ManySums& sums, std::size_t lists, bool whole) {
  std::vector<SumList> terms;
  for (std::uint32_t r = 0; r < lists; ++r)
    terms.push_back(
        make_list(r == 1 ? Support::dense : Support::random, sums.positions, r, Input::normal));
  if (whole) terms.push_back({{}, make_input(Input::normal, sums.positions, 11)});
  return terms;
}

/// Runs kernels::ordered_sum of lists, at any place. Returns whether all sums are finite.
using SumBody = std::function<bool(std::span<const SumList>, std::uint64_t begin,
                                   std::span<float> sum, float factor)>;

inline void expect_sums_equal_reference(std::span<const SumList> lists, std::uint32_t count,
                                        std::uint64_t begin, const SumBody& body) {
  SCOPED_TRACE(testing::Message() << lists.size() << " terms, count " << count << ", from "
                                  << begin);
  std::vector<kernels::Term> terms;
  for (const SumList& list : lists) terms.push_back({.index = list.index, .value = list.value});
  for (const float factor : {1.0F, 1.0F / 3}) {
    // The output holds other values before.
    std::vector<float> got(count - begin, 5), expected = got;
    std::uint32_t not_finite = 0;
    kernels::ordered_sum({.place = lab::kReference}, {.terms = {terms},
                                                      .sums = kernels::alone({expected, begin}),
                                                      .factor = factor,
                                                      .not_finite = &not_finite});
    EXPECT_EQ(body(lists, begin, got, factor), not_finite == 0);
    EXPECT_TRUE(same_bits_or_nan(got, expected));
  }
}

/// The same of elements of 16 bits. `kept` is a residual of them: their rests go there in a second
/// pass.
struct HalfSum {
  std::span<const SumList> lists;
  std::uint64_t begin;
  Elements sum;
  float factor;
  std::span<float> kept;
  kernels::RestKeeper keeper;
};
/// What a sum said.
struct SumSaid {
  bool not_finite, too_large;
  bool operator==(const SumSaid&) const = default;
};
using HalfSumBody = std::function<SumSaid(const HalfSum&)>;

/// Sums are float32's, rounded once; of what is too large for that, the rest is kept.
inline void expect_half_sums_equal_rounded_ones(const HalfSumBody& body) {
  for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
    for (const Input input : {Input::normal, Input::cauchy, Input::denormal}) {
      for (const std::uint32_t count : {1U, 33U, 4097U, 13'001U}) {
        for (const bool whole : {false, true}) {
          std::vector<SumList> lists = make_lists(7, count, input);
          if (whole) lists.push_back({.index = {}, .value = make_input(input, count, 9)});
          std::vector<kernels::Term> terms;
          for (const SumList& list : lists) terms.push_back(list.term());
          for (const std::uint64_t begin : {0U, 1U, 67U}) {
            if (begin > count) continue;
            SCOPED_TRACE(testing::Message() << input << ", " << count << ", " << whole);
            std::vector<float> wide(count - begin);
            const bool is_large = type == ElementType::bf16 && input == Input::normal && !whole;
            const float factor = is_large ? 2e38F : input == Input::cauchy ? 100.0F : 1.0F / 3;
            const Exec reference{.place = lab::kReference};
            const kernels::RestKeeper keeper{{2, count}, 1, 2};
            std::uint32_t not_finite = 0, too_large = 0;
            kernels::ordered_sum(reference, {.terms = {terms},
                                             .sums = kernels::alone({wide, begin}),
                                             .factor = factor,
                                             .not_finite = &not_finite});
            const std::vector<float> before = make_input(Input::normal, wide.size(), 12);
            std::vector<float> expected_kept = before, kept = before;
            kernels::keep_rest(reference, {.type = type,
                                           .sums = wide,
                                           .residual = expected_kept,
                                           .base = begin,
                                           .keeper = keeper,
                                           .too_large = &too_large});
            std::vector<std::uint16_t> expected(wide.size()), got(wide.size());
            kernels::narrow(reference, type, wide, expected);
            const SumSaid said =
                body({lists, begin, {got.data(), got.size(), type}, factor, kept, keeper});
            EXPECT_EQ(said.not_finite, not_finite != 0);
            // In one place sums that are infinite may hide others.
            if (!said.not_finite) {
              EXPECT_EQ(said.too_large, too_large != 0);
              EXPECT_TRUE(same_bits(kept, expected_kept));
            }
            EXPECT_EQ(got, expected);
          }
        }
      }
    }
  }
}

inline void expect_sums_equal_reference(std::size_t ranks, std::uint32_t count, std::uint64_t begin,
                                        Input input, const SumBody& body) {
  SCOPED_TRACE(input);
  expect_sums_equal_reference(make_lists(ranks, count, input), count, begin, body);
}

/// Terms of all forms, in every coding: lists, and values at every position.
inline void expect_coded_sums_equal_reference(const SumBody& body) {
  for (const std::uint32_t count : {1U, 33U, 4095U, 9001U}) {
    std::vector<SumList> terms = make_lists(3, count, Input::normal);
    terms.push_back({.index = {}, .value = make_input(Input::cauchy, count, 9)});
    for (const kernels::ValueFormat& format : all_formats()) {
      if (format.rounding != kernels::Rounding::nearest) continue;
      const auto seed = static_cast<std::uint32_t>(terms.size());
      terms.push_back(code(make_list(Support::random, count, seed, Input::normal), format));
      terms.push_back(code({{}, make_input(Input::normal, count, seed)}, format));
    }
    for (const std::uint64_t begin : {0U, 1U, 67U, 4096U}) {
      if (begin <= count) expect_sums_equal_reference(terms, count, begin, body);
    }
  }
}

inline void expect_all_sums_equal_reference(const SumBody& body) {
  for (const std::uint32_t count : {0U, 1U, 31U, 32U, 33U, 4095U, 4097U, 13'001U}) {
    for (const std::size_t ranks : {0U, 1U, 2U, 8U}) {
      expect_sums_equal_reference(ranks, count, 0, Input::cauchy, body);
    }
  }
  expect_sums_equal_reference(70, 4500, 0, Input::cauchy, body);
  for (const Input input : {Input::denormal, Input::not_finite, Input::all_zero}) {
    expect_sums_equal_reference(7, 9001, 0, input, body);
  }
  for (const std::uint64_t begin : {1U, 64U, 4096U, 9000U}) {
    expect_sums_equal_reference(7, 9001, begin, Input::cauchy, body);
  }
}

}  // namespace winnow::tests
