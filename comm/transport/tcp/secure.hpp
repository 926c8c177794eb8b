// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/transport.hpp>

#include "comm/transport/tcp/mesh.hpp"
#include "comm/transport/tls.hpp"

namespace winnow::comm {

/// Begins TLS on the connections of rank `rank` to other hosts, both of each link. The lower rank
/// of two is the server; the connections have been proved already, so the pre-shared key of the
/// link's control connection serves. Collective. Throws CommError, naming a rank, if a handshake
/// fails or the deadline passes.
void secure(std::span<TcpLink> links, int rank, const TlsContext& tls, Deadline deadline);

}  // namespace winnow::comm
