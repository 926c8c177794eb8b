// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "tests/harness/forwarding_transport.hpp"

namespace winnow::tests {

/// Waits as long as asked, but only briefly once told that a peer is dead: a call that should
/// succeed has all the time that a busy machine needs, and one that should fail takes little.
class WarnedTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void wait(Ticket ticket, Deadline deadline) override {
    ForwardingTransport::wait(ticket, warned ? Deadline::after(kBriefly) : deadline);
  }

  bool warned = false;

 private:
  static constexpr std::chrono::milliseconds kBriefly{100};
};

}  // namespace winnow::tests
