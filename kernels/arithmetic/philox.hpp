// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace winnow::kernels {

/// Names the random numbers of one message's stochastic rounding, so that they are the same
/// whatever the place, target and threads, and differ between calls, ranks and stages.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t call = 0;
  std::uint32_t rank = 0;
  std::uint32_t stage = 0;
  /// If not null, the call is what lies here when the work runs: in the memory of its place.
  const std::uint64_t* device_call = nullptr;

  constexpr std::uint64_t call_now() const { return device_call != nullptr ? *device_call : call; }
};

/// Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers:
/// As Easy as 1, 2, 3; SC 2011). One counter gives four words of 32 bits.
struct Philox {
  using Words = std::array<std::uint32_t, 4>;
  using Key = std::array<std::uint32_t, 2>;

  static constexpr int kRounds = 10;
  static constexpr std::uint32_t kMultiply0 = 0xd2511f53, kMultiply1 = 0xcd9e8d57;
  static constexpr std::uint32_t kRaise0 = 0x9e3779b9, kRaise1 = 0xbb67ae85;

  static constexpr Words words(Words counter, Key key) {
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t a = std::uint64_t{kMultiply0} * counter[0];
      const std::uint64_t b = std::uint64_t{kMultiply1} * counter[2];
      counter = {
          static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
      key = {key[0] + kRaise0, key[1] + kRaise1};
    }
    return counter;
  }

  /// The low and the high half of mix(seed + call * 0x9e3779b97f4a7c15 mod 2^64), where mix is the
  /// bijective finaliser of SplitMix64 (Steele, Lea, Flood: OOPSLA 2014): calls under one seed
  /// never share a key.
  static constexpr Key key(const RandomKey& name) {
    std::uint64_t z = name.seed + name.call_now() * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return {static_cast<std::uint32_t>(z), static_cast<std::uint32_t>(z >> 32)};
  }

  /// Words 0 to 3 of this counter belong to the values v = 4 * quarter, ..., 4 * quarter + 3. It is
  /// (low half of quarter, high half of quarter, rank, stage).
  static constexpr Words counter(const RandomKey& name, std::uint64_t quarter) {
    return {static_cast<std::uint32_t>(quarter), static_cast<std::uint32_t>(quarter >> 32),
            name.rank, name.stage};
  }
};

/// The random number of value `v`: word v mod 4 of counter v / 4.
constexpr std::uint32_t random_word(const RandomKey& name, std::uint64_t v) {
  return Philox::words(Philox::counter(name, v / 4), Philox::key(name))[v % 4];
}

/// Index i of k, drawn from its stratum of `count` positions.
constexpr std::uint32_t drawn_index(std::uint64_t count, std::uint64_t k, const RandomKey& name,
                                    std::uint64_t i) {
  const std::uint64_t begin = i * count / k, end = (i + 1) * count / k;
  return static_cast<std::uint32_t>(begin + (random_word(name, i) * (end - begin) >> 32));
}

}  // namespace winnow::kernels
