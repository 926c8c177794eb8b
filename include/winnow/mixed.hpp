// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <winnow/transport.hpp>

#pragma GCC visibility push(default)

namespace winnow {

/// A transport over the ranks of `world`. Messages within a node go over `node`, all others over
/// `world`: NCCL within nodes and MPI between them. `node` holds the ranks that share this rank's
/// world.node(), in world order. Nobody else uses either while this transport lives: UsageError,
/// before the ranks meet, if an AllReducer or another mixed transport does.
///
/// Collective over `world`. Throws UsageError on every rank if some rank's `node` does not match
/// the nodes of `world`, or if `world` does not take host memory; CommError at the deadline.
/// Returns `node` itself if all ranks share one node, and `world` if no two ranks share one.
///
/// Memory. It takes device memory if `node` does, and stages messages between nodes if `world` does
/// not take device memory. It takes host memory as `world` does; if `node` does not, `world`
/// carries all host messages. Host and device messages are then never under way together
/// (UsageError), and both ends of a message use the same kind of memory.
///
/// Rules. Sizes travel if they do on all nodes and between nodes. start() starts `world`, then
/// `node`; wait() polls both, so whatever finishes under NCCL's rules finishes here
/// (docs/transports.md says why). Collectives are Winnow's ring in world rank order, and keep their
/// deadline. Errors of `node` name the node, then its own rank numbers. An error of either makes
/// the whole transport unusable and aborts the other one, so an abort reaches every rank that
/// `world` reaches. duplicate() duplicates both.
std::shared_ptr<Transport> mixed_transport(std::shared_ptr<Transport> world,
                                           std::shared_ptr<Transport> node, Deadline deadline);

}  // namespace winnow

#pragma GCC visibility pop
