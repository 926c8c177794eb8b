// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <span>
#include <string>
#include <winnow/transport.hpp>

#include "tools/winnow/commands.hpp"
#include "tools/winnow/discovery.hpp"
#include "tools/winnow/format.hpp"

namespace tool {

namespace {

std::string joined(std::span<const int> ranks) {
  std::string text;
  for (const int rank : ranks) {
    if (!text.empty()) text += ' ';
    text += std::to_string(rank);
  }
  return text;
}

void print(const winnow::Topology& topology) {
  std::cout << "topology  " << topology.to_string() << ": " << topology.ranks() << " ranks on "
            << topology.nodes() << (topology.nodes() == 1 ? " node\n" : " nodes\n");
  Table nodes({"node", "ranks"});
  for (int node = 0; node < topology.nodes(); ++node) {
    nodes.add({std::to_string(node), joined(topology.members(node))});
  }
  Table rails({"rail", "ranks"});
  for (int rail = 0; rail < topology.rails(); ++rail) {
    rails.add({std::to_string(rail), joined(topology.rail(rail))});
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
