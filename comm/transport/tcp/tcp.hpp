// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>
#include <winnow/transport.hpp>

#include "comm/transport/tcp/mesh.hpp"

namespace winnow::comm {

/// The transport of rank `rank` over its connections; `nodes[r]` is the node of rank r. A peer
/// whose host answers nothing for `host_timeout` seconds is gone. `bell` is that of its shared
/// memory.
std::unique_ptr<Transport> tcp_transport_over(int rank, const std::vector<int>& nodes,
                                              std::vector<TcpLink> links, Socket bell,
                                              double host_timeout);
/// A bell for share_memory and then for tcp_transport_over. Throws CommError.
Socket make_bell();

}  // namespace winnow::comm
