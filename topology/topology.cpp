// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "winnow/topology.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <string>
#include <winnow/error.hpp>

namespace winnow {

namespace {

// Far above any machine and far below the limit of int, so that no product or sum of sizes
// overflows.
constexpr int kMostRanks = 1 << 24;

constexpr const char* kNodeForms =
    "write \"2x4\" (two nodes of four ranks), \"3,1,2\" (three nodes of these sizes) or \"5\" (one "
    "node), with numbers from 1 and at most 16777216 ranks in all";

[[noreturn]] void fail_nodes(std::string_view text, const std::string& why) {
  fail_usage("topology \"" + std::string(text) + "\": " + why + "; " + kNodeForms);
}

// Reads a number from 1 to kMostRanks that fills all of `word`.
int parse_number(std::string_view text, std::string_view word) {
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error == std::errc::invalid_argument || end != word.data() + word.size())
    fail_nodes(text, "\"" + std::string(word) + "\" is not a number");
  if (error == std::errc::result_out_of_range || value < 1 || value > kMostRanks)
    fail_nodes(text, std::string(word) + " is out of range");
  return value;
}

}  // namespace

Topology Topology::uniform(int nodes, int ranks_per_node) {
  const std::string shape = std::to_string(nodes) + "x" + std::to_string(ranks_per_node);
  if (nodes < 1 || ranks_per_node < 1 || nodes > kMostRanks / ranks_per_node)
    fail_nodes(shape, "must have at least one rank and not too many");
  std::vector<int> node_of_rank(static_cast<std::size_t>(nodes) *
                                static_cast<std::size_t>(ranks_per_node));
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank)
    node_of_rank[rank] = static_cast<int>(rank) / ranks_per_node;
  return from_nodes(node_of_rank);
}

Topology Topology::parse(std::string_view text) {
  if (const std::size_t cross = text.find('x'); cross != std::string_view::npos) {
    const int nodes = parse_number(text, text.substr(0, cross));
    const int ranks_per_node = parse_number(text, text.substr(cross + 1));
    if (nodes > kMostRanks / ranks_per_node) fail_nodes(text, "too many ranks");
    return uniform(nodes, ranks_per_node);
  }
  std::vector<int> node_of_rank;
  int node = 0;
  for (std::size_t begin = 0; begin <= text.size(); ++node) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const int ranks = parse_number(text, text.substr(begin, end - begin));
    if (static_cast<std::size_t>(ranks) > kMostRanks - node_of_rank.size())
      fail_nodes(text, "too many ranks");
    node_of_rank.insert(node_of_rank.end(), static_cast<std::size_t>(ranks), node);
    begin = end + 1;
  }
  return from_nodes(node_of_rank);
}

Topology Topology::from_nodes(std::span<const int> node_of_rank) {
  WINNOW_EXPECTS(!node_of_rank.empty() && node_of_rank.size() <= std::size_t{kMostRanks},
                 "a topology of " + std::to_string(node_of_rank.size()) +
                     " ranks: must have from 1 to " + std::to_string(kMostRanks));
  Topology topology;
  std::map<int, int> node_of_number;  // ordered by first rank, since ranks come in order
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const auto [place, is_new] = node_of_number.try_emplace(node_of_rank[rank], topology.nodes());
    if (is_new) topology.members_.emplace_back();
    std::vector<int>& members = topology.members_[static_cast<std::size_t>(place->second)];
    topology.node_.push_back(place->second);
    topology.local_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(rank));
    topology.rails_ = std::max(topology.rails_, static_cast<int>(members.size()));
  }
  return topology;
}

void Topology::refuse_rank(int rank) const {
  fail_usage("rank " + std::to_string(rank) + " is not one of the " + std::to_string(ranks()) +
             " of topology " + to_string());
}

int Topology::local_rank(int rank) const {
  (void)node_of(rank);  // checks the range
  return local_[static_cast<std::size_t>(rank)];
}

std::span<const int> Topology::members(int node) const {
  WINNOW_EXPECTS(node >= 0 && node < nodes(), "node " + std::to_string(node) +
                                                  " is not one of the " + std::to_string(nodes()) +
                                                  " of topology " + to_string());
  return members_[static_cast<std::size_t>(node)];
}

int Topology::ranks_on(int node) const {
  return static_cast<int>(members(node).size());
}

std::vector<int> Topology::rail(int index) const {
  WINNOW_EXPECTS(index >= 0 && index < rails_, "rail " + std::to_string(index) +
                                                   " is not one of the " + std::to_string(rails_) +
                                                   " of topology " + to_string());
  std::vector<int> ranks;
  ranks.reserve(members_.size());
  for (const std::vector<int>& members : members_)
    ranks.push_back(members[static_cast<std::size_t>(index) % members.size()]);
  return ranks;
}

bool Topology::is_uniform() const {
  for (int rank = 0; rank < ranks(); ++rank)
    if (node_[static_cast<std::size_t>(rank)] != rank / rails_) return false;
  return ranks() == nodes() * rails_;
}

std::string Topology::to_string() const {
  if (is_uniform()) return std::to_string(nodes()) + "x" + std::to_string(rails_);
  std::string text;
  for (const std::vector<int>& members : members_) {
    if (!text.empty()) text += ',';
    text += std::to_string(members.size());
  }
  return text;
}

}  // namespace winnow
