// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/c_interface/function_transport.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "comm/c_interface/given.hpp"
#include "comm/transport/expect.hpp"
#include "comm/transport/failure_latch.hpp"
#include "comm/transport/occupancy.hpp"
#include "kernels/exec/own_process.hpp"

namespace winnow::comm {
namespace {

constexpr int kMostRanks = 1 << 24;  // as of a topology

/// As the functions take it: less than 0 is never.
double seconds_until(Deadline deadline) {
  if (deadline.at() == Deadline::never().at()) return -1;
  const std::chrono::duration<double> left = deadline.at() - Deadline::Clock::now();
  return std::max(0.0, left.count());
}

class FunctionTransport final : public Transport {
 public:
  explicit FunctionTransport(const winnow_transport_functions& functions) : to_(functions) {
    const auto expect_function = [](bool given, const char* what) {
      WINNOW_EXPECTS(given, std::string("the function ") + what +
                                " is NULL: a transport of functions needs start, wait and abort");
    };
    expect_function(to_.start != nullptr, "start");
    expect_function(to_.wait != nullptr, "wait");
    expect_function(to_.abort != nullptr, "abort");
    WINNOW_EXPECTS(to_.size >= 1 && to_.size <= kMostRanks && to_.rank >= 0 && to_.rank < to_.size,
                   "a transport of functions for rank " + std::to_string(to_.rank) +
                       ", with size " + std::to_string(to_.size) +
                       ": must be from 0 to size - 1, of at most " + std::to_string(kMostRanks));
    (void)flag_of(to_.sizes_travel, "sizes_travel");
    (void)flag_of(to_.threads, "threads");
  }
  ~FunctionTransport() override {
    if (to_.destroy != nullptr && !process_.left()) to_.destroy(to_.self);
  }

  int rank() const override { return to_.rank; }
  int size() const override { return to_.size; }
  int node() const override { return to_.node; }
  bool sizes_travel() const override { return to_.sizes_travel != 0; }
  bool allows_threads() const override { return to_.threads != 0; }

  void send(std::span<const std::byte> message, int peer) override {
    enqueue({.peer = peer,
             .sends = 1,
             .data = const_cast<std::byte*>(message.data()),
             .bytes = message.size()});
    bytes_sent_ += message.size();
  }
  void recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) override {
    if (message_bytes != nullptr && !sizes_travel()) *message_bytes = buffer.size();
    enqueue({.peer = peer,
             .data = buffer.data(),
             .bytes = buffer.size(),
             .message_bytes = message_bytes});
  }

  Ticket start(const Exec&) override {
    expect_usable();
    ++started_;
    const int status = to_.start(to_.self, enqueued_.data(), enqueued_.size(), started_);
    enqueued_.clear();
    if (status != WINNOW_SUCCESS) fail("start", status);
    return {started_};
  }
  void wait(Ticket ticket, Deadline deadline) override {
    expect_usable();
    expect_started(ticket, started_);
    if (ticket.number <= done_) return;
    const int status = to_.wait(to_.self, ticket.number, seconds_until(deadline));
    if (status != WINNOW_SUCCESS) fail("wait", status, deadline);
    done_ = ticket.number;
  }
  std::unique_ptr<Transport> duplicate(Deadline deadline) override {
    expect_usable();
    WINNOW_EXPECTS(to_.duplicate != nullptr,
                   "this transport of functions has no duplicates: its `duplicate` is NULL");
    const Quiet quiet(*this);
    winnow_transport_functions made{};
    made.struct_bytes = sizeof made;
    const int status = to_.duplicate(to_.self, seconds_until(deadline), &made);
    if (status != WINNOW_SUCCESS) fail("duplicate", status, deadline);
    return function_transport(made);
  }
  void abort(std::string_view reason, FailureKind kind) noexcept override {
    Failure why = aborted_here(reason, kind);
    {
      const std::lock_guard lock(mutex_);
      if (failure_.failed()) return;
      failure_.keep(std::move(why));
    }
    // The function takes no kind: winnow.h says how the text begins.
    std::string text = kind == FailureKind::usage ? "usage error: " : "";
    to_.abort(to_.self, text.append(reason).c_str());
  }

 private:
  void enqueue(winnow_message message) {
    expect_usable();
    expect_peer(message.peer, rank(), size());
    comm::expect_memory({static_cast<const std::byte*>(message.data), message.bytes});
    message.struct_bytes = sizeof message;
    enqueued_.push_back(message);
  }
  void expect_usable() const {
    WINNOW_EXPECTS(!process_.left(),
                   "a transport belongs to the process that made it; this is a child of a fork");
    const std::lock_guard lock(mutex_);
    failure_.expect_usable();
  }
  [[noreturn]] void fail(const char* function, int status, Deadline deadline = Deadline::never()) {
    const FailureKind kind = status == WINNOW_USAGE_ERROR ? FailureKind::usage
                             : deadline.passed()          ? FailureKind::deadline
                                                          : FailureKind::environment;
    const std::lock_guard lock(mutex_);
    failure_.keep(
        {std::string("the transport's function ") + function + " failed: " + winnow_last_error(),
         kind});
    failure_.fail();
  }

  const winnow_transport_functions to_;
  const kernels::OwnProcess process_;
  std::vector<winnow_message> enqueued_;  // since the last start
  std::uint64_t started_ = 0, done_ = 0;
  mutable std::mutex mutex_;  // guards failure_, since any thread may abort
  FailureLatch failure_;
};

}  // namespace

std::unique_ptr<Transport> function_transport(const winnow_transport_functions& functions) {
  return std::make_unique<FunctionTransport>(functions);
}

}  // namespace winnow::comm
