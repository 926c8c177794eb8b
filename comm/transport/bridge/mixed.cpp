// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "winnow/mixed.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "comm/transport/abort_on_error.hpp"
#include "comm/transport/bridge/enqueued.hpp"
#include "comm/transport/bridge/staged.hpp"
#include "comm/transport/gather_values.hpp"
#include "comm/transport/occupancy.hpp"
#include "comm/transport/poll.hpp"
#include "comm/transport/ticket_queue.hpp"

namespace winnow {
namespace {

constexpr unsigned kPollsPerProgress = 64;

/// A rank's message to all others about its node.
struct RankInfo {
  int node;  // in the world's numbering
  int rank, size;
  int sizes_travel;
};

/// A transport that nobody else uses meanwhile.
struct Own {
  explicit Own(std::shared_ptr<Transport> given)
      : transport(std::move(given)), claim(*transport, "a mixed transport") {}

  std::shared_ptr<Transport> transport;
  comm::Claim claim;
};

class MixedTransport final : public comm::EnqueuingTransport {
 public:
  MixedTransport(Own world, Own node, std::vector<RankInfo> infos);

  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  int node() const override { return world_->node(); }
  bool takes(Place place) const override { return lanes_of(place).between != nullptr; }
  bool sizes_travel() const override { return sizes_travel_; }
  bool allows_threads() const override {
    return world_->allows_threads() && node_->allows_threads();
  }

  Ticket start(const Exec& exec) override;
  void wait(Ticket ticket, Deadline deadline) override;
  bool test(Ticket ticket, Deadline deadline) override;
  void progress() override;
  void abort(std::string_view reason, FailureKind kind) noexcept override;
  MemoryRegistrar registrar() override { return node_->registrar(); }
  std::unique_ptr<Transport> duplicate(Deadline deadline) override;

 private:
  /// The transports for one kind of memory; twice the same if it carries all messages, null if
  /// there is none.
  struct Lanes {
    Transport* between = nullptr;
    Transport* within = nullptr;
  };
  /// One start.
  struct Started {
    const Lanes* lanes = nullptr;
    Ticket between, within;
  };

  const Lanes& lanes_of(Place place) const { return place == Place::cuda ? device_ : host_; }
  /// Runs `call` on the world. If it throws, aborts the node: its work on the caller's stream may
  /// be waiting for peers.
  template <class Call>
  auto over_world(const Call& call) {
    try {
      return call();
    } catch (const std::exception& error) {
      comm::abort_by(*node_, error);
      throw;
    }
  }
  void post(const Lanes& lanes);

