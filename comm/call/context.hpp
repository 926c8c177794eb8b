// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>
#include <winnow/workspace.hpp>

#include "comm/transport/bridge/memory_adapter.hpp"
#include "comm/transport/occupancy.hpp"
#include "kernels/exec/device_scope.hpp"
#include "kernels/exec/together.hpp"

namespace winnow::comm {

/// Where a rank works: the memory of its buckets, scratch there and on the host, and transports for
/// messages in either memory.
class Context {
 public:
  /// For buckets in the memory of where.place, in the order of where.stream. UsageError if
  /// `transport` is null or serves another; where `where` sets more than these, or is not possible,
  /// see refusal().
  Context(std::shared_ptr<Transport> transport, const Exec& where);
  /// Ends registrations while the transport is there.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Why buckets cannot lie there, or empty. host() serves until all ranks know.
  const std::string& refusal() const { return refusal_; }

  /// Held by the thread that makes a call.
  std::mutex& moving() const { return claim_.moving(); }
  /// How calls in flight are finished, for collectives of the transport itself; see Quiet.
  void finish_by(std::function<void()> finish) { claim_.finish_by(std::move(finish)); }

  /// The transport as given.
  const std::shared_ptr<Transport>& transport() const { return transport_; }
  /// Transports for messages in the buckets' memory and in host memory. Host messages do not go
  /// while others are under way.
  Transport& world() const { return world_->transport(); }
  Transport& control() const { return control_->transport(); }

  /// Checks every byte from here on; see checked(). All ranks do so at the same place.
  void check_all();

  /// Registers device scratch with world(), if that registers any. All ranks do so at the same
  /// place, and all have buckets on a device, or all on the host.
  void register_scratch();

  /// How to work on buckets, and on what only the host sees. Valid as long as this object.
  const Exec& exec() const { return exec_; }
  const Exec& host() const { return host_; }
  void set_threads(int threads) { exec_.threads = host_.threads = threads; }

  /// The buckets' device; -1 for host memory.
  int device() const { return device_; }

  /// Scratch blocks allocated, in both memories.
  std::uint64_t allocations() const {
    std::uint64_t sum = scratch_.host.allocations();
    for (const auto* workspace : {&scratch_.device, &scratch_.pinned}) {
      if (*workspace) sum += (*workspace)->allocations();
    }
    return sum;
  }
  /// Never frees scratch again: the transport may still access it.
  void abandon() noexcept;

 private:
  struct Scratch {
    Workspace host;
    std::optional<Workspace> device, pinned;
    Exec::Launches launches;
  };

  Scratch scratch_;  // outlives the transports, which may still read sent buffers
  Exec host_, exec_;
  int device_ = -1;
  std::string refusal_;
  std::shared_ptr<Transport> transport_;
  Claim claim_;
  std::unique_ptr<Transport> checked_;
  std::unique_ptr<MemoryAdapter> world_, control_;
};

}  // namespace winnow::comm
