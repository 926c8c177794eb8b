// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/candidates.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/kernels/inputs.hpp"
#include "tests/kernels/targets.hpp"

namespace winnow::tests {
namespace {

using kernels::cpu::Candidates;
using kernels::cpu::Cut;

Cut reference_cut(std::vector<float> values, std::size_t k) {
  std::vector<std::uint32_t> keys(values.size());
  std::ranges::transform(values, keys.begin(), kernels::cpu::magnitude);
  std::ranges::sort(keys, std::greater());
  const std::uint32_t cut = keys[k - 1];
  const auto above = static_cast<std::size_t>(std::ranges::find(keys, cut) - keys.begin());
  return {cut, k - above};
}

/// One thread's candidates each, of unequal length.
std::vector<Candidates> in_parts(std::vector<float>& values, std::size_t parts) {
  std::vector<Candidates> made(parts);
  std::size_t begin = 0;
  for (std::size_t p = 0; p < parts; ++p) {
    const std::size_t end = values.size() * (p + 1) * (p + 1) / (parts * parts);
    made[p].value = values.data() + begin;
    made[p].size = end - begin;
    begin = end;
  }
  return made;
}

void expect_cut(std::vector<float> values, std::size_t k) {
  const Cut expected = reference_cut(values, k);
  values.reserve(values.size() + Candidates::kSlack);
  for_each_target([&] {
    for (const std::size_t parts : {1U, 3U}) {
      std::vector<Candidates> candidates = in_parts(values, parts);
      const Cut cut = kernels::cpu::find_cut(candidates, k);
      EXPECT_EQ(cut.magnitude, expected.magnitude) << values.size() << " " << k << " " << parts;
      EXPECT_EQ(cut.ties, expected.ties) << values.size() << " " << k << " " << parts;
    }
  });
}

TEST(FindCut, IsThatOfASortedList) {
  for (const Input input : {Input::normal, Input::all_equal, Input::ascending, Input::ties}) {
    for (const std::size_t size : {1u, 17u, 64u, 65u, 3000u, 60'000u}) {
      const std::vector<float> values = make_input(input, size, 11);
      for (const std::size_t k : {std::size_t{1}, size / 2 + 1, size - size / 11, size})
        expect_cut(values, k);
    }
  }
}

/// From denormals to the greatest floats: offsets have 31 bits, and ranges end near 2^31.
TEST(FindCut, MagnitudesMayDifferAsMuchAsFloatsCan) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < 70; ++i) {
    const std::uint32_t magnitude = i % 2 == 0 ? 0x00400000U + i : 0x7f7fffffU - 0x4000U * i;
    values.push_back(std::bit_cast<float>(magnitude));
  }
  for (std::size_t k = 1; k <= values.size(); ++k) expect_cut(values, k);
}

/// Samples of many candidates are taken at equal distances: elements there say nothing of others.
TEST(FindCut, ASampleMayBeWrong) {
  constexpr std::size_t kSize = 1 << 16, kDistance = 1 << 8;
  for (const float sampled : {1e-6F, 1e6F}) {
    std::vector<float> values = make_input(Input::normal, kSize, 12);
    for (std::size_t i = 0; i < kSize; i += kDistance) values[i] = sampled;
    for (const std::size_t k : {std::size_t{1}, kSize / 2, kSize - 1}) expect_cut(values, k);
  }
}

}  // namespace
}  // namespace winnow::tests
