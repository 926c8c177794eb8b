// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>
#include <winnow/topology.hpp>

#include "comm/transport/fifo.hpp"
#include "lab/simulated/timetable.hpp"
#include "topology/link_model.hpp"

namespace winnow::comm {

/// A message on its way out of a rank.
struct Outgoing {
  const std::byte* message;
  std::uint64_t bytes;
  std::uint32_t to;
  std::uint32_t ticket;
  double ready;  ///< virtual time from which it may leave
};

/// One message's way through the links, in virtual seconds.
struct Transit {
  Outgoing outgoing;
  std::uint32_t from;
  double begin;    ///< the first byte leaves the sender's port
  double left;     ///< the last byte has left it
  double arrival;  ///< the last byte has passed the receiver's port
};

/// The ports of a cluster, in virtual time. A rank's messages leave in the order enqueued,
/// separately for each level. A rank offers a port one message at a time, when it is ready and the
/// previous one has left. A port sends offers in order of time, ties by rank, so ranks that share
/// an uplink take turns. Cut-through:
///   begin = max(offered, port free), left = begin + bytes / beta;
///   arrival = max(begin + alpha, receiving port free) + bytes / beta.
/// Transits come out in order of `begin`. With one alpha per level that is also the order in which
/// their first bytes reach receiving ports, so ports need no queue of what is under way.
class SimulatedLinks {
 public:
  SimulatedLinks(const Topology& topology, const LinkModel& model);

  /// Enqueues a message, which waits for release.
  void enqueue(int from, const Outgoing& outgoing) {
    lane(from, static_cast<int>(outgoing.to)).queue.push(outgoing);
  }
  /// Lets everything that `from` has enqueued leave from `now` on.
  void release(int from, double now);
  /// Drops what `from` has enqueued and not begun to send; calls each(outgoing) for each.
  template <class Each>
  void drop(int from, const Each& each) {
    for (Level& level : levels_) {
      Lane& lane = level.lanes[static_cast<std::size_t>(from)];
      for (; !lane.queue.empty(); lane.queue.pop()) each(lane.queue.front());
      lane.released = lane.queue.end();
      offer(level, lane);
    }
  }

  /// Whether no released message is left to send.
  bool idle() const { return due_.empty(); }
  /// When the next message leaves.
  double time() const { return due_.time(); }
  /// Carries the next message.
  Transit next();

  /// Bytes that have left a node for others.
  std::uint64_t uplink_bytes(int node) const { return uplink_[static_cast<std::size_t>(node)]; }

 private:
  struct Lane {
    Fifo<Outgoing> queue;
    std::uint64_t released = 0;  // number of the first entry that may not leave yet
    double free = 0;             // when the last message to leave had left
    std::uint32_t port = 0;
    std::uint32_t place = 0;  // among the port's ranks
  };
  struct Port {
    Timetable offers;  // by place: when the rank offers its next message
    std::vector<std::uint32_t> ranks;
    double sends_until = 0, receives_until = 0;
  };
  struct Level {
    Link link;
    std::uint32_t first_port = 0;  // number in due_ of ports[0]
    std::vector<Port> ports;
    std::vector<Lane> lanes;  // by rank
  };

  static Level make_level(const Topology& topology, const Link& link, std::uint32_t first_port);
  Lane& lane(int from, int to) {
    const bool inter = topology_.node_of(from) != topology_.node_of(to);
    return levels_[inter ? 1 : 0].lanes[static_cast<std::size_t>(from)];
  }
  void offer(Level& level, const Lane& lane);

  const Topology& topology_;
  std::array<Level, 2> levels_;  // within nodes, between nodes
  Timetable due_;                // by port: when its next message leaves
  std::vector<std::uint64_t> uplink_;
};

}  // namespace winnow::comm
