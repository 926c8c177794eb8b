// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/schedule/node_part.hpp"
#include "compress/message.hpp"

namespace winnow::comm {

/// The first round in two levels: the sums of a node's gradients. One member function per stage, in
/// this order. Takes scratch that lives as long as the call.
class NodeSum {
 public:
  explicit NodeSum(const NodePart& node);

  /// Starts the round: sends gradients to the servers on this node.
  void collect();
  /// Ends it: the pieces of the shards that this rank serves view their sums. They stay until
  /// memory() is used for something else.
  void sum();

  /// Room for every position of the part, which holds the sums of the node.
  std::span<float> memory() const { return memory_; }

 private:
  /// This rank's input for a shard that it serves, by local rank.
  struct Gathered {
    std::span<float> sum;                     ///< by position of the shard
    std::span<std::span<float>> gradients;    ///< likewise; its own stays where it was
    std::span<std::span<std::byte>> headers;  ///< sent before the gradients
  };
  struct Receipt {
    std::uint64_t expected, bytes;
    int sender;
  };

  Workspace& workspace() const { return *exchange_.exec.workspace; }
  std::span<float> take_floats(std::uint64_t floats) const;
  std::span<std::byte> take_header() const;
  std::span<const float> outgoing(const Shard& shard, std::size_t i) const;
  compress::Header header_of_gradient(std::size_t rail) const;
  void fold_in_off_shard_residual();
  void send_gradient(int server);
  void receive_gradients(std::size_t sender);
  void receive_whole(std::span<std::byte> buffer, int sender);
  void expect_all_whole() const;
  void open_headers() const;
  void add_gradients(std::size_t rail);
  void save_residuals();

  const NodePart& node_;
  Exchange& exchange_;                          // of it
  std::span<Gathered> gathered_;                // by rail
  std::span<std::span<const float>> outgoing_;  // by piece
  std::span<float> memory_;
  std::span<Receipt> all_receipts_;
  Receipt* receipts_ = nullptr;  // the next of them
};

}  // namespace winnow::comm
