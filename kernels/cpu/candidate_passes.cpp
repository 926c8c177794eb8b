// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/candidate_passes.hpp"

#include <algorithm>
#include <array>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/candidate_passes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef WINNOW_KERNELS_CPU_CANDIDATE_PASSES_ONCE
#define WINNOW_KERNELS_CPU_CANDIDATE_PASSES_ONCE
namespace winnow::kernels::cpu {

/// The numbers of the set bits of eight lanes, four bits each, by these bits.
constexpr auto kFoundLanes = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t bits = 0; bits < table.size(); ++bits) {
    std::uint32_t found = 0;
    for (std::uint32_t lane = 0; lane < 8; ++lane) {
      if ((bits >> lane & 1) != 0) table[bits] |= lane << 4 * found++;
    }
  }
  return table;
}();

}  // namespace winnow::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<std::int32_t, Candidates::kSlack>;
using Keys = hn::Vec<D>;
using Found = hn::Mask<D>;

HWY_INLINE Keys magnitudes(hn::Vec<hn::RebindToFloat<D>> x) {
  const D d;
  return hn::And(hn::BitCast(d, x), hn::Set(d, std::numeric_limits<std::int32_t>::max()));
}

/// each(begin, size) for vectors of [0, size); the last may have fewer elements than lanes: what
/// the others hold does not matter, but there is memory for them.
template <class Each>
HWY_INLINE void for_each_vector(std::size_t size, const Each& each) {
  const std::size_t lanes = hn::Lanes(D());
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) each(i, lanes);
  if (i < size) each(i, size - i);
}

/// each(keys, found) for vectors of a part's magnitudes; `found` are the lanes that hold one.
template <class Each>
HWY_INLINE void for_each_keys(const Candidates& part, const Each& each) {
  const hn::RebindToFloat<D> values;
  for_each_vector(part.size, [&](std::size_t i, std::size_t size) HWY_ATTR {
    each(magnitudes(hn::LoadU(values, part.value + i)), hn::FirstN(D(), size));
  });
}

/// Moves the found lanes of `vector` to `out`, a whole vector with something behind them: some
/// processors take a hundred times longer for a store of the lanes alone.
template <class V, class M>
HWY_INLINE void compress(V vector, M found, hn::TFromD<hn::DFromV<V>>* out) {
  using DV = hn::DFromV<V>;
  const DV d;
  if constexpr (hn::MaxLanes(DV()) > 8) {
    hn::StoreU(hn::Compress(vector, found), d, out);
  } else {
    // Highway's own table for so few lanes is copied to the stack for each vector by GCC 12.
    const hn::RebindToUnsigned<DV> d32;
    std::uint8_t bits[8];
    hn::StoreMaskBits(d, found, bits);
    const auto lanes =
        hn::Shr(hn::Set(d32, kFoundLanes[bits[0]]), hn::ShiftLeft<2>(hn::Iota(d32, 0)));
    const auto from = hn::And(lanes, hn::Set(d32, static_cast<std::uint32_t>(hn::Lanes(d) - 1)));
    hn::StoreU(hn::TableLookupLanes(vector, hn::IndicesFromVec(d, from)), d, out);
  }
}

void find_span_of(Candidates& part) {
  const D d;
  auto least = hn::Set(d, std::numeric_limits<std::int32_t>::max());
  auto greatest = hn::Zero(d);
  for_each_keys(part, [&](Keys keys, Found found) HWY_ATTR {
    least = hn::Min(least, hn::IfThenElse(found, keys, least));
    greatest = hn::Max(greatest, hn::IfThenElseZero(found, keys));
  });
  part.span = {hn::GetLane(hn::MinOfLanes(d, least)), hn::GetLane(hn::MaxOfLanes(d, greatest))};
}

