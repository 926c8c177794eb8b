// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>

namespace winnow {

/// The bounds on the threads of a process, and which others share them.
struct Processors {
  int cores = 1;              ///< that the process may run on
  std::string cores_id = {};  ///< equal for processes that may run on the same cores
  /// Seconds of processor time a second, by the control group (a container's, a job's) with the
  /// least per second.
  double quota = std::numeric_limits<double>::infinity();
  std::string quota_id = {};  ///< equal for processes that share the quota
  int wanted = 0;             ///< OMP_NUM_THREADS; 0: not set

  /// The processors of this process. Linux alone knows quotas.
  static Processors of_this_process();
  /// The quota of control groups, version 1 or 2, mounted at `mount`, for the process whose groups
  /// the file `groups` lists.
  void read_quota(const std::string& mount, const std::string& groups);

  /// The threads of a rank that shares its cores with `on_cores` ranks in all, and its quota with
  /// `on_quota`; at least 1.
  int threads(int on_cores, int on_quota) const;
};

}  // namespace winnow
