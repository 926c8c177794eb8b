// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback_select.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/feedback_select.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/arithmetic.hpp"
#include "kernels/cpu/candidates.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/select_bound.hpp"

// Exact selection in one pass over memory.
//
// 1. A bound is chosen under which nothing is expected to be among the k largest: the one carried
//    from the last step, or, on a parameter's first, one from a sample.
// 2. Stream: each thread walks its range once in blocks of 64. acc goes into the residual; where
//    |acc| reaches the bound it moves on into the thread's candidates, leaving 0. Where acc is not
//    finite the residual stays, and acc stays in the gradient, as a mark, until the end.
// 3. Prune: before a thread's candidates overflow (all equal, ascending, a bound far too low) they
//    are cut to the thread's own k largest, and the bound rises above the k-th of these. So memory
//    is fixed and no input makes it fail.
// 4. Fewer than k candidates: the bound was too high. They go back into the residual and the range
//    is streamed again with bound 0: now acc = residual where there is no mark.
// 5. The candidates of all threads are cut to exactly k, the others go back into the residual.

// Own units are left out of all this: the first pass moves their acc to where it is asked for.

#ifndef WINNOW_KERNELS_CPU_FEEDBACK_SELECT_ONCE
#define WINNOW_KERNELS_CPU_FEEDBACK_SELECT_ONCE
namespace winnow::kernels::cpu {

/// Where a pass finds acc.
enum class Pass {
  first,     ///< gradient + decay * residual
  repeated,  ///< in the residual, with marks in the gradient
  plain,     ///< in the residual; there is no gradient, and all is finite
};

/// What is streamed.
struct Stream {
  float* gradient;
  float* residual;
  float decay;
  float bound;
  std::size_t k;
  Pass pass;
  OwnUnits own;
};

/// Walks the own units of a range of a parameter, in order, as offsets into the parameter.
class OwnWalk {
 public:
  OwnWalk(const OwnUnits& own, std::size_t begin) : own_(own) {
    if (own_.partition == nullptr) return;
    group_ = (own_.base + begin) / Partition::kUnit / own_.partition->owners();
    find();
    while (next_ < begin) advance();
  }
  /// Offset of the next own unit's first element.
  std::size_t next() const { return next_; }
  /// Where acc of that unit goes.
  float* acc() const { return own_.acc.data() + group_ * Partition::kUnit; }
  void advance() {
    ++group_;
    find();
  }

 private:
  // In the group where a parameter begins or ends, the own unit may lie outside: before it (a
  // negative offset counts as 0, and is passed over) or behind.
  void find() {
    const std::uint64_t position = own_.partition->unit_of(own_.self, group_) * Partition::kUnit;
    if (position < own_.base) {
      ++group_;
      find();
      return;
    }
    next_ = position - own_.base;
  }

  const OwnUnits& own_;
  std::uint64_t group_ = 0;
  std::size_t next_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace winnow::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, Ranges::kBlock>;

/// Streams one block and returns a bit for each element that reaches the bound. Clears `finite`
/// in lanes where acc is not.
template <Pass kPass>
HWY_INLINE std::uint64_t stream_block(float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
                                      float decay, float bound, hn::Mask<D>& finite) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const auto largest = hn::Set(d, std::numeric_limits<float>::max());
  const auto decays = hn::Set(d, decay);
  const auto bounds = hn::Set(d, bound);
  std::uint64_t candidates = 0;
  for (std::size_t lane = 0; lane < Ranges::kBlock; lane += lanes) {
    const auto r = hn::LoadU(d, residual + lane);
    auto reaches = hn::Ge(hn::Abs(r), bounds);
    if constexpr (kPass != Pass::plain) {
      const auto g = hn::LoadU(d, gradient + lane);
      // Repeated: g is +0, or a mark whose bits make the result not finite.
      const auto acc = kPass == Pass::repeated ? hn::Or(g, r) : hn::Add(g, hn::Mul(decays, r));
      const auto size = hn::Abs(acc);
      const auto is_finite = hn::Le(size, largest);
      reaches = hn::And(is_finite, hn::Ge(size, bounds));
      hn::StoreU(hn::IfThenElse(is_finite, acc, r), d, residual + lane);
      hn::StoreU(hn::IfThenZeroElse(is_finite, acc), d, gradient + lane);
      finite = hn::And(finite, is_finite);
    }
    std::uint8_t bytes[8];
    hn::StoreMaskBits(d, reaches, bytes);
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes, (lanes + 7) / 8);
    candidates |= bits << lane;
  }
  return candidates;
}

/// Moves the elements of a block named by `bits` from the residual to the candidates.
HWY_INLINE void collect(std::uint64_t bits, std::size_t base, float* residual, Candidates& out) {
  std::size_t size = out.size;
  while (bits != 0) {
    const std::size_t i = base + static_cast<std::size_t>(std::countr_zero(bits));
    out.index[size] = static_cast<std::uint32_t>(i);
    out.value[size] = residual[i];
    residual[i] = 0;
    ++size;
    bits &= bits - 1;
  }
  out.size = size;
}