  std::shared_ptr<Transport> world_, node_;
  comm::Claim of_world_, of_node_;
  std::vector<RankInfo> infos_;        // by rank
  std::unique_ptr<Transport> staged_;  // over the world, for device memory
  Lanes host_, device_;
  std::vector<int> rank_in_node_;  // by rank; -1 on another node
  std::string members_;            // ranks of this node, for error messages
  bool sizes_travel_;
  comm::TicketQueue<Started> under_way_;
};

MixedTransport::MixedTransport(Own world, Own node, std::vector<RankInfo> infos)
    : world_(std::move(world.transport)),
      node_(std::move(node.transport)),
      of_world_(std::move(world.claim)),
      of_node_(std::move(node.claim)),
      infos_(std::move(infos)),
      sizes_travel_(world_->sizes_travel()) {
  for (std::size_t peer = 0; peer < infos_.size(); ++peer) {
    const bool here = infos_[peer].node == world_->node();
    rank_in_node_.push_back(here ? infos_[peer].rank : -1);
    if (here) members_ += (members_.empty() ? "rank " : ", rank ") + std::to_string(peer);
    sizes_travel_ &= infos_[peer].sizes_travel != 0;
  }
  host_ = {.between = world_.get(),
           .within = node_->takes(Place::host) ? node_.get() : world_.get()};
  if (!node_->takes(Place::cuda)) return;
  if (!world_->takes(Place::cuda)) staged_ = comm::staged(*world_);
  device_ = {.between = staged_ == nullptr ? world_.get() : staged_.get(), .within = node_.get()};
}

// Whatever finishes under NCCL's rules (a rank's messages move only when its earlier starts are
// done) finishes here, too:
//   - Messages to other nodes are copied to the host ahead of the start's own NCCL group on the
//     stream, so they wait only for earlier starts.
//   - Messages from other nodes are copied to the device on a separate stream, so never behind a
//     group that was started later.
//   - A wait polls both, so a peer for which this rank's node waits gets what it needs meanwhile.
//   - NCCL groups are those of the same starts, without the messages between nodes.
Ticket MixedTransport::start(const Exec& exec) {
  failure_->expect_usable();
  const Lanes& lanes = lanes_of(exec.place);
  WINNOW_EXPECTS(lanes.between != nullptr,
                 "a mixed transport whose node's does not take a device's memory was given some");
  const bool may_follow = under_way_.empty() || under_way_[under_way_.last()].lanes == &lanes ||
                          (host_.between == device_.between && host_.within == device_.within);
  WINNOW_EXPECTS(may_follow,
                 "a mixed transport carries the host's messages and a device's over different "
                 "ones: wait for what was started before the other kind");
  return failure_->guard<std::exception>([&] {
    try {
      post(lanes);
      Started started{.lanes = &lanes, .between = lanes.between->start(exec), .within = {}};
      if (lanes.within == node_.get()) started.within = node_->start(exec);
      return under_way_.push(started);
    } catch (const std::exception& error) {  // half of it may be under way
      comm::abort_by(*world_, error);
      comm::abort_by(*node_, error);
      throw;
    }
  });
}

/// Hands the enqueued messages to the transports that carry them.
void MixedTransport::post(const Lanes& lanes) {
  for (const comm::Enqueued& message : enqueued_) {
    const int place = rank_in_node_[static_cast<std::size_t>(message.peer)];
    const bool over_node = place >= 0 && lanes.within == node_.get();
    Transport& lane = over_node ? *node_ : *lanes.between;
    const int peer = over_node ? place : message.peer;
    if (message.is_send) {
      lane.send({message.data, message.bytes}, peer);
    } else {
      lane.recv({message.data, message.bytes}, peer, message.message_bytes);
    }
  }
  enqueued_.clear();
}

bool MixedTransport::test(Ticket ticket, Deadline deadline) {
  failure_->expect_usable();
  under_way_.expect_started(ticket);
  if (ticket.number <= under_way_.completed()) return true;
  return failure_->guard<std::exception>([&] {
    const Started& started = under_way_[ticket.number];
    const auto moves_on = [&] {
      return over_world([&] { return started.lanes->between->test(started.between, deadline); });
    };
    bool done = moves_on();
    if (started.lanes->within == node_.get()) {
      try {
        done &= node_->test(started.within, deadline);
      } catch (const CommError& error) {
        // An aborting rank notifies the world first; the world's error has its world rank.
        (void)moves_on();
        throw CommError("in the node of " + members_ + ": " + error.what(), error.code(),
                        error.kind());
      }
    }
    return under_way_.retire(ticket.number, [done](const Started&) { return done; });
  });
}

void MixedTransport::wait(Ticket ticket, Deadline deadline) {
  unsigned polls = 0;
  comm::spin_until([&] {
    if (test(ticket, deadline)) return true;
    // A transport that is done with its part learns of an abort here.
    if (++polls % kPollsPerProgress == 0) progress();
    return false;
  });
}

void MixedTransport::progress() {
  if (failure_->failed()) return;
  failure_->guard<std::exception>([this] {
    over_world([this] { (staged_ == nullptr ? *world_ : *staged_).progress(); });
    node_->progress();
  });
}

void MixedTransport::abort(std::string_view reason, FailureKind kind) noexcept {
  failure_->keep(comm::aborted_here(reason, kind));
  world_->abort(reason, kind);
  node_->abort(reason, kind);
}

std::unique_ptr<Transport> MixedTransport::duplicate(Deadline deadline) {
  failure_->expect_usable();
  const comm::Quiet quiet(*this);
  return comm::abort_on_error(*this, [&] {
    Own world(world_->duplicate(deadline));
    Own node(node_->duplicate(deadline));
    return std::make_unique<MixedTransport>(std::move(world), std::move(node), infos_);
  });
}

/// Gathers what every rank of the world says of its node; throws on all of them if it does not fit.
std::vector<RankInfo> exchange_info(Transport& world, const Transport& node, Deadline deadline) {
  const RankInfo mine{.node = world.node(),
                      .rank = node.rank(),
                      .size = node.size(),
                      .sizes_travel = node.sizes_travel() ? 1 : 0};
  std::vector<RankInfo> infos = comm::gather_values(world, mine, deadline);
  for (std::size_t rank = 0; rank < infos.size(); ++rank) {
    const auto same = [&](const RankInfo& other) { return other.node == infos[rank].node; };
    const auto here = infos.begin() + static_cast<std::ptrdiff_t>(rank);
    const auto place = std::count_if(infos.begin(), here, same);
    const auto members = std::ranges::count_if(infos, same);
    WINNOW_EXPECTS(
        here->rank == place && here->size == members,
        "mixed_transport: rank " + std::to_string(rank) + " is rank " + std::to_string(place) +
            " of " + std::to_string(members) + " on its node, by the world's transport, and rank " +
            std::to_string(here->rank) + " of " + std::to_string(here->size) + " by the node's");
  }
  return infos;
}

}  // namespace

std::shared_ptr<Transport> mixed_transport(std::shared_ptr<Transport> world,
                                           std::shared_ptr<Transport> node, Deadline deadline) {
  WINNOW_EXPECTS(world != nullptr && node != nullptr, "mixed_transport needs two transports");
  WINNOW_EXPECTS(world->takes(Place::host),
                 "mixed_transport: the world's transport must take host memory");
  Own between(std::move(world)), within(std::move(node));
  std::vector<RankInfo> infos = exchange_info(*between.transport, *within.transport, deadline);
  if (within.transport->size() == between.transport->size()) return within.transport;
  const bool alone =
      std::ranges::all_of(infos, [](const RankInfo& info) { return info.size == 1; });
  if (alone) return between.transport;
  return std::make_shared<MixedTransport>(std::move(between), std::move(within), std::move(infos));
}

}  // namespace winnow
