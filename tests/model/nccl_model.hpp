// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace winnow::tests {

enum class NcclJob { connect, split };

/// In the model of NCCL: the next such job of `rank` fails once all ranks have come, on that rank
/// only.
void fail_next(NcclJob job, int rank);

/// How often all ranks have called a function that enqueues.
std::uint64_t calls_of(const std::string& name);

/// What a call asked for that makes a communicator; where it set nothing, NCCL_CONFIG_UNDEF_INT.
struct NcclConfig {
  std::string call;
  int blocking, min_ctas, max_ctas, cga_cluster_size, split_share;

  bool operator==(const NcclConfig&) const = default;
};

/// The configurations given since the last look, sorted by call. A call without one is not there.
std::vector<NcclConfig> take_configs();

/// Communicators of the model that have not ended.
std::size_t living_communicators();

}  // namespace winnow::tests
