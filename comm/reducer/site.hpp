// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>
#include <winnow/workspace.hpp>

#include "comm/transport/bridge/carrier.hpp"
#include "kernels/exec/device_scope.hpp"

namespace winnow::comm {

/// Where a rank works: the memory of its buckets, scratch there and on the host, and the transport
/// for messages from either.
class Site {
 public:
  /// Of buckets in the memory of where.place, worked on in the order of where.stream. UsageError
  /// where it says more, or cannot be; there is a host all the same, see refusal().
  Site(std::shared_ptr<Transport> transport, const Exec& where);
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  /// Why buckets cannot lie there, or empty. Until all ranks have heard of it host() serves.
  const std::string& refusal() const { return refusal_; }

  /// As it was given.
  const std::shared_ptr<Transport>& transport() const { return transport_; }
  /// For messages in the memory of buckets, and for those of the host, which do not go while others
  /// are under way.
  Transport& world() const { return world_->transport(); }
  Transport& control() const { return control_->transport(); }

  /// How work on buckets runs, and on what the host alone sees. They live as long as this.
  const Exec& exec() const { return exec_; }
  const Exec& host() const { return host_; }
  void set_threads(int threads) { exec_.threads = host_.threads = threads; }

  /// That of buckets; -1 where they lie in host memory.
  int device() const { return device_; }

  /// Blocks of scratch, of either memory.
  std::uint64_t allocations() const;
  /// Never frees scratch again, which the transport may still read or write.
  void abandon() noexcept;

 private:
  Workspace workspace_;  // these outlive the transports, which may still read what was sent
  std::optional<Workspace> device_workspace_, pinned_workspace_;
  Exec host_, exec_;
  int device_ = -1;
  std::string refusal_;
  std::shared_ptr<Transport> transport_;
  std::unique_ptr<Carrier> world_, control_;
};

}  // namespace winnow::comm
