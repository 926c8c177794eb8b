// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/cxx20.hpp>

#pragma GCC visibility push(default)

namespace winnow {

/// Which ranks share a node; a value. Ranks are 0 .. ranks()-1; nodes are numbered by their lowest
/// rank. Rail i holds one rank of each node: on node j, rank i mod ranks_on(j) of that node. There
/// are as many rails as ranks on the largest node.
class Topology {
 public:
  /// `nodes` nodes of `ranks_per_node` consecutive ranks each.
  static Topology uniform(int nodes, int ranks_per_node);
  /// "2x4": two nodes of four; "3,1,2": three nodes of these sizes; "5": one node of five.
  /// Throws UsageError, naming the forms, for anything else.
  static Topology parse(std::string_view text);
  /// Ranks r with equal node_of_rank[r] share a node.
  static Topology from_nodes(std::span<const int> node_of_rank);

  int ranks() const { return static_cast<int>(node_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  int rails() const { return rails_; }
  /// The node of a rank.
  int node_of(int rank) const {
    if (rank < 0 || rank >= ranks()) refuse_rank(rank);
    return node_[static_cast<std::size_t>(rank)];
  }
  int local_rank(int rank) const;                ///< its place among the ranks of its node
  int ranks_on(int node) const;                  ///< how many ranks a node has
  std::span<const int> members(int node) const;  ///< the ranks of a node, ascending
  std::vector<int> rail(int index) const;        ///< one rank of each node, in node order
  bool is_uniform() const;                       ///< all nodes equal and ranks consecutive
  std::string to_string() const;                 ///< "2x4" or "3,1,2"

  friend bool operator==(const Topology&, const Topology&) = default;

 private:
  [[noreturn]] void refuse_rank(int rank) const;

  std::vector<int> node_;                  // rank -> node
  std::vector<int> local_;                 // rank -> place on its node
  std::vector<std::vector<int>> members_;  // node -> ranks
  int rails_ = 0;
};

class Transport;
class Deadline;
/// Reads the topology from Transport::node(); collective.
Topology discover(Transport& transport, Deadline deadline);

}  // namespace winnow

#pragma GCC visibility pop
