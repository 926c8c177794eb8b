// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace winnow::tests {

enum class Support { clustered, strided, dense, first, last, random };
inline constexpr Support kSupports[] = {Support::clustered, Support::strided, Support::dense,
                                        Support::first,     Support::last,    Support::random};

/// An ascending support in [0, count).
inline std::vector<std::uint32_t> make_support(Support support, std::uint32_t count,
                                               std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint32_t> index;
  const std::uint32_t some = count / 50 + (count > 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    bool in = false;
    switch (support) {
      case Support::clustered:
        in = i / 97 % 41 == 3 + seed % 7;
        break;
      case Support::strided:
        in = i % 64 == 63 - seed % 3;
        break;
      case Support::dense:
        in = true;
        break;
      case Support::first:
        in = i < some;
        break;
      case Support::last:
        in = i >= count - some;
        break;
      case Support::random:
        in = random() % 100 == 0;
        break;
    }
    if (in) index.push_back(i);
  }
  return index;
}

inline std::string describe(Support support, std::uint64_t count) {
  return "support " + std::to_string(static_cast<int>(support)) + ", count " +
         std::to_string(count);
}

/// Counts around vector, tile and range borders.
inline constexpr std::uint32_t kSupportCounts[] = {0, 1, 31, 32, 33, 4095, 4097, (1 << 20) + 7};

}  // namespace winnow::tests