void count_digits_of(Candidates& part, MagnitudeRange range, std::uint32_t shift,
                     std::size_t bins) {
  constexpr std::size_t kBuffered = 256;
  const D d;
  const auto first = hn::Set(d, range.first);
  const auto below = hn::Set(d, range.first - 1), last = hn::Set(d, range.last);
  std::int32_t digits[kBuffered + Candidates::kSlack];
  std::size_t buffered = 0;
  std::fill_n(part.histogram.begin(), bins, 0U);
  const auto count = [&] {
    for (std::size_t i = 0; i < buffered; ++i)
      ++part.histogram[static_cast<std::uint32_t>(digits[i]) >> shift];
    buffered = 0;
  };
  std::size_t above = 0;
  for_each_keys(part, [&](Keys keys, Found found) HWY_ATTR {
    const auto is_above = hn::And(found, hn::Gt(keys, last));
    const auto is_in = hn::AndNot(is_above, hn::And(found, hn::Gt(keys, below)));
    above += hn::CountTrue(d, is_above);
    compress(hn::Sub(keys, first), is_in, digits + buffered);
    buffered += hn::CountTrue(d, is_in);
    if (buffered >= kBuffered) count();
  });
  count();
  part.above = above;
}

/// Magnitudes, and -1 behind the last. Signed: every processor compares vectors of these.
using Few = std::array<std::int32_t, kFew + Candidates::kSlack>;

/// The cut among the first `size` keys, at most kRoom. Each is compared with all at once, in
/// vectors, which takes no branch that chance decides and no sum over a vector.
template <std::size_t kRoom>
Cut cut_compared(const Few& few, std::size_t size, std::size_t rank) {
  std::array<std::int32_t, kRoom> above = {};  // how many keys are
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < kRoom; ++j) above[j] += few[i] > few[j] ? 1 : 0;
  }
  // The lowest of the first `rank` has the most above it, but fewer than `rank`.
  std::int32_t most = -1, key = 0;  // of keys that tie, all have as many above
  for (std::size_t j = 0; j < kRoom; ++j) {
    most = std::max(most, above[j] < static_cast<std::int32_t>(rank) ? above[j] : -1);
  }
  for (std::size_t j = 0; j < kRoom; ++j) key |= above[j] == most ? few[j] : 0;
  return {static_cast<std::uint32_t>(key), rank - static_cast<std::size_t>(most)};
}

std::size_t copy_range_of(const Candidates& part, MagnitudeRange range, std::int32_t* out) {
  const D d;
  const auto below = hn::Set(d, range.first - 1), last = hn::Set(d, range.last);
  std::size_t size = 0;
  for_each_keys(part, [&](Keys keys, Found found) HWY_ATTR {
    const auto is_in = hn::AndNot(hn::Gt(keys, last), hn::And(found, hn::Gt(keys, below)));
    compress(keys, is_in, out + size);
    size += hn::CountTrue(d, is_in);
  });
  return size;
}

Cut cut_few_of(std::span<const Candidates> parts, MagnitudeRange range, std::size_t rank) {
  Few few;
  std::size_t size = 0;
  for (const Candidates& part : parts) size += copy_range_of(part, range, few.data() + size);
  std::fill(few.begin() + static_cast<std::ptrdiff_t>(size), few.end(), -1);
  if (size <= kFew / 4) return cut_compared<kFew / 4>(few, size, rank);
  if (size <= kFew / 2) return cut_compared<kFew / 2>(few, size, rank);
  return cut_compared<kFew>(few, size, rank);
}

CutCount count_cut_of(const Candidates& part, std::int32_t magnitude) {
  const D d;
  const auto cut = hn::Set(d, magnitude);
  CutCount count{0, 0};
  for_each_keys(part, [&](Keys keys, Found found) HWY_ATTR {
    count.above += hn::CountTrue(d, hn::And(found, hn::Gt(keys, cut)));
    count.ties += hn::CountTrue(d, hn::And(found, hn::Eq(keys, cut)));
  });
  return count;
}

