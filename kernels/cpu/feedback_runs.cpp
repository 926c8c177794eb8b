// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/feedback_runs.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/feedback_runs.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>

#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/feedback.hpp"
#include "kernels/cpu/halves-inl.hpp"
#include "kernels/cpu/parallel.hpp"

// Error feedback and coding, chunk by chunk.
//
// A chunk is one or several blocks of one owner's values, which lie in as many consecutive groups
// of the partition. Groups are walked in steps of a chunk of every owner: so threads part where
// blocks of all messages do.
// 1. The owner's units are looked up in the pieces: runs of memory and gaps. With several owners
//    the processor does not foresee the order of runs, so a share of the next step's memory, which
//    lies together, is prefetched with each chunk: gradients while acc is gathered and residuals
//    while errors are scattered, since prefetches in a row are dropped.
// 2. acc of all runs goes into a buffer of one chunk, where the scales are taken from it.
// 3. The runs are coded from the buffer. With one owner, the error of the codes goes straight into
// the
//    residual; with several, whose runs are short, into the buffer first, and so where an acc in
//    the chunk was not finite, since there the code of 0 misses is added to the residual.

#ifndef WINNOW_KERNELS_CPU_FEEDBACK_RUNS_ONCE
#define WINNOW_KERNELS_CPU_FEEDBACK_RUNS_ONCE
namespace winnow::kernels::cpu {

/// Values of one owner that lie together in a piece, or in a gap: then there is no residual. Starts
/// at a unit.
struct Run {
  ConstElements gradient;
  float* residual;
  std::size_t offset;  ///< of its first value in the chunk
  std::size_t size;
};

constexpr std::size_t kLine = 64 / sizeof(float);  // of a cache

/// Whether a part of `ahead` is to be prefetched with a run.
inline bool covers(const Run& ahead, const Run& run) {
  return ahead.residual != nullptr && run.offset + run.size <= ahead.size;
}
/// The gradients of that part; null: none.
inline const void* gradient_ahead(const Run& ahead, const Run& run) {
  return covers(ahead, run) ? ahead.gradient.subspan(run.offset, run.size).data() : nullptr;
}

}  // namespace winnow::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Prefetches run.size gradients from `ahead` on, unless null, and writes acc of a run, 0 where it
/// is not finite unless kKeep; false where one was not. `load` makes a vector of gradients.
template <bool kKeep, class T, class Load>
HWY_INLINE bool gather_by(const Load& load, const Run& run, float decay, const void* ahead,
                          float* HWY_RESTRICT acc) {
  const T* const gradient = static_cast<const T*>(run.gradient.data());
  const T* const next = static_cast<const T*>(ahead);
  using D = hn::CappedTag<float, kUnit>;
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const auto largest = hn::Set(d, std::numeric_limits<float>::max());
  const auto decays = hn::Set(d, decay);
  auto all = hn::Ge(largest, largest);
  std::size_t i = 0;
  for (; i + lanes <= run.size; i += lanes) {
    if (next != nullptr && i % kLine == 0) __builtin_prefetch(next + i);
    const auto g = load(d, gradient + i);
    const auto r = hn::LoadU(d, run.residual + i);
    const auto a = hn::Add(g, hn::Mul(decays, r));
    const auto finite = hn::Le(hn::Abs(a), largest);
    all = hn::And(all, finite);
    hn::StoreU(kKeep ? a : hn::IfThenElseZero(finite, a), d, acc + i);
  }
  bool finite = hn::AllTrue(d, all);
  for (; i < run.size; ++i) {
    const float a = feedback(read_element(run.gradient, i), decay, run.residual[i]);
    const bool is_finite = std::isfinite(a);
    finite = finite && is_finite;
    acc[i] = kKeep || is_finite ? a : 0;
  }
  return finite;
}

template <bool kKeep>
HWY_INLINE bool gather(const Run& run, float decay, const void* ahead, float* HWY_RESTRICT acc) {
  switch (run.gradient.type()) {
    case ElementType::bf16:
      return gather_by<kKeep, std::uint16_t>([](auto d, const std::uint16_t* from)
                                                 HWY_ATTR { return load_bf16(d, from); },
                                             run, decay, ahead, acc);
    case ElementType::fp16:
      return gather_by<kKeep, std::uint16_t>([](auto d, const std::uint16_t* from)
                                                 HWY_ATTR { return load_fp16(d, from); },
                                             run, decay, ahead, acc);
    default:
      return gather_by<kKeep, float>([](auto d, const float* from)
                                         HWY_ATTR { return hn::LoadU(d, from); },
                                     run, decay, ahead, acc);
  }
}

