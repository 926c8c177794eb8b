// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <winnow/error.hpp>
#include <winnow/transport.hpp>

#include "comm/transport/expect.hpp"
#include "comm/transport/failure_latch.hpp"

namespace winnow::comm {

/// Marks the transport of one rank that does what each of many would do by itself: over it
/// schedules select, code and keep residuals, where one rank alone would be dense. For tests and
/// benchmarks of that work.
class OneOfMany {
 public:
  virtual ~OneOfMany() = default;
  OneOfMany(const OneOfMany&) = delete;
  OneOfMany& operator=(const OneOfMany&) = delete;

 protected:
  OneOfMany() = default;
};

/// Such a transport, which takes memory of every place and carries nothing.
class OneOfManyTransport final : public Transport, public OneOfMany {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int node() const override { return 0; }
  bool takes(Place) const override { return true; }
  void send(std::span<const std::byte>, int peer) override { expect_peer(peer, 0, 1); }
  void recv(std::span<std::byte>, int peer, std::uint64_t*) override { expect_peer(peer, 0, 1); }
  Ticket start(const Exec&) override {
    failure_.expect_usable();
    return {};
  }
  void wait(Ticket, Deadline) override { failure_.expect_usable(); }
  void abort(std::string_view reason, FailureKind kind) noexcept override {
    failure_.keep(aborted_here(reason, kind));
  }
  bool allows_threads() const override { return true; }

 private:
  FailureLatch failure_;
};

}  // namespace winnow::comm
