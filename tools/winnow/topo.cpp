// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <memory>
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

void add_topo(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "topo", "Which ranks share a node: what was discovered, under mpirun, or what a text says");
  const auto text = std::make_shared<std::string>();
  command->add_option("--topology", *text, "2x4, or 3,1,2, instead of discovering");
  command->callback([text] {
    if (!text->empty()) {
      print(winnow::Topology::parse(*text));
    } else {
      discover_and([](const winnow::Topology& topology) { print(topology); });
    }
  });
}

}  // namespace tool
