// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "comm/transport/failure_latch.hpp"
#include "comm/transport/message_transport.hpp"

namespace winnow::comm {

/// A message that a transport hands on later.
struct Enqueued : Message {
  std::size_t offset = 0;  ///< of its place in its start's block, if it is staged
};

/// A transport that keeps messages until start(), for others to carry.
class EnqueuingTransport : public MessageTransport {
 protected:
  explicit EnqueuingTransport(
      std::shared_ptr<FailureLatch> failure = std::make_shared<FailureLatch>())
      : failure_(std::move(failure)) {}

  void enqueue(const Message& message) override {
    failure_->expect_usable();
    enqueued_.push_back({message});
  }

  std::vector<Enqueued> enqueued_;         // since the last start
  std::shared_ptr<FailureLatch> failure_;  // a transport may share it with its subsets
};

}  // namespace winnow::comm
