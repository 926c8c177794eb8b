// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <winnow/transport.hpp>

#pragma GCC visibility push(default)

namespace winnow {

/// A transport of the ranks of `world` whose messages between ranks of one node go over `node`, and
/// all others over `world`: NCCL within nodes and MPI between them. `node` has the ranks that share
/// this rank's world.node(), in their order. Neither is used by others while this lives.
///
/// Collective over the world. UsageError, on every rank, where the nodes of some are not those of
/// the world, or where `world` does not take host memory; CommError at the deadline. Where all
/// ranks are on one node it is `node` itself, and where no two are it is `world`.
///
/// Memory. It takes a device's where `node` does; what goes between nodes is staged where `world`
/// does not take it. It takes the host's as `world` does, which carries it everywhere where `node`
/// does not: then messages of the host go only while none of a device are under way, and the
/// reverse (UsageError), and sender and receiver of a message give the same kind.
///
/// Rules. Sizes travel if they do on all nodes and between them. One start is one of each, that of
/// `world` first, and a wait moves both, so that whatever ends under the rules of NCCL ends here
/// too (docs/transports.md says why). Collectives are Winnow's ring, in the order of the world's
/// ranks, and keep their deadline. Errors of `node` name the node, and then its own rank numbers;
/// one of either makes the whole unusable and aborts the other, so an abort reaches all ranks that
/// `world` reaches.
std::shared_ptr<Transport> mixed_transport(std::shared_ptr<Transport> world,
                                           std::shared_ptr<Transport> node, Deadline deadline);

}  // namespace winnow

#pragma GCC visibility pop