/// `ties` without all but the first `most`.
HWY_INLINE Found first_ties(Found ties, std::size_t most) {
  const D d;
  std::int32_t is_tie[Candidates::kSlack];
  hn::StoreU(hn::VecFromMask(d, ties), d, is_tie);
  for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane) {
    if (is_tie[lane] == 0) continue;
    if (most == 0) is_tie[lane] = 0;
    most -= most > 0 ? 1 : 0;
  }
  return hn::MaskFromVec(hn::LoadU(d, is_tie));
}

std::size_t apply_cut_of(const Candidates& part, Cut cut, float* residual, std::uint32_t* index,
                         float* value) {
  // In chunks: the residual's cache lines, long evicted, are fetched together; stores that missed
  // one by one would wait for each other.
  constexpr std::size_t kChunk = 256;
  constexpr std::size_t kRoom = kChunk + Candidates::kSlack;
  std::uint32_t kept_index[kRoom], back_index[kRoom];
  float kept_value[kRoom], back_value[kRoom];
  const D d;
  const hn::RebindToUnsigned<D> indices;
  const hn::RebindToFloat<D> values;
  const auto magnitude = hn::Set(d, static_cast<std::int32_t>(cut.magnitude));
  std::size_t kept = 0;
  for (std::size_t begin = 0; begin < part.size; begin += kChunk) {
    const std::size_t end = std::min(begin + kChunk, part.size);
    std::size_t keeps = 0, others = 0;
    for_each_vector(end - begin, [&](std::size_t at, std::size_t size) HWY_ATTR {
      const auto i = hn::LoadU(indices, part.index + begin + at);
      const auto x = hn::LoadU(values, part.value + begin + at);
      const auto keys = magnitudes(x);
      const auto found = hn::FirstN(d, size);
      auto keep = hn::And(found, hn::Gt(keys, magnitude));
      const auto ties = hn::And(found, hn::Eq(keys, magnitude));
      const std::size_t met = hn::CountTrue(d, ties);
      keep = hn::Or(keep, HWY_LIKELY(met <= cut.ties) ? ties : first_ties(ties, cut.ties));
      cut.ties -= std::min(cut.ties, met);
      const auto other = hn::AndNot(keep, found);
      compress(i, hn::RebindMask(indices, keep), kept_index + keeps);
      compress(x, hn::RebindMask(values, keep), kept_value + keeps);
      compress(i, hn::RebindMask(indices, other), back_index + others);
      compress(x, hn::RebindMask(values, other), back_value + others);
      keeps += hn::CountTrue(d, keep);
      others += hn::CountTrue(d, other);
    });
    if (residual == nullptr) others = 0;
    for (std::size_t o = 0; o < others; ++o) __builtin_prefetch(residual + back_index[o], 1);
    for (std::size_t o = 0; o < others; ++o) residual[back_index[o]] = back_value[o];
    std::copy_n(kept_index, keeps, index + kept);
    std::copy_n(kept_value, keeps, value + kept);
    kept += keeps;
  }
  return kept;
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(find_span_of);
HWY_EXPORT(count_digits_of);
HWY_EXPORT(cut_few_of);
HWY_EXPORT(count_cut_of);
HWY_EXPORT(apply_cut_of);

void find_span(Candidates& part) {
  HWY_DYNAMIC_DISPATCH(find_span_of)(part);
}

void count_digits(Candidates& part, MagnitudeRange range, std::uint32_t shift, std::size_t bins) {
  HWY_DYNAMIC_DISPATCH(count_digits_of)(part, range, shift, bins);
}

Cut cut_few(std::span<const Candidates> parts, MagnitudeRange range, std::size_t rank) {
  return HWY_DYNAMIC_DISPATCH(cut_few_of)(parts, range, rank);
}

CutCount count_cut(const Candidates& part, std::uint32_t magnitude) {
  return HWY_DYNAMIC_DISPATCH(count_cut_of)(part, static_cast<std::int32_t>(magnitude));
}

std::size_t apply_cut(const Candidates& part, Cut cut, float* residual, std::uint32_t* index,
                      float* value) {
  return HWY_DYNAMIC_DISPATCH(apply_cut_of)(part, cut, residual, index, value);
}

}  // namespace winnow::kernels::cpu
#endif
