// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/transport.hpp>

#include "comm/transport/tcp/mesh.hpp"

namespace winnow::comm {

/// Exchanges shared memory with the ranks that are connected by Unix sockets: each makes the ring
/// in which it writes and passes it on, with `bell`, over the connection of messages. Two ranks
/// keep to the connection if the system of one has no such memory. Collective; CommError at the
/// deadline.
void share_memory(std::span<TcpLink> links, const Socket& bell, Deadline deadline);

}  // namespace winnow::comm
