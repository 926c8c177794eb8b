// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <span>
#include <utility>
#include <winnow/transport.hpp>

#include "comm/schedule/exchange.hpp"

namespace winnow::comm {

/// A schedule at work on a part, or on several together: a coroutine that stops to wait for other
/// ranks, so that several parts can be under way at once. In it
///   co_await world.start(exec);
/// starts what it has enqueued and resumes when all of it is done; so does exchange_counts. Nothing
/// runs before the first resume. Its frame lies in exec.workspace, which outlives it.
class Rounds {
 public:
  // NOLINTNEXTLINE(readability-identifier-naming): the language's name
  struct promise_type {
    static void* operator new(std::size_t bytes, Exchange& exchange) {
      return exchange.exec.workspace->take<std::byte>(bytes).data();
    }
    static void* operator new(std::size_t bytes, std::span<Exchange> parts) {
      return operator new(bytes, parts.front());
    }
    static void operator delete(void*, std::size_t) noexcept {}

    explicit promise_type(Exchange&) {}
    explicit promise_type(std::span<Exchange>) {}
    Rounds get_return_object() { return Rounds(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always await_transform(Ticket waited_for) noexcept {
      ticket = waited_for;
      return {};
    }
    auto await_transform(CountsRound round) {
      struct Stop : std::suspend_always {
        explicit Stop(Counts& started) : counts(started) {}
        void await_resume() const { counts.finish(); }
        Counts& counts;
      };
      ticket = round.counts.start();
      return Stop(round.counts);
    }
    void return_void() noexcept {}
    [[noreturn]] void unhandled_exception() { throw; }

    Ticket ticket;
  };

  Rounds() = default;
  Rounds(Rounds&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Rounds& operator=(Rounds&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Rounds() {
    if (handle_) handle_.destroy();
  }

  /// Runs to the next stop or to the end; returns whether it stopped. Throws what the schedule
  /// throws; then it may only be destroyed.
  bool resume() {
    handle_.resume();
    return !handle_.done();
  }
  /// The ticket to wait for before the next resume.
  Ticket ticket() const { return handle_.promise().ticket; }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit Rounds(Handle handle) : handle_(handle) {}

  Handle handle_;
};

}  // namespace winnow::comm
