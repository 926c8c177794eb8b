// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks.hpp"

namespace winnow::tests {

/// Who runs calls in flight: a thread, if the transport allows one, or the waiter.
enum class Runner { thread, waiter };

class ChosenRunner final : public ForwardingTransport {
 public:
  ChosenRunner(std::shared_ptr<Transport> inner, Runner runner)
      : ForwardingTransport(std::move(inner)), runner_(runner) {}
  bool allows_threads() const override {
    return runner_ == Runner::thread && ForwardingTransport::allows_threads();
  }
  Ticket start(const Exec& exec) override {
    const std::lock_guard passed(gate);
    if (cut && rank() == 0) throw CommError("the wire was cut");
    return ForwardingTransport::start(exec);
  }

  void wait(Ticket ticket, Deadline deadline) override {
    ForwardingTransport::wait(ticket, hurried ? Deadline::after(kBriefly) : deadline);
  }

  std::atomic<bool> cut = false;  ///< rank 0's messages
  bool hurried = false;           ///< waits end soon
  std::mutex gate;                ///< no message leaves while a test holds it

 private:
  static constexpr std::chrono::milliseconds kBriefly{100};
  Runner runner_;
};

/// Tests of calls in flight, with and without the AllReducer's own thread.
class Async : public testing::TestWithParam<Runner> {
 protected:
  /// body(transport) on every rank, at every number of ranks.
  template <class Body>
  void on_ranks(const Body& body) {
    for (const int ranks : rank_counts()) {
      run_ranks(ranks, [&](const std::shared_ptr<Transport>& inner) {
        body(std::make_shared<ChosenRunner>(inner, GetParam()));
      });
    }
  }
};

inline const auto kRunners = testing::Values(Runner::thread, Runner::waiter);

inline const char* name_of(const testing::TestParamInfo<Runner>& test) {
  return test.param == Runner::thread ? "thread" : "waiter";
}

}  // namespace winnow::tests
