// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <winnow/topology.hpp>
#include <winnow/transport.hpp>

namespace winnow {

Topology discover(Transport& transport, Deadline deadline) {
  const int mine = transport.node();
  std::vector<int> node_of_rank(static_cast<std::size_t>(transport.size()));
  transport.all_gather(Exec{}, std::as_bytes(std::span(&mine, 1)),
                       std::as_writable_bytes(std::span(node_of_rank)), deadline);
  return Topology::from_nodes(node_of_rank);
}

}  // namespace winnow
