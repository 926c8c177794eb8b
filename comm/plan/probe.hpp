// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/topology.hpp>
#include <winnow/transport.hpp>

#include "topology/link_model.hpp"

namespace winnow::comm {

/// Ranks, and the memory that their messages lie in.
struct Probed {
  Transport& world;
  const Exec& exec;
  const MemorySource* residuals = nullptr;  ///< null: the same memory
};

/// Measures latency and bandwidth of links within and between nodes, and the passes over memory of
/// ranks that all work at once, all of it where buckets lie: what ranks measured, in their median,
/// the same on all of them, who hear of it over `control`, in the host's memory. Collective.
/// About 1.2 MB leave each node, 0.1 s of a link of 100 Mbit/s. What there is none of (links
/// between nodes where there is one) keeps the default. Throws CommError.
LinkModel probe_links(const Probed& buckets, const Probed& control, const Topology& topology,
                      Deadline deadline);

/// What all ranks together took for a bucket, in seconds: by a native allreduce and by the ring.
struct Race {
  std::uint64_t bytes;
  double native, ring;
};

/// LinkModel::ring by races on longer and longer buckets: from there on the ring won all of them,
/// and clearly.
std::uint64_t ring_from(std::span<const Race> races);

/// The same of a transport whose all_reduce is native, by races on buckets of 1, 4, 16 and 64 MiB;
/// those that `link` takes longer than about 25 ms to pass are left out. Collective; the same on
/// all ranks. kNever where there is no native one. exec.workspace required. Throws CommError.
std::uint64_t probe_ring(Transport& world, const Link& link, const Exec& exec, Deadline deadline);

}  // namespace winnow::comm
