// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace winnow::comm {

/// An optional extra of a host-memory transport: messages that are sent while they are still being
/// written, and read while they still arrive. On the wire they look like any other, so each end may
/// use this or not. The counts are accessed only within calls of the transport; they must live
/// until its wait has returned.
class [[gnu::visibility("default")]] GrowingMessages {
 public:
  virtual ~GrowingMessages() = default;
  /// Transport::send of a message whose first *written bytes are ready; the caller raises *written.
  virtual void send_growing(std::span<const std::byte> message, int peer,
                            const std::uint64_t* written) = 0;
  /// Transport::recv that reports in *arrived how many bytes, from the first on, have arrived.
  virtual void recv_growing(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes,
                            std::uint64_t* arrived) = 0;

 protected:
  GrowingMessages() = default;
  GrowingMessages(const GrowingMessages&) = default;
  GrowingMessages& operator=(const GrowingMessages&) = default;
};

}  // namespace winnow::comm
