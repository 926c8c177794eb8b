// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "comm/schedule/counts.hpp"
#include "comm/schedule/node_part.hpp"
#include "compress/message.hpp"

namespace winnow::comm {

/// The third round in two levels: the servers of a node send it the outcomes of their rails. One
/// member function per stage, in this order. Takes scratch that lives as long as the call.
class NodeShare {
 public:
  /// `inner`: by rail, the ended exchanges that this rank serves.
  NodeShare(const NodePart& node, std::span<Exchange> inner);

  /// Whether a round before this one exchanges how long the rails' outcomes are: how many elements
  /// sums have, and the bytes of messages that have travelled.
  bool needs_counts() const;
  Counts count();
  /// Takes the counts that have arrived, and finalizes the unions of this rank's rails.
  void take_counts(const Counts& counts);

  /// Starts the round: sends the rails' outcomes to this node.
  void share();
  /// Ends it: adds the outcomes of all rails, by position of the part, into `sum`, which becomes
  /// the part's WholeSum.
  void finish(std::span<float> sum);

 private:
  Workspace& workspace() const { return *exchange_.exec.workspace; }
  std::size_t outcomes() const;
  compress::Header header_of_outcome(std::size_t rail, std::uint32_t sender) const;
  const compress::Shape& shape_of_outcome(std::size_t rail, std::uint32_t sender) const;
  compress::Expected expected(std::size_t rail, std::uint32_t sender) const;
  std::size_t bytes_of_outcome(std::size_t rail, std::uint32_t sender) const;
  const compress::Union* union_of(std::size_t rail) const;
  std::size_t place_of(std::size_t rail, std::uint32_t sender) const;
  std::span<std::byte> take_outcome_buffer(std::size_t rail, std::uint32_t sender) const;
  void count_turn(std::size_t rail) const;
  void pack(std::size_t rail) const;
  void send_to_node(std::span<const std::byte> message);
  void open_outcomes();

  const NodePart& node_;
  Exchange& exchange_;  // of it
  // Indexed by rail:
  std::span<Exchange> inner_;
  std::span<std::span<compress::MessageView>> messages_;
  std::span<std::span<std::uint64_t>> received_;  // their bytes
  // If they were exchanged, those of outcomes, by rail, then by sender:
  std::optional<std::span<const std::uint64_t>> counts_;
};

}  // namespace winnow::comm
