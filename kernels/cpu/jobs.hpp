// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>
#include <winnow/exec.hpp>
#include <winnow/workspace.hpp>

#include "kernels/cpu/parallel.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/workspace_internal.hpp"

namespace winnow::kernels::cpu {

/// How the jobs of a list share the threads of an Exec: long ones run one after the other, each by
/// all threads; the short ones in groups of neighbours: a free thread takes the next group. So a
/// bucket of many parameters keeps all threads busy, however short they are.
///
/// A Kind is a struct with
///   Job                  the type
///   elements(job)        how much work it is
///   scratch(exec, job)   the most bytes that it takes from exec.workspace
///   Kind(exec, jobs)     what does some of the jobs, one after the other, with
///   run(job)             which may keep what it has learnt for the next
///   fetch(job)           asks memory for what `run` will need first, while another job runs
template <class Kind>
class JobGroups {
 public:
  using Job = typename Kind::Job;

  JobGroups(const Exec& exec, std::span<const Job> jobs) : exec_(exec), alone_(exec), jobs_(jobs) {
    alone_.threads = 1;
    if (exec.threads <= 1 || jobs.size() <= 1) return;
    const auto threads = static_cast<std::size_t>(exec.threads);
    std::size_t all = 0;
    for (const Job& job : jobs) all += Kind::elements(job);
    longest_ = all / (kShares * threads);
    for (const Job& job : jobs) short_elements_ += is_short(job) ? Kind::elements(job) : 0;
    groups_ = std::min(short_elements_ / Ranges::kSmallest, kGroups * threads);
    threads_ = std::min(groups_, threads);
  }

  /// The most scratch that `run` takes, in bytes.
  std::size_t scratch() const {
    std::size_t of_short = 0, of_long = 0;
    for (const Job& job : jobs_) {
      const bool in_group = groups_ > 0 && is_short(job);
      std::size_t& most = in_group ? of_short : of_long;
      most = std::max(most, Kind::scratch(in_group ? alone_ : exec_, job));
    }
    return std::max(of_long, threads_ * (of_short + 2 * kLine) + kLine * kGroups * threads_);
  }

  void run() const {
    if (jobs_.empty()) return;
    Workspace& workspace = scratch_of(exec_);
    const Workspace::Scope scope(workspace);
    {
      const Workspace::Scope of_long(workspace);
      Kind kind(exec_, jobs_);
      run_some(jobs_, kind, [&](const Job& job) { return groups_ == 0 || !is_short(job); });
    }
    if (groups_ == 0) return;
    const auto ends = workspace.take<std::size_t>(groups_);
    const auto lent = Workspace::Internal::lend(workspace, threads_, find_groups(ends) + kLine);
    std::atomic<std::size_t> next{0};
    for_each_part(threads_, [&](std::size_t thread) {
      Exec exec = alone_;
      exec.workspace = lent[thread].get();
      const Workspace::Scope of_thread(*exec.workspace);
      Kind kind(exec, jobs_);
      for (std::size_t g = next++; g < groups_; g = next++) {
        const std::size_t begin = g == 0 ? 0 : ends[g - 1];
        run_some(jobs_.subspan(begin, ends[g] - begin), kind,
                 [&](const Job& job) { return is_short(job); });
      }
    });
  }

 private:
  static constexpr std::size_t kShares = 4;  ///< a job is long from 1 / (4 threads) of all work on
  static constexpr std::size_t kGroups = 4;  ///< a thread, so that one which comes late gets fewer
  static constexpr std::size_t kLine = 64;   ///< what is taken is rounded up to one

  bool is_short(const Job& job) const { return Kind::elements(job) <= longest_; }

  /// Runs the jobs that are `wanted`.
  template <class Wanted>
  static void run_some(std::span<const Job> jobs, Kind& kind, const Wanted& wanted) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!wanted(jobs[i])) continue;
      if (i + 1 < jobs.size()) kind.fetch(jobs[i + 1]);
      kind.run(jobs[i]);
    }
  }

  /// Where each group ends, of about equally many elements. Returns the most that a job takes.
  std::size_t find_groups(std::span<std::size_t> ends) const {
    std::size_t seen = 0, most = 0, group = 0;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (!is_short(jobs_[i])) continue;
      seen += Kind::elements(jobs_[i]);
      most = std::max(most, Kind::scratch(alone_, jobs_[i]));
      while (group + 1 < groups_ && seen * groups_ >= short_elements_ * (group + 1)) {
        ends[group++] = i + 1;
      }
    }
    std::fill(ends.begin() + static_cast<std::ptrdiff_t>(group), ends.end(), jobs_.size());
    return most;
  }

  const Exec& exec_;
  Exec alone_;  // one thread
  std::span<const Job> jobs_;
  std::size_t longest_ = 0;  // elements of a short job, at most
  std::size_t short_elements_ = 0, groups_ = 0, threads_ = 0;
};

}  // namespace winnow::kernels::cpu
