// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace winnow::comm {

/// What a transport of host memory may offer beside Transport: messages that go while they are
/// still being written, and are read while they still come. On the wire they are like any other, so
/// either end may take part or not. The counts are read and written within calls of the transport,
/// and live until its wait has returned.
class GrowingMessages {
 public:
  virtual ~GrowingMessages() = default;
  /// Transport::send of a message whose first *written bytes are there; the caller raises that.
  virtual void send_growing(std::span<const std::byte> message, int peer,
                            const std::uint64_t* written) = 0;
  /// Transport::recv that says in *arrived how many bytes, from the first on, have come.
  virtual void recv_growing(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes,
                            std::uint64_t* arrived) = 0;

 protected:
  GrowingMessages() = default;
  GrowingMessages(const GrowingMessages&) = default;
  GrowingMessages& operator=(const GrowingMessages&) = default;
};

}  // namespace winnow::comm
