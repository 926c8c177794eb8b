// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace winnow::tests {

enum class NcclJob { connect, split, registration };

/// In the model of NCCL: the next such job of `rank` fails on that rank only, for a connection and
/// a split once all ranks have come.
void fail_next(NcclJob job, int rank);

/// How often all ranks have called a function that enqueues, or that registers memory or ends that.
std::uint64_t calls_of(const std::string& name);

/// What a call asked for that makes a communicator; where it set nothing, NCCL_CONFIG_UNDEF_INT.
struct NcclConfig {
  std::string call;
  int blocking, min_ctas, max_ctas, cga_cluster_size, split_share;

  bool operator==(const NcclConfig&) const = default;
};

/// The configurations given since the last look, sorted by call. A call without one is not there.
std::vector<NcclConfig> take_configs();

/// Ranges of memory that are registered with any rank's communicator.
std::size_t registrations();
/// From now on registering does nothing and gives null, as with NCCL_LOCAL_REGISTER=0; or again.
void let_register(bool works);

/// What ncclGetVersion says from now on; 0: the version of nccl.h.
void set_nccl_version(int version);

/// Communicators of the model that have not ended.
std::size_t living_communicators();

}  // namespace winnow::tests
