// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/topology.hpp>
#include <winnow/transport.hpp>

#include "topology/link_model.hpp"

namespace winnow::comm {

/// A group of ranks and the memory of their messages.
struct Probed {
  Transport& world;
  const Exec& exec;
  const MemorySource* residuals = nullptr;  ///< null: the same memory
};

/// Measures the latency and bandwidth of links within and between nodes, and passes over memory
/// while all ranks work at once, in the memory of the buckets. The result is the median over ranks,
/// equal on all of them; they exchange it over `control`, in host memory. Collective. About 1.2 MB
/// leave each node, 0.1 s on a link of 100 Mbit/s. Absent links (between nodes if there is only
/// one) keep their default. Throws CommError.
LinkModel probe_links(const Probed& buckets, const Probed& control, const Topology& topology,
                      Deadline deadline);

}  // namespace winnow::comm
