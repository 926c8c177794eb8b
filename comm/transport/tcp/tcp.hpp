// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>
#include <winnow/tcp.hpp>
#include <winnow/transport.hpp>

#include "comm/transport/tcp/mesh.hpp"

namespace winnow::comm {

/// The transport of rank `rank` over its connections; `nodes[r]` is the node of rank r. `bell` is
/// that of its shared memory. Duplicates listen as `options` say.
std::unique_ptr<Transport> tcp_transport_over(int rank, const std::vector<int>& nodes,
                                              std::vector<TcpLink> links, Socket bell,
                                              const TcpOptions& options);
/// A new TCP transport of the ranks of `other`, which passes their addresses and takes host memory.
/// Collective.
std::unique_ptr<Transport> tcp_transport_of(Transport& other, const TcpOptions& options,
                                            Deadline deadline);
/// A bell for share_memory and then for tcp_transport_over. Throws CommError.
Socket make_bell();

}  // namespace winnow::comm
