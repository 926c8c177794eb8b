// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Included once for each Highway target.
#if defined(WINNOW_KERNELS_CPU_VALUES_PHILOX) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_VALUES_PHILOX
#undef WINNOW_KERNELS_CPU_VALUES_PHILOX
#else
#define WINNOW_KERNELS_CPU_VALUES_PHILOX
#endif

#include <hwy/highway.h>

#include "kernels/arithmetic/philox.hpp"
#include "kernels/cpu/values/body.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR  // which has plain_body.hpp

/// Draws the random words of units of one message.
class RandomUnits {
 public:
  explicit RandomUnits(const RandomKey& name) : rank_(name.rank), stage_(name.stage) {
    Philox::Key key = Philox::key(name);
    for (int round = 0; round < Philox::kRounds; ++round) {
      keys_[2 * round] = key[0];
      keys_[2 * round + 1] = key[1];
      key = {key[0] + Philox::kRaise0, key[1] + Philox::kRaise1};
    }
  }

  /// For the unit that starts with value `first`. A word lies in the lower half of a lane of 64
  /// bits; what the upper halves hold does not matter until they are stored.
  HWY_INLINE void draw(std::uint64_t first, std::uint32_t* HWY_RESTRICT words) const {
    const hn::CappedTag<std::uint64_t, 8> d;
    const hn::Repartition<std::uint32_t, decltype(d)> d32;
    const std::size_t lanes = hn::Lanes(d);
    const auto multiply0 = hn::Set(d32, Philox::kMultiply0);
    const auto multiply1 = hn::Set(d32, Philox::kMultiply1);
    const auto low = hn::Set(d, std::uint64_t{0xffffffff});
    for (std::size_t i = 0; i < kUnit / 4; i += lanes) {
      auto c0 = hn::Add(hn::Iota(d, 0), hn::Set(d, first / 4 + i));
      auto c1 = hn::ShiftRight<32>(c0);
      auto c2 = hn::Set(d, rank_);
      auto c3 = hn::Set(d, stage_);
      for (int round = 0; round < Philox::kRounds; ++round) {
        const auto a = hn::MulEven(multiply0, hn::BitCast(d32, c0));
        const auto b = hn::MulEven(multiply1, hn::BitCast(d32, c2));
        c0 = hn::Xor(hn::ShiftRight<32>(b), hn::Xor(c1, hn::Set(d, keys_[2 * round])));
        c1 = b;
        c2 = hn::Xor(hn::ShiftRight<32>(a), hn::Xor(c3, hn::Set(d, keys_[2 * round + 1])));
        c3 = a;
      }
      const auto c01 = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
      const auto c23 = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
      hn::StoreInterleaved2(c01, c23, d, reinterpret_cast<std::uint64_t*>(words + 4 * i));
    }
  }

 private:
  std::uint64_t rank_, stage_;
  std::uint64_t keys_[2 * Philox::kRounds];
};

#endif  // HWY_SCALAR

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
