// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/topology.hpp>
#include <winnow/transport.hpp>

#include "topology/link_model.hpp"

namespace winnow::comm {

/// Measures latency and bandwidth of links within and between nodes, and the passes over memory of
/// ranks that all work at once: what ranks measured, in their median, the same on all of them.
/// Collective. About 1.2 MB leave each node, 0.1 s of a link of 100 Mbit/s. What there is none
/// of (links between nodes where there is one) keeps the default. Throws CommError.
LinkModel probe_links(Transport& world, const Topology& topology, const Exec& exec,
                      Deadline deadline);

}  // namespace winnow::comm
