// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/candidates.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/cpu/candidate_passes.hpp"
#include "kernels/cpu/parallel.hpp"

namespace winnow::kernels::cpu {

// Radix selection of the k-th largest magnitude, digit by digit from the top, within a range that
// has it: offset = magnitude - range.first. Candidates lie close above a bound, so the first digit
// of the offset parts them finely, where the magnitude's would be the same for nearly all.
// The few that share its digits are then compared. Among many candidates, a sample says in which
// range the k-th probably is, so only those in it are counted by digit.
//   above  candidates above the range; `left`: in it
//   shift  of the next digit

namespace {

constexpr std::size_t kOneThread = 32768;  // candidates that one thread looks through for them
constexpr std::size_t kMany = 16384;       // candidates that pay for a sample
constexpr std::size_t kSample = 256;

/// A range that has the k-th of many candidates, judged by some of them: all but certainly, with
/// four standard deviations on either side.
MagnitudeRange likely_range(std::span<const Candidates> parts, std::size_t all, std::size_t k,
                            MagnitudeRange span) {
  std::array<std::int32_t, kSample> sample;
  std::size_t taken = 0, before = 0;
  for (const Candidates& part : parts) {
    for (; taken < kSample && taken * all / kSample < before + part.size; ++taken) {
      const float x = part.value[taken * all / kSample - before];
      sample[taken] = static_cast<std::int32_t>(magnitude(x));
    }
    before += part.size;
  }
  std::ranges::sort(sample, std::greater());
  const double share = static_cast<double>(k) / static_cast<double>(all);
  const double expected = share * kSample;
  const double margin = 4 * std::sqrt(expected * (1 - share)) + 2;
  if (expected > margin) span.last = sample[static_cast<std::size_t>(expected - margin)];
  if (expected + margin < kSample) span.first = sample[static_cast<std::size_t>(expected + margin)];
  return span;
}

/// Bits of an offset into the range.
std::uint32_t bits_of(MagnitudeRange range) {
  return static_cast<std::uint32_t>(
      std::bit_width(static_cast<std::uint32_t>(range.last - range.first)));
}

}  // namespace

Cut find_cut(std::span<Candidates> parts, std::size_t k) {
  const std::size_t all = held(parts);
  if (all <= kFew) return cut_few(parts, {0, std::numeric_limits<std::int32_t>::max()}, k);
  for_each_part(parts.size(), [&](std::size_t p) { find_span(parts[p]); });
  MagnitudeRange span = parts[0].span;
  for (const Candidates& part : parts) {
    span = {std::min(span.first, part.span.first), std::max(span.last, part.span.last)};
  }
  const auto most_bits =
      std::clamp(static_cast<std::uint32_t>(std::bit_width(all)), 4U, Candidates::kDigitBits);
  MagnitudeRange range = all < kMany ? span : likely_range(parts, all, k, span);
  std::uint32_t shift = bits_of(range);
  while (true) {
    const std::uint32_t bits = std::min(shift, most_bits);
    shift -= bits;
    const std::size_t bins = std::size_t{1} << bits;
    for_each_part(parts.size(), [&](std::size_t p) { count_digits(parts[p], range, shift, bins); });
    std::size_t above = 0, left = 0, digit = bins;
    for (const Candidates& part : parts) above += part.above;
    while (digit > 0 && above + left < k) {
      above += left;
      left = 0;
      --digit;
      for (const Candidates& part : parts) left += part.histogram[digit];
    }
    if (above >= k || above + left < k) {  // the sample was wrong
      range = span;
      shift = bits_of(span);
      continue;
    }
    range.first += static_cast<std::int32_t>(digit << shift);
    range.last = range.first + std::min(range.last - range.first, (std::int32_t{1} << shift) - 1);
    if (shift == 0) return {static_cast<std::uint32_t>(range.first), k - above};
    if (left <= kFew && (parts.size() == 1 || all <= kOneThread))
      return cut_few(parts, range, k - above);
  }
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
  if (parts.size() == 1) {
    share[0] = {index.size() - cut.ties, cut.ties};
  } else {
    for_each_part(parts.size(),
                  [&](std::size_t p) { share[p] = count_cut(parts[p], cut.magnitude); });
  }
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
