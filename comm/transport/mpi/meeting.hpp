// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>
#include <winnow/mpi.hpp>

#include "comm/transport/shm/node_group.hpp"

namespace winnow::comm {

/// The facts that the ranks of a communicator exchange before a transport's first message.
struct MpiMeeting {
  MPI_Comm communicator = MPI_COMM_NULL;  // a duplicate, which returns its errors
  int rank = 0;
  std::vector<int> nodes;  // by rank: the lowest rank that shares memory with it
  NodeGroup group;         // on every rank or on none: if all share memory
};

/// Collective. UsageError on every rank if `chunk_bytes` differs between ranks or is above INT_MAX.
/// CommError once the deadline has passed: no call in here waits for ranks that do not come. Ranks
/// that miss each other leave `communicator` usable for others, since they meet on it before they
/// begin to duplicate it, which holds up Open MPI's next communicator until it ends.
MpiMeeting meet(MPI_Comm communicator, std::uint64_t chunk_bytes, Deadline deadline);

}  // namespace winnow::comm
