// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>
#include <winnow/topology.hpp>
#include <winnow/transport.hpp>

#include "topology/link_model.hpp"

namespace winnow::comm {

class Simulation;

/// A rank of a simulated world. It keeps Transport's promises, and nothing depends on the machine's
/// speed. A wait ends when its messages have arrived in virtual time. If no message is under way
/// and no rank can run, every waiting rank gets a CommError that says who waits for whom.
/// Deadlines, which are wall-clock times, are ignored. A send is done when its last byte has left
/// its port and its peer expects it.
class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(std::shared_ptr<Simulation> simulation, int rank)
      : simulation_(std::move(simulation)), rank_(rank) {}

  /// Virtual seconds since the run began.
  double clock() const;
  /// Advances this rank's virtual time, as a computation would.
  void advance(double seconds);
  /// Advances it by the time that passes over this many bytes of memory would take.
  void pass(double bytes);

  int rank() const override { return rank_; }
  int size() const override;
  int node() const override;
  void send(std::span<const std::byte> message, int peer) override;
  void recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) override;
  Ticket start(const Exec& exec) override;
  void wait(Ticket ticket, Deadline deadline) override;
  void abort(std::string_view reason, FailureKind kind) noexcept override;
  void all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                  Deadline deadline) override;

 private:
  std::shared_ptr<Simulation> simulation_;
  int rank_;
};

/// One message as it travelled, in virtual seconds.
struct SimulatedTransfer {
  int from, to;
  std::uint64_t message_bytes;
  double begin, end;  ///< the first byte left, the last byte arrived

  friend bool operator==(const SimulatedTransfer&, const SimulatedTransfer&) = default;
};

/// The outcome of a run.
struct SimulatedResult {
  std::vector<double> seconds;               ///< by rank: its clock when its body ended
  std::vector<std::uint64_t> bytes_sent;     ///< by rank
  std::vector<std::uint64_t> messages_sent;  ///< by rank
  std::vector<std::uint64_t> uplink_bytes;   ///< by node: what it sent to others
  std::vector<SimulatedTransfer> transfers;  ///< in order of `begin`, if `trace` is set
};

/// Real code on ranks of this process with virtual clocks and links. Each rank is a fiber; they
/// take turns in order of virtual time on the thread that calls run.
struct SimulatedWorld {
  /// Whether messages carry their bytes, or only their sizes. With sizes, the memory of a message
  /// is never touched and need not exist; all_reduce, a ring, then adds nothing and takes only the
  /// time.
  enum class Payload { bytes, sizes };
  using Body = std::function<void(const std::shared_ptr<SimulatedTransport>&)>;

  Topology topology;
  LinkModel links = {};
  Payload payload = Payload::bytes;
  bool trace = false;  ///< fill SimulatedResult::transfers

  /// Runs `body` on every rank until all have ended. Rethrows the first exception that left a body.
  /// If no rank failed but a message was not received, or a receipt got no message, throws
  /// CommError naming it.
  SimulatedResult run(const Body& body) const;
};

}  // namespace winnow::comm