/// Moves acc of an own unit of `size` elements to `own`, and leaves the gradient zero.
HWY_INLINE void take_own(const Stream& s, std::size_t at, std::size_t size, float* own,
                         hn::Mask<D>& finite) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const auto largest = hn::Set(d, std::numeric_limits<float>::max());
  const auto decays = hn::Set(d, s.decay);
  float gradient[Ranges::kBlock] = {}, residual[Ranges::kBlock] = {}, acc[Ranges::kBlock];
  std::copy_n(s.gradient + at, size, gradient);
  std::copy_n(s.residual + at, size, residual);
  for (std::size_t lane = 0; lane < Ranges::kBlock; lane += lanes) {
    const auto sum =
        hn::Add(hn::LoadU(d, gradient + lane), hn::Mul(decays, hn::LoadU(d, residual + lane)));
    finite = hn::And(finite, hn::Le(hn::Abs(sum), largest));
    hn::StoreU(sum, d, acc + lane);
  }
  std::copy_n(acc, size, own);
  std::fill_n(s.gradient + at, size, 0.0f);
}

template <Pass kPass>
bool stream(const Stream& s, std::size_t begin, std::size_t end, Candidates& out) {
  const D d;
  const auto zero = hn::Zero(d);
  hn::Mask<D> finite = hn::Ge(zero, zero);
  float bound = s.bound;
  std::size_t i = begin;
  for (OwnWalk own(s.own, begin);; own.advance()) {
    const std::size_t stop = std::min(end, own.next());
    for (; i + Ranges::kBlock <= stop; i += Ranges::kBlock) {
      const std::uint64_t bits =
          stream_block<kPass>(s.gradient + i, s.residual + i, s.decay, bound, finite);
      if (bits == 0) continue;
      collect(bits, i, s.residual, out);
      if (out.size > out.limit) bound = prune(out, s.k, s.residual);
    }
    if (own.next() >= end) break;
    const std::size_t size = std::min(Ranges::kBlock, end - i);
    if (kPass == Pass::first) take_own(s, i, size, own.acc(), finite);
    i += size;
  }
  if (i < end) {
    const std::size_t rest = end - i;
    float gradient[Ranges::kBlock] = {}, residual[Ranges::kBlock] = {};
    if (kPass != Pass::plain) std::copy_n(s.gradient + i, rest, gradient);
    std::copy_n(s.residual + i, rest, residual);
    const std::uint64_t bits = stream_block<kPass>(gradient, residual, s.decay, bound, finite) &
                               ((std::uint64_t{1} << rest) - 1);
    if (kPass != Pass::plain) std::copy_n(gradient, rest, s.gradient + i);
    std::copy_n(residual, rest, s.residual + i);
    collect(bits, i, s.residual, out);
  }
  return hn::AllTrue(d, finite);
}

