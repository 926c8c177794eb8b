// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/subset.hpp"

#include <algorithm>
#include <string>
#include <winnow/error.hpp>

namespace winnow::comm {

namespace {

class Subset final : public Transport {
 public:
  Subset(Transport& parent, std::vector<int> ranks, int rank)
      : parent_(parent), ranks_(std::move(ranks)), rank_(rank) {
    sends_over(parent);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  int node() const override { return parent_.node(); }
  bool takes(Place place) const override { return parent_.takes(place); }

  void send(std::span<const std::byte> message, int peer) override {
    parent_.send(message, parent_rank(peer));
    bytes_sent_ += message.size();
  }
  void recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) override {
    parent_.recv(buffer, parent_rank(peer), message_bytes);
  }
  Ticket start(const Exec& exec) override { return parent_.start(exec); }
  void wait(Ticket ticket, Deadline deadline) override { parent_.wait(ticket, deadline); }
  bool test(Ticket ticket, Deadline deadline) override { return parent_.test(ticket, deadline); }
  void progress() override { parent_.progress(); }
  void abort(std::string_view reason, FailureKind kind) noexcept override {
    parent_.abort(reason, kind);
  }
  bool sizes_travel() const override { return parent_.sizes_travel(); }
  bool allows_threads() const override { return parent_.allows_threads(); }

 private:
  int parent_rank(int peer) const {
    WINNOW_EXPECTS(peer >= 0 && peer < size() && peer != rank_,
                   "peer " + std::to_string(peer) + " of rank " + std::to_string(rank_) + " in a " +
                       "subset of " + std::to_string(size()) + ": must be another rank");
    return ranks_[static_cast<std::size_t>(peer)];
  }

  Transport& parent_;
  std::vector<int> ranks_;  // rank here -> rank of the parent
  int rank_;
};

}  // namespace

int place_in_subset(const Transport& parent, std::span<const int> ranks) {
  std::vector<bool> named(static_cast<std::size_t>(parent.size()));
  for (const int rank : ranks) {
    WINNOW_EXPECTS(rank >= 0 && rank < parent.size(), "subset names rank " + std::to_string(rank) +
                                                          " of " + std::to_string(parent.size()) +
                                                          ": must be from 0 to size - 1");
    WINNOW_EXPECTS(!named[static_cast<std::size_t>(rank)],
                   "subset names rank " + std::to_string(rank) + " twice");
    named[static_cast<std::size_t>(rank)] = true;
  }
  WINNOW_EXPECTS(named[static_cast<std::size_t>(parent.rank())],
                 "subset must name the calling rank, " + std::to_string(parent.rank()));
  return static_cast<int>(std::ranges::find(ranks, parent.rank()) - ranks.begin());
}

std::unique_ptr<Transport> make_subset(Transport& parent, std::span<const int> ranks) {
  const int place = place_in_subset(parent, ranks);
  return std::make_unique<Subset>(parent, std::vector<int>(ranks.begin(), ranks.end()), place);
}

}  // namespace winnow::comm
