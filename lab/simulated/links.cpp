// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "lab/simulated/links.hpp"

#include <algorithm>

namespace winnow::comm {

SimulatedLinks::SimulatedLinks(const Topology& topology, const LinkModel& model)
    : topology_(topology),
      levels_{make_level(topology, model.intra, 0),
              make_level(topology, model.inter, static_cast<std::uint32_t>(topology.ranks()))},
      due_(2 * static_cast<std::size_t>(topology.ranks())),
      uplink_(static_cast<std::size_t>(topology.nodes())) {}

SimulatedLinks::Level SimulatedLinks::make_level(const Topology& topology, const Link& link,
                                                 std::uint32_t first_port) {
  Level level{.link = link, .first_port = first_port};
  level.lanes.resize(static_cast<std::size_t>(topology.ranks()));
  const auto add_port = [&](std::span<const int> ranks) {
    Port& port = level.ports.emplace_back(Port{.offers = Timetable(ranks.size())});
    for (const int rank : ranks) {
      Lane& lane = level.lanes[static_cast<std::size_t>(rank)];
      lane.port = static_cast<std::uint32_t>(level.ports.size() - 1);
      lane.place = static_cast<std::uint32_t>(port.ranks.size());
      port.ranks.push_back(static_cast<std::uint32_t>(rank));
    }
  };
  for (int node = 0; node < topology.nodes(); ++node) {
    const std::span<const int> ranks = topology.members(node);
    if (link.port == Link::Port::per_node) {
      add_port(ranks);
    } else {
      for (const int& rank : ranks) add_port({&rank, 1});
    }
  }
  return level;
}

void SimulatedLinks::release(int from, double now) {
  for (Level& level : levels_) {
    Lane& lane = level.lanes[static_cast<std::size_t>(from)];
    const bool waited_for_none = lane.queue.begin() == lane.released;
    for (; lane.released != lane.queue.end(); ++lane.released)
      lane.queue[lane.released].ready = now;
    if (waited_for_none) offer(level, lane);
  }
}

/// Notes when a lane offers its first message to its port, and when the port sends next.
void SimulatedLinks::offer(Level& level, const Lane& lane) {
  Port& port = level.ports[lane.port];
  if (lane.queue.begin() == lane.released) {
    port.offers.erase(lane.place);
  } else {
    port.offers.set(lane.place, std::max(lane.queue[lane.queue.begin()].ready, lane.free));
  }
  const std::uint32_t number = level.first_port + lane.port;
  if (port.offers.empty()) {
    due_.erase(number);
  } else {
    due_.set(number, std::max(port.offers.time(), port.sends_until));
  }
}

Transit SimulatedLinks::next() {
  const std::uint32_t number = due_.number();
  Level& level = levels_[number < levels_[1].first_port ? 0 : 1];
  Port& port = level.ports[number - level.first_port];
  const std::uint32_t from = port.ranks[port.offers.number()];
  Lane& lane = level.lanes[from];

  Transit transit{.outgoing = lane.queue.front(), .from = from, .begin = due_.time()};
  const double seconds = level.link.seconds(transit.outgoing.bytes);
  Port& receiving = level.ports[level.lanes[transit.outgoing.to].port];
  transit.left = transit.begin + seconds;
  transit.arrival = std::max(transit.begin + level.link.alpha, receiving.receives_until) + seconds;
  port.sends_until = lane.free = transit.left;
  receiving.receives_until = transit.arrival;
  if (&level == &levels_[1])
    uplink_[static_cast<std::size_t>(topology_.node_of(static_cast<int>(from)))] +=
        transit.outgoing.bytes;

  lane.queue.pop();
  offer(level, lane);
  return transit;
}

}  // namespace winnow::comm
