// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback_select.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/feedback.hpp"
#include "kernels/arithmetic/select_bound.hpp"
#include "kernels/cpu/candidate_passes.hpp"
#include "kernels/cpu/candidates.hpp"
#include "kernels/cpu/jobs.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/select.hpp"
#include "kernels/cpu/select_stream.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"

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

// Own units are left out of all this: the first pass leaves their acc in the residual and lists
// what reaches own.bound.

namespace winnow::kernels::cpu {

namespace {

constexpr std::size_t kSpare = 4096;                        // candidates beside 2k, at least
constexpr std::size_t kSampleFrom = std::size_t{1} << 18;   // smaller counts start at bound 0
constexpr std::size_t kSampleRuns = 2048, kSampleRun = 16;  // a run is a cache line

/// acc of an element that the first pass has not seen.
float acc_of(const Stream& s, std::size_t i) {
  const auto root = [](float x) { return std::sqrt(x); };
  const float update =
      s.precondition
          .of(read_element(s.gradient, i), s.precondition.moment_of(i), s.residual[i], root)
          .update;
  return feedback(update, s.decay, s.residual[i]);
}

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
      const float acc = s.pass == Pass::plain ? s.residual[i] : acc_of(s, i);
      if (std::isfinite(acc) && s.side.has(acc)) sample.value[sample.size++] = acc;
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

/// Fewer than k finite elements on the side: all of them are held, leaving 0 in the residual. The
/// lowest of the other positions, which have a mark (a gradient not zero) or a residual on the
/// other side, fill the message up with zeros.
void write_with_filling(std::span<const Candidates> parts, const Stream& s,
                        std::span<std::uint32_t> index, std::span<float> value) {
  std::size_t filling = index.size() - held(parts);
  std::size_t i = 0, out = 0;
  const auto fill_to = [&](std::size_t end) {
    for (; filling > 0 && i < end; ++i) {
      if (magnitude(read_element(s.gradient, i)) == 0 && s.side.has(s.residual[i])) continue;
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

/// Joins what the threads listed of own units. Returns how many there are.
std::uint64_t write_list(std::span<const OwnList> lists, const OwnUnits& own) {
  std::uint64_t listed = 0;
  for (const OwnList& list : lists) listed += list.size;
  if (listed > own.index.size()) return listed;
  std::size_t at = 0;
  for (const OwnList& list : lists) {
    std::copy_n(list.index, list.size, own.index.data() + at);
    std::copy_n(list.value, list.size, own.value.data() + at);
    at += list.size;
  }
  return listed;
}

/// Candidates of a range before it is pruned to k.
std::size_t most_candidates(const Ranges& ranges, std::size_t p, std::size_t k) {
  return std::min(ranges.end(p) - ranges.begin(p), 2 * k + kSpare);
}

/// The threads' lists of own elements.
std::span<OwnList> take_lists(Workspace& workspace, std::size_t threads, const OwnUnits& own) {
  const std::span<OwnList> lists = workspace.take<OwnList>(threads);
  for (OwnList& list : lists) {
    list.room = own.index.size();
    list.index = workspace.take<std::uint32_t>(list.room).data();
    list.value = workspace.take<float>(list.room).data();
    list.size = 0;
  }
  return lists;
}

/// Bytes of what a Workspace gives for so many T, at most.
template <class T>
std::size_t taken(std::size_t count) {
  constexpr std::size_t kLine = 64;
  return count * sizeof(T) + kLine;
}

/// Room for candidates behind their limit.
constexpr std::size_t kBehindLimit = Ranges::kBlock + Candidates::kSlack;

/// Bytes of what take_lists takes.
std::size_t lists_scratch(std::size_t threads, std::size_t room) {
  return taken<OwnList>(threads) + threads * (taken<std::uint32_t>(room) + taken<float>(room));
}

/// Selects from `count` elements by the passes that are needed; the first is pass.pass.
SelectResult select_by(const Exec& exec, Stream pass, std::size_t count, SelectBound& state,
                       std::span<std::uint32_t> index, std::span<float> value) {
  const std::size_t k = index.size();
  const Ranges ranges(exec.threads, count);
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const std::span<Candidates> parts = workspace.take<Candidates>(ranges.size());
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const std::size_t limit = most_candidates(ranges, p, k);
    const std::size_t room = limit + kBehindLimit;
    parts[p].index = workspace.take<std::uint32_t>(room).data();
    parts[p].value = workspace.take<float>(room).data();
    parts[p].limit = limit;
    parts[p].size = parts[p].dropped = 0;
  }

  const auto lists = take_lists(workspace, ranges.size(), pass.own);
  std::atomic<bool> finite{true};
  pass.k = k;
  if (k == 0) {
    pass.bound = std::numeric_limits<float>::infinity();  // nothing reaches it
  } else {
    pass.bound = state.k == k ? state.bound : sampled_bound(workspace, pass, count);
  }
  const auto stream = [&] {
    for_each_part(ranges.size(), [&](std::size_t p) {
      if (!stream_range(pass, ranges.begin(p), ranges.end(p), parts[p], lists[p])) {
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
      write_with_filling(parts, pass, index, value);
    } else {
      kth = write_largest(workspace, parts, pass.residual, index, value);
    }
    learn_bound(state, static_cast<std::uint32_t>(k), kth, candidates);
  }
  if (!finite) kernels::fill(exec, pass.gradient, 0);
  return {.finite = finite,
          .candidates = candidates,
          .passes = passes,
          .listed = write_list(lists, pass.own),
          .listed_by = pass.own.bound};
}

/// Elements before number i that are not own.
std::size_t competing_before(const OwnUnits& own, std::size_t i) {
  return i - own.size(i);
}

struct FeedbackSelectKind {
  using Job = FeedbackSelectJob;
  const Exec& exec;

  FeedbackSelectKind(const Exec& with, std::span<const Job>) : exec(with) {}

  static std::size_t elements(const Job& job) { return job.spans.gradient.size(); }

  static void fetch(const Job& job) {
    __builtin_prefetch(job.state, 1);
    __builtin_prefetch(job.spans.own.index.data(), 1);
    __builtin_prefetch(job.spans.own.value.data(), 1);
  }

  void run(const Job& job) const {
    Stream pass{.gradient = job.spans.gradient,
                .residual = job.spans.residual.data(),
                .decay = job.spans.decay,
                .bound = 0,
                .k = 0,
                .pass = Pass::first,
                .own = job.spans.own,
                .precondition = job.spans.precondition,
                .side = job.side};
    if (job.own_bound != nullptr) pass.own.bound = *job.own_bound;
    *job.result =
        select_by(exec, pass, job.spans.gradient.size(), *job.state, job.index, job.value);
    for (std::uint32_t& position : job.index) position += job.base;
  }

  static std::size_t scratch(const Exec& exec, const Job& job) {
    const std::size_t count = job.spans.gradient.size(), k = job.index.size();
    const std::size_t listed = job.spans.own.index.size();
    const Ranges ranges(exec.threads, count);
    const std::size_t threads = ranges.size();
    std::size_t bytes = taken<Candidates>(threads) + lists_scratch(threads, listed);
    for (std::size_t p = 0; p < threads; ++p) {
      const std::size_t room = most_candidates(ranges, p, k) + kBehindLimit;
      bytes += taken<std::uint32_t>(room) + taken<float>(room);
    }
    // One after the other: the sample, and what write_largest takes.
    const std::size_t sample =
        count < kSampleFrom ? 0 : taken<Candidates>(1) + taken<float>(kSampleRuns * kSampleRun);
    return bytes + std::max(sample, taken<CutCount>(threads) + taken<std::size_t>(threads));
  }
};

}  // namespace

void feedback_select(const Exec& exec, std::span<const FeedbackSelectJob> jobs) {
  JobGroups<FeedbackSelectKind>(exec, jobs).run();
}

std::size_t feedback_select_scratch(const Exec& exec, std::span<const FeedbackSelectJob> jobs) {
  return JobGroups<FeedbackSelectKind>(exec, jobs).scratch();
}

/// Each thread writes where its range would begin if all of it reached the bound, so that it never
/// has to prune; then all is moved together.
void feedback_threshold(const Exec& exec, const FeedbackThresholdJob& job) {
  const std::size_t count = job.spans.gradient.size();
  const OwnUnits& own = job.spans.own;
  const Stream pass{.gradient = job.spans.gradient,
                    .residual = job.spans.residual.data(),
                    .decay = job.spans.decay,
                    .bound = job.bound,
                    .k = 0,
                    .pass = Pass::first,
                    .own = own,
                    .precondition = job.spans.precondition};
  std::uint32_t* const index = job.index.data() + *job.kept;
  float* const value = job.value.data() + *job.kept;
  const Ranges ranges(exec.threads, count);
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const std::span<Candidates> parts = workspace.take<Candidates>(ranges.size());
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const std::size_t before = competing_before(own, ranges.begin(p));
    parts[p].index = index + before;
    parts[p].value = value + before;
    parts[p].limit = competing_before(own, ranges.end(p)) - before;
    parts[p].size = parts[p].dropped = 0;
  }
  const auto lists = take_lists(workspace, ranges.size(), own);
  std::atomic<bool> finite{true};
  for_each_part(ranges.size(), [&](std::size_t p) {
    if (!stream_range(pass, ranges.begin(p), ranges.end(p), parts[p], lists[p])) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  std::size_t selected = 0;
  for (const Candidates& part : parts) {
    std::transform(part.index, part.index + part.size, index + selected,
                   [&](std::uint32_t i) { return job.base + i; });
    std::copy_n(part.value, part.size, value + selected);
    selected += part.size;
  }
  *job.kept += selected;
  if (!finite) kernels::fill(exec, pass.gradient, 0);
  *job.result = {.finite = finite,
                 .candidates = selected,
                 .passes = 1,
                 .listed = write_list(lists, own),
                 .listed_by = own.bound};
}

std::size_t feedback_threshold_scratch(const Exec& exec, std::size_t count, std::size_t listed) {
  const std::size_t threads = Ranges(exec.threads, count).size();
  return taken<Candidates>(threads) + lists_scratch(threads, listed);
}

void select(const Exec& exec, std::span<float> values, SelectBound& state,
            std::span<std::uint32_t> index, std::span<float> value) {
  const Stream pass{.gradient = {},
                    .residual = values.data(),
                    .decay = 1,
                    .bound = 0,
                    .k = 0,
                    .pass = Pass::plain,
                    .own = {},
                    .precondition = {}};
  (void)select_by(exec, pass, values.size(), state, index, value);
}

}  // namespace winnow::kernels::cpu