bool gather_runs(std::span<const Run> runs, float decay, const Run& ahead,
                 float* HWY_RESTRICT acc) {
  bool finite = true;
  for (const Run& run : runs) {
    if (run.residual == nullptr) {
      std::fill_n(acc + run.offset, run.size, 0.0f);
      continue;
    }
    finite &= gather<false>(run, decay, gradient_ahead(ahead, run), acc + run.offset);
  }
  return finite;
}

bool gather_own(std::span<const Run> runs, float decay, const Run& ahead, float* HWY_RESTRICT own) {
  bool finite = true;
  for (const Run& run : runs) {
    if (run.residual == nullptr) {
      std::fill_n(own + run.offset, run.size, 0.0f);
      continue;
    }
    finite &= gather<true>(run, decay, gradient_ahead(ahead, run), own + run.offset);
  }
  return finite;
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(gather_runs);
HWY_EXPORT(gather_own);

namespace {

/// Finds runs for positions that mostly ascend.
class PieceCursor {
 public:
  PieceCursor(std::span<const FeedbackPiece> pieces, std::uint64_t position)
      : piece_(std::partition_point(
            pieces.begin(), pieces.end(),
            [&](const FeedbackPiece& p) { return p.base + p.gradient.size() <= position; })),
        end_(pieces.end()) {}

  /// The run from `position` to the end of its piece or gap, `most` values at most; does not go
  /// back.
  Run run_from(std::uint64_t position, std::size_t most) {
    while (piece_ != end_ && piece_->base + piece_->gradient.size() <= position) ++piece_;
    if (piece_ == end_) return {{}, nullptr, 0, most};
    if (position < piece_->base) {
      return {{}, nullptr, 0, std::min<std::uint64_t>(most, piece_->base - position)};
    }
    const std::size_t i = position - piece_->base;
    const std::size_t size = std::min(most, piece_->residual.size() - i);
    return {piece_->gradient.subspan(i, size), piece_->residual.data() + i, 0, size};
  }

 private:
  std::span<const FeedbackPiece>::iterator piece_, end_;
};

/// The state of one thread.
struct Walk {
  const FeedbackQuantizeJob& job;
  std::size_t chunk;
  std::span<Run> room;              ///< two runs a unit of a chunk
  std::span<std::uint32_t> leader;  ///< of the step's groups: who owns the first unit
  float* acc;                       ///< a chunk

  void enter(std::uint64_t step) const {
    const std::uint32_t owners = job.partition.owners();
    if (owners == 1) return;
    for (std::size_t i = 0; i < leader.size(); ++i) {
      leader[i] = job.partition.owner_of_unit((step * leader.size() + i) * owners);
    }
  }

  /// An owner's share of the next step's memory, as much of it as lies together.
  Run share_ahead(PieceCursor cursor, std::uint64_t step, std::uint32_t owner) const {
    const std::uint64_t count = job.partition.count();
    const std::uint64_t at = ((step + 1) * job.partition.owners() + owner) * chunk;
    return cursor.run_from(at, at < count ? std::min<std::uint64_t>(chunk, count - at) : 0);
  }

  /// The first position of unit `i` of an owner's chunk.
  std::uint64_t position(std::uint64_t step, std::uint32_t owner, std::size_t i) const {
    const std::uint32_t owners = job.partition.owners();
    const std::uint32_t turn = owner >= leader[i] ? owner - leader[i] : owner + owners - leader[i];
    return ((step * leader.size() + i) * owners + turn) * kUnit;
  }

  /// The runs of the first n values of an owner's chunk; they fill [0, n).
  std::span<const Run> find_runs(PieceCursor cursor, std::uint64_t step, std::uint32_t owner,
                                 std::size_t n) const {
    const bool alone = job.partition.owners() == 1;  // then units follow each other
    std::size_t runs = 0;
    for (std::size_t offset = 0; offset < n;) {
      const std::size_t in_unit = offset % kUnit;
      const std::uint64_t at =
          alone ? step * chunk + offset : position(step, owner, offset / kUnit) + in_unit;
      Run run = cursor.run_from(at, alone ? n - offset : std::min(kUnit - in_unit, n - offset));
      run.offset = offset;
      offset += run.size;
      room[runs++] = run;
    }
    return room.first(runs);
  }

  bool code_chunk(std::span<const Run> runs, const MessageWriter& writer, const Run& ahead,
                  std::uint64_t first, std::size_t n) const {
    const bool finite = HWY_DYNAMIC_DISPATCH(gather_runs)(runs, job.decay, ahead, acc);
    writer.write_scales(first, acc, n);
    if (finite && job.partition.owners() == 1) {
      for (const Run& run : runs) write_run(run, writer, first);
      return true;
    }
    writer.write_codes(first, acc, n, acc);
    for (const Run& run : runs) {
      if (run.residual == nullptr) continue;
      if (finite) {
        store(run, ahead);
      } else {
        add_or_store(run);
      }
    }
    return finite;
  }

  void write_run(const Run& run, const MessageWriter& writer, std::uint64_t first) const {
    if (run.residual != nullptr) {
      writer.write_codes(first + run.offset, acc + run.offset, run.size, run.residual);
      return;
    }
    // The codes of the run before reach to the end of its last unit.
    const std::size_t begin = (run.offset + kUnit - 1) / kUnit * kUnit;
    const std::size_t end = run.offset + run.size;
    if (begin < end) writer.write_zeros(first + begin, end - begin);
  }

  void store(const Run& run, const Run& ahead) const {
    if (covers(ahead, run)) {
      for (std::size_t i = 0; i < run.size; i += kLine) {
        __builtin_prefetch(ahead.residual + run.offset + i);
      }
    }
    std::copy_n(acc + run.offset, run.size, run.residual);
  }

  void add_or_store(const Run& run) const {
    for (std::size_t i = 0; i < run.size; ++i) {
      float& residual = run.residual[i];
      const float missed = acc[run.offset + i];
      const float gradient = read_element(run.gradient, i);
      const bool was_finite = std::isfinite(feedback(gradient, job.decay, residual));
      residual = was_finite ? missed : residual + missed;
    }
  }
};

}  // namespace

bool walk_feedback(const Exec& exec, const FeedbackQuantizeJob& job,
                   std::span<const MessageWriter> writers) {
  const Partition& partition = job.partition;
  const std::uint32_t owners = partition.owners();
  // Alone, several blocks in one go pay; with others, a step that stays in the L1 cache.
  std::size_t chunk =
      owners == 1 ? MessageWriter::kSmallestChunk : MessageWriter::kSmallestChunk / 2;
  for (std::uint32_t o = 0; o < owners; ++o) {
    if (o != job.self) chunk = std::max(chunk, writers[o].block());
  }
  const Ranges ranges(exec.threads, partition.count());
  const std::span<Walk> walks = exec.workspace->take<Walk>(ranges.size());
  for (Walk& walk : walks) {
    const std::span<Run> room = exec.workspace->take<Run>(2 * chunk / kUnit);
    const std::span<std::uint32_t> leader = exec.workspace->take<std::uint32_t>(chunk / kUnit);
    float* const acc = exec.workspace->take<float>(chunk).data();
    std::construct_at(&walk, Walk{job, chunk, room, leader, acc});
  }

  std::atomic<bool> finite{true};
  const std::uint64_t positions = chunk * owners;  // of a step
  for_each_part(ranges.size(), [&](std::size_t p) {
    const Walk& walk = walks[p];
    const std::uint64_t end = p + 1 == ranges.size()
                                  ? (partition.count() + positions - 1) / positions
                                  : ranges.end(p) / positions;
    for (std::uint64_t s = ranges.begin(p) / positions; s < end; ++s) {
      const PieceCursor cursor(job.pieces.host, s * positions);
      const std::uint64_t first = s * chunk;
      walk.enter(s);
      for (std::uint32_t o = 0; o < owners; ++o) {
        // Only in the last step an owner may have fewer.
        const std::uint64_t count = s + 1 < end ? first + chunk : partition.local_count(o);
        if (first >= count) continue;
        const std::size_t n = std::min<std::uint64_t>(chunk, count - first);
        const std::span<const Run> runs = walk.find_runs(cursor, s, o, n);
        const Run ahead = owners > 1 ? walk.share_ahead(cursor, s, o) : Run{};
        const bool all = o == job.self ? HWY_DYNAMIC_DISPATCH(gather_own)(runs, job.decay, ahead,
                                                                          job.own.data() + first)
                                       : walk.code_chunk(runs, writers[o], ahead, first, n);
        if (!all) finite.store(false, std::memory_order_relaxed);
      }
    }
  });
  return finite.load(std::memory_order_relaxed);
}

}  // namespace winnow::kernels::cpu
#endif