bool stream_range(const Stream& s, std::size_t begin, std::size_t end, Candidates& out) {
  switch (s.pass) {
    case Pass::first:
      return stream<Pass::first>(s, begin, end, out);
    case Pass::repeated:
      return stream<Pass::repeated>(s, begin, end, out);
    case Pass::plain:
      break;
  }
  return stream<Pass::plain>(s, begin, end, out);
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(stream_range);

namespace {

constexpr std::size_t kSpare = 4096;                        // candidates beside 2k, at least
constexpr std::size_t kSampleFrom = std::size_t{1} << 18;   // smaller counts start at bound 0
constexpr std::size_t kSampleRuns = 2048, kSampleRun = 16;  // a run is a cache line

/// A bound that a little more than k elements reach, judged by short runs spread over the whole.
/// Four standard deviations of caution: where it is too high all the same, a pass is repeated.
float sampled_bound(Workspace& workspace, const Stream& s, std::size_t count) {
  if (count < kSampleFrom) return 0;
  Workspace::Scope scope(workspace);
  Candidates& sample = workspace.take<Candidates>(1)[0];
  sample.value = workspace.take<float>(kSampleRuns * kSampleRun).data();
  sample.size = 0;
  const std::size_t stride = count / kSampleRuns;
  for (std::size_t run = 0; run < kSampleRuns; ++run) {
    for (std::size_t i = run * stride; i < run * stride + kSampleRun; ++i) {
      const float acc =
          s.pass == Pass::plain ? s.residual[i] : feedback(s.gradient[i], s.decay, s.residual[i]);
      if (std::isfinite(acc)) sample.value[sample.size++] = acc;
    }
  }
  // Own units are sampled too, but k counts only what competes.
  const double owners = s.own.partition == nullptr ? 0 : s.own.partition->owners();
  const double competing = static_cast<double>(count) * (owners > 0 ? 1 - 1 / owners : 1);
  const double expected =
      static_cast<double>(kSampleRuns * kSampleRun) * static_cast<double>(s.k) / competing;
  const auto rank = static_cast<std::size_t>(expected + 4 * std::sqrt(expected) + 4);
  if (rank > sample.size) return 0;
  return std::bit_cast<float>(find_cut({&sample, 1}, rank).magnitude);
}

std::size_t held(std::span<const Candidates> parts) {
  std::size_t size = 0;
  for (const Candidates& part : parts) size += part.size;
  return size;
}

/// Fewer than k finite elements: all of them are held, and marks (a gradient not zero) stand at
/// the other positions, the lowest of which fill the message up with zeros.
void write_with_filling(std::span<const Candidates> parts, const float* gradient,
                        std::span<std::uint32_t> index, std::span<float> value) {
  std::size_t filling = index.size() - held(parts);
  std::size_t i = 0, out = 0;
  const auto fill_to = [&](std::size_t end) {
    for (; filling > 0 && i < end; ++i) {
      if (magnitude(gradient[i]) == 0) continue;
      index[out] = static_cast<std::uint32_t>(i);
      value[out++] = 0;
      --filling;
    }
  };
  for (const Candidates& part : parts) {
    for (std::size_t j = 0; j < part.size; ++j) {
      fill_to(part.index[j]);
      index[out] = part.index[j];
      value[out++] = part.value[j];
    }
  }
  fill_to(std::numeric_limits<std::size_t>::max());
}

/// Cuts the candidates to k = index.size() and returns the k-th largest |acc|.
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

/// Selects from `count` elements by the passes that are needed; the first is pass.pass.
SelectResult select_by(const Exec& exec, Stream pass, std::size_t count, SelectBound& state,
                       std::span<std::uint32_t> index, std::span<float> value) {
  const std::size_t k = index.size();
  const Ranges ranges(exec.threads, count);
  Workspace::Scope scope(*exec.workspace);
  const std::span<Candidates> parts = exec.workspace->take<Candidates>(ranges.size());
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const std::size_t limit = std::min(ranges.end(p) - ranges.begin(p), 2 * k + kSpare);
    const std::size_t room = limit + Ranges::kBlock;
    parts[p].index = exec.workspace->take<std::uint32_t>(room).data();
    parts[p].value = exec.workspace->take<float>(room).data();
    parts[p].limit = limit;
    parts[p].size = parts[p].dropped = 0;
  }

  std::atomic<bool> finite{true};
  pass.k = k;
  if (k == 0) {
    pass.bound = std::numeric_limits<float>::infinity();  // nothing reaches it
  } else {
    pass.bound = state.k == k ? state.bound : sampled_bound(*exec.workspace, pass, count);
  }
  const auto stream = [&] {
    for_each_part(ranges.size(), [&](std::size_t p) {
      if (!HWY_DYNAMIC_DISPATCH(stream_range)(pass, ranges.begin(p), ranges.end(p), parts[p])) {
        finite.store(false, std::memory_order_relaxed);
      }
    });
  };

  stream();
  // A thread that pruned has met more than this; so the number does not depend on threads.
  std::uint64_t candidates = held(parts);
  for (const Candidates& part : parts) candidates += part.dropped;
  candidates = std::min<std::uint64_t>(candidates, 2 * k + kSpare);
  std::uint32_t passes = 1;
  if (held(parts) < k && pass.bound > 0) {
    for (Candidates& part : parts) {
      for (std::size_t j = 0; j < part.size; ++j) {
        pass.residual[part.index[j]] = part.value[j];
      }
      part.size = part.dropped = 0;
    }
    pass.bound = 0;
    if (pass.pass == Pass::first) pass.pass = Pass::repeated;
    stream();
    passes = 2;
  }

  if (k > 0) {
    float kth = 0;
    if (held(parts) < k) {
      write_with_filling(parts, pass.gradient, index, value);
    } else {
      kth = write_largest(*exec.workspace, parts, pass.residual, index, value);
    }
    learn_bound(state, static_cast<std::uint32_t>(k), kth, candidates);
  }
  if (!finite) {
    for_each_range(exec.threads, count, [&](std::size_t begin, std::size_t end) {
      std::fill(pass.gradient + begin, pass.gradient + end, 0.0f);
    });
  }
  return {.finite = finite, .candidates = candidates, .passes = passes};
}

}  // namespace

SelectResult feedback_select(const Exec& exec, const FeedbackSpans& spans, SelectBound& state,
                             std::span<std::uint32_t> index, std::span<float> value) {
  const Stream pass{.gradient = spans.gradient.data(),
                    .residual = spans.residual.data(),
                    .decay = spans.decay,
                    .bound = 0,
                    .k = 0,
                    .pass = Pass::first,
                    .own = spans.own};
  return select_by(exec, pass, spans.gradient.size(), state, index, value);
}

void select(const Exec& exec, std::span<float> values, SelectBound& state,
            std::span<std::uint32_t> index, std::span<float> value) {
  const Stream pass{.gradient = nullptr,
                    .residual = values.data(),
                    .decay = 1,
                    .bound = 0,
                    .k = 0,
                    .pass = Pass::plain,
                    .own = {}};
  (void)select_by(exec, pass, values.size(), state, index, value);
}

}  // namespace winnow::kernels::cpu
#endif
