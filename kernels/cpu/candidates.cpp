// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/candidates.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/cpu/parallel.hpp"

namespace winnow::kernels::cpu {

// Radix selection of the k-th largest magnitude, digit by digit from the top, within the span that
// the candidates cover: offset = magnitude - lowest. Candidates lie close above a bound, so the
// first digit of the offset parts them finely, where that of the magnitude would be the same for
// nearly all. The few that share its digits are then compared.
//   base   lowest + the digits of the k-th offset found so far
//   width  of the range from base that shares these digits; shift: of the next digit
//   rank   1-based rank of the k-th among the candidates in that range, of which there are `left`

namespace {

constexpr std::size_t kFew = 64;           // sorting so many takes less than another histogram
constexpr std::size_t kOneThread = 32768;  // candidates that one thread looks through for them

void find_span(Candidates& part) {
  std::uint32_t lowest = std::numeric_limits<std::uint32_t>::max(), highest = 0;
  for (std::size_t j = 0; j < part.size; ++j) {
    lowest = std::min(lowest, magnitude(part.value[j]));
    highest = std::max(highest, magnitude(part.value[j]));
  }
  part.lowest = lowest;
  part.highest = highest;
}

/// Counts the magnitudes in [base, base + width) by (magnitude - base) >> shift < bins.
void count_digits(Candidates& part, std::uint32_t base, std::uint32_t width, std::uint32_t shift,
                  std::size_t bins) {
  std::fill_n(part.histogram.begin(), bins, 0U);
  for (const float x : std::span(part.value, part.size)) {
    const std::uint32_t offset = magnitude(x) - base;
    if (offset < width) ++part.histogram[offset >> shift];
  }
}

/// Magnitudes, and -1 behind the last. Signed: every processor compares vectors of these.
using Few = std::array<std::int32_t, kFew>;

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

/// The cut among the candidates in [base, base + width), at most kFew.
Cut cut_few(std::span<const Candidates> parts, std::uint32_t base, std::uint32_t width,
            std::size_t rank) {
  Few few;
  few.fill(-1);
  std::size_t size = 0;
  for (const Candidates& part : parts) {
    for (const float x : std::span(part.value, part.size)) {
      const std::uint32_t key = magnitude(x);
      if (key - base < width) few[size++] = static_cast<std::int32_t>(key);
    }
  }
  if (size <= kFew / 4) return cut_compared<kFew / 4>(few, size, rank);
  if (size <= kFew / 2) return cut_compared<kFew / 2>(few, size, rank);
  return cut_compared<kFew>(few, size, rank);
}

}  // namespace

Cut find_cut(std::span<Candidates> parts, std::size_t k) {
  const std::size_t all = held(parts);
  if (all <= kFew) return cut_few(parts, 0, std::numeric_limits<std::uint32_t>::max(), k);
  for_each_part(parts.size(), [&](std::size_t p) { find_span(parts[p]); });
  std::uint32_t lowest = std::numeric_limits<std::uint32_t>::max(), highest = 0;
  for (const Candidates& part : parts) {
    lowest = std::min(lowest, part.lowest);
    highest = std::max(highest, part.highest);
  }
  const auto most_bits =
      std::clamp(static_cast<std::uint32_t>(std::bit_width(all)), 4U, Candidates::kDigitBits);
  std::size_t rank = k, left = all;
  std::uint32_t base = lowest;
  auto shift = static_cast<std::uint32_t>(std::bit_width(highest - lowest));
  while (shift > 0) {
    const std::uint32_t width = 1u << shift;
    if (left <= kFew && (parts.size() == 1 || all <= kOneThread))
      return cut_few(parts, base, width, rank);
    const std::uint32_t bits = std::min(shift, most_bits);
    shift -= bits;
    std::uint32_t digit = 1u << bits;
    for_each_part(parts.size(),
                  [&](std::size_t p) { count_digits(parts[p], base, width, shift, digit); });
    while (true) {
      --digit;
      left = 0;
      for (const Candidates& part : parts) left += part.histogram[digit];
      if (left >= rank) break;
      rank -= left;
    }
    base += digit << shift;
  }
  return {base, rank};
}

CutCount count_cut(const Candidates& part, std::uint32_t magnitude_of_cut) {
  CutCount count{0, 0};
  for (std::size_t j = 0; j < part.size; ++j) {
    const std::uint32_t key = magnitude(part.value[j]);
    count.above += key > magnitude_of_cut;
    count.ties += key == magnitude_of_cut;
  }
  return count;
}

std::size_t apply_cut(const Candidates& part, Cut cut, float* residual, std::uint32_t* index,
                      float* value) {
  // In chunks: parting them takes no branch that chance decides, and the residual's cache lines,
  // long evicted, are fetched together; stores that missed one by one would wait for each other.
  constexpr std::size_t kChunk = 256;
  std::uint32_t kept_index[kChunk], put_back[kChunk];
  float kept_value[kChunk];
  std::size_t kept = 0;
  for (std::size_t begin = 0; begin < part.size; begin += kChunk) {
    const std::size_t end = std::min(begin + kChunk, part.size);
    std::size_t keeps = 0, others = 0;
    for (std::size_t j = begin; j < end; ++j) {
      const std::uint32_t key = magnitude(part.value[j]);
      bool keep = key > cut.magnitude;
      if (key == cut.magnitude && cut.ties > 0) {
        --cut.ties;
        keep = true;
      }
      kept_index[keeps] = part.index[j];
      kept_value[keeps] = part.value[j];
      keeps += keep;
      put_back[others] = static_cast<std::uint32_t>(j);
      others += !keep;
    }
    if (residual == nullptr) others = 0;
    for (std::size_t o = 0; o < others; ++o) {
      __builtin_prefetch(residual + part.index[put_back[o]], 1);
    }
    for (std::size_t o = 0; o < others; ++o) {
      residual[part.index[put_back[o]]] = part.value[put_back[o]];
    }
    std::copy_n(kept_index, keeps, index + kept);
    std::copy_n(kept_value, keeps, value + kept);
    kept += keeps;
  }
  return kept;
}

std::size_t held(std::span<const Candidates> parts) {
  std::size_t size = 0;
  for (const Candidates& part : parts) size += part.size;
  return size;
}

float write_largest(Workspace& workspace, std::span<Candidates> parts, float* residual,
                    std::span<std::uint32_t> index, std::span<float> value) {
  const Cut cut = find_cut(parts, index.size());
  Workspace::Scope scope(workspace);
  const std::span<CutCount> share = workspace.take<CutCount>(parts.size());
  const std::span<std::size_t> begin = workspace.take<std::size_t>(parts.size());
  for_each_part(parts.size(),
                [&](std::size_t p) { share[p] = count_cut(parts[p], cut.magnitude); });
  std::size_t written = 0, ties = cut.ties;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    share[p].ties = std::min(share[p].ties, ties);  // ties go to the lowest index: earlier parts
    ties -= share[p].ties;
    begin[p] = written;
    written += share[p].above + share[p].ties;
  }
  for_each_part(parts.size(), [&](std::size_t p) {
    apply_cut(parts[p], {cut.magnitude, share[p].ties}, residual, index.data() + begin[p],
              value.data() + begin[p]);
  });
  return std::bit_cast<float>(cut.magnitude);
}

float prune(Candidates& part, std::size_t k, float* residual) {
  const Cut cut = find_cut({&part, 1}, k);
  const std::size_t kept = apply_cut(part, cut, residual, part.index, part.value);
  part.dropped += part.size - kept;
  part.size = kept;
  return std::bit_cast<float>(cut.magnitude + 1);
}

}  // namespace winnow::kernels::cpu
