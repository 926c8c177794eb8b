// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "lab/simulated/simulated.hpp"

#include <cmath>
#include <string>
#include <winnow/error.hpp>

#include "comm/transport/expect.hpp"
#include "comm/transport/ring.hpp"
#include "lab/simulated/simulation.hpp"
#include "topology/words.hpp"

namespace winnow::comm {

SimulatedResult SimulatedWorld::run(const Body& body) const {
  const auto simulation = std::make_shared<Simulation>(*this);
  return simulation->run(simulation, body);
}

double SimulatedTransport::clock() const {
  return simulation_->clock(rank_);
}
void SimulatedTransport::advance(double seconds) {
  WINNOW_EXPECTS(seconds >= 0 && std::isfinite(seconds),
                 "advance by " + number_text(seconds) + " seconds: must be 0 or more");
  simulation_->expect_usable(rank_);
  simulation_->advance(rank_, seconds);
}
void SimulatedTransport::pass(double bytes) {
  advance(bytes * simulation_->world().links.gamma());
}
void SimulatedTransport::all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                                    Deadline deadline) {
  if (simulation_->world().payload == SimulatedWorld::Payload::bytes) {
    Transport::all_reduce(exec, elements, op, deadline);
    return;
  }
  reduce_ring({.transport = *this,
               .exec = exec,
               .elements = elements,
               .op = op,
               .first_step = 0,
               .last_step = 2 * size() - 2,
               .deadline = deadline,
               .combine = [](Transport& rank, const Exec&, ReduceOp, const Elements& own,
                             const Elements& arrived) {
                 const auto bytes = 2 * own.bytes().size() + arrived.bytes().size();
                 static_cast<SimulatedTransport&>(rank).pass(static_cast<double>(bytes));
               }});
}
int SimulatedTransport::size() const {
  return simulation_->topology().ranks();
}
int SimulatedTransport::node() const {
  return simulation_->topology().node_of(rank_);
}

void SimulatedTransport::send(std::span<const std::byte> message, int peer) {
  expect_peer(peer, rank_, size());
  simulation_->send(rank_, message, peer);
  bytes_sent_ += message.size();
}
void SimulatedTransport::recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) {
  expect_peer(peer, rank_, size());
  simulation_->recv(rank_, buffer, peer, message_bytes);
}
Ticket SimulatedTransport::start(const Exec&) {
  return simulation_->start(rank_);
}
void SimulatedTransport::wait(Ticket ticket, Deadline) {
  simulation_->wait(rank_, ticket);
}
void SimulatedTransport::abort(std::string_view reason, FailureKind kind) noexcept {
  simulation_->abort(rank_, reason, kind);
}

}  // namespace winnow::comm
