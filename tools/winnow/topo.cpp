// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <winnow/transport.hpp>

#include "tools/winnow/commands.hpp"
#include "tools/winnow/discovery.hpp"
#include "tools/winnow/format.hpp"

namespace tool {

namespace {

void print(const winnow::Topology& topology) {
  std::cout << "topology  " << topology.to_string() << ": " << topology.ranks() << " ranks on "
            << topology.nodes() << (topology.nodes() == 1 ? " node\n" : " nodes\n");
  Table nodes({"node", "ranks"});
  for (int node = 0; node < topology.nodes(); ++node) {
    std::string ranks;
    for (const int rank : topology.members(node))
      ranks += (ranks.empty() ? "" : " ") + std::to_string(rank);
    nodes.add({std::to_string(node), ranks});
  }
  Table rails({"rail", "ranks"});
  for (int rail = 0; rail < topology.rails(); ++rail) {
    std::string ranks;
    for (const int rank : topology.rail(rail))
      ranks += (ranks.empty() ? "" : " ") + std::to_string(rank);
    rails.add({std::to_string(rail), ranks});
  }
  std::cout << nodes.text() << rails.text();
}

}  // namespace

void topo(const std::string& text) {
  if (text.empty()) {
    discover_and(print);
  } else {
    print(winnow::Topology::parse(text));
  }
}

}  // namespace tool
