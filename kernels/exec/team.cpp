// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/team.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "kernels/exec/keep_for_ever.hpp"
#include "kernels/exec/own_process.hpp"
#include "kernels/exec/pause.hpp"

namespace winnow::kernels {
namespace {

constexpr int kPolls = 5000;  // before a thread sleeps

/// Returns when `word` is no longer `value`.
void await_change(const std::atomic<unsigned>& word, unsigned value) {
  for (int polls = 0; polls < kPolls; ++polls) {
    if (word.load(std::memory_order_acquire) != value) return;
    pause();
  }
  word.wait(value, std::memory_order_acquire);
}

thread_local bool in_part = false;

/// The helpers of one thread. Who is free takes the next part, so a helper that the system has not
/// started yet keeps nobody waiting: other processes may have its core.
class Team {
 public:
  using Part = void (*)(void*, std::size_t);
  static constexpr std::size_t kMostParts = 0xffff;

  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() {
    ended_ = true;
    for (const auto& helper : helpers_) helper->call();
  }

  /// At most kMostParts of them.
  void run(std::size_t n, Part part, void* job) {
    part_ = part;
    job_ = job;
    done_.store(0, std::memory_order_relaxed);
    const std::uint64_t before = turns_.load(std::memory_order_relaxed);
    turns_.store(Turns::first(before, n), std::memory_order_release);
    const std::size_t helpers = std::min(n - 1, count_helpers(n - 1));
    for (std::size_t i = 0; i < helpers; ++i) helpers_[i]->call();
    in_part = true;
    unsigned theirs = static_cast<unsigned>(n);
    for (std::size_t i; (i = take_turn()) != kNone; --theirs) part(job, i);
    in_part = false;
    for (unsigned done; (done = done_.load(std::memory_order_acquire)) != theirs;) {
      await_change(done_, done);
    }
  }

  /// Whether its helpers are those of a parent of this process.
  bool left() const { return process_.left(); }

 private:
  struct alignas(64) Helper {  // a cache line each: a call wakes those that it needs
    void call() {
      calls.fetch_add(1, std::memory_order_release);
      calls.notify_one();
    }
    std::atomic<unsigned> calls{0};
    std::jthread thread;  // joined before `calls` goes
  };

  /// The number of a run, the number of its parts and the number of parts taken, in one word: a
  /// helper that is late takes no part of a run that is over.
  struct Turns {
    static std::uint64_t first(std::uint64_t before, std::size_t parts) {
      return (((before >> 32) + 1) << 32) | (static_cast<std::uint64_t>(parts) << 16);
    }
    static std::size_t parts(std::uint64_t turns) { return (turns >> 16) & kMostParts; }
    static std::size_t taken(std::uint64_t turns) { return turns & kMostParts; }
  };
  static constexpr std::size_t kNone = kMostParts;

  /// The number of the part that the calling thread now runs, or kNone. The run's data is valid
  /// until the helper has counted the part as done.
  std::size_t take_turn() {
    std::uint64_t turns = turns_.load(std::memory_order_relaxed);
    while (Turns::taken(turns) < Turns::parts(turns)) {
      if (turns_.compare_exchange_weak(turns, turns + 1, std::memory_order_acquire,
                                       std::memory_order_relaxed))
        return Turns::taken(turns);
    }
    return kNone;
  }

  /// The number of helpers, after an attempt to have `wanted`.
  std::size_t count_helpers(std::size_t wanted) {
    try {
      while (helpers_.size() < wanted) {
        auto helper = std::make_unique<Helper>();
        helpers_.reserve(wanted);
        helper->thread = std::jthread([this, &calls = helper->calls] { help(calls); });
        helpers_.push_back(std::move(helper));
      }
    } catch (const std::exception&) {
      // The system has no thread or no memory left.
    }
    return helpers_.size();
  }

  void help(const std::atomic<unsigned>& calls) {
    in_part = true;
    for (unsigned seen = 0;; ++seen) {
      await_change(calls, seen);
      if (ended_) return;
      for (std::size_t i; (i = take_turn()) != kNone;) {
        part_(job_, i);
        done_.fetch_add(1, std::memory_order_release);
        done_.notify_one();
      }
    }
  }

  OwnProcess process_;
  Part part_ = nullptr;
  void* job_ = nullptr;
  std::atomic<bool> ended_{false};
  std::atomic<std::uint64_t> turns_{0};
  std::atomic<unsigned> done_{0};  // parts that helpers have run
  std::vector<std::unique_ptr<Helper>> helpers_;
};

struct End {
  void operator()(Team* team) const noexcept {
    if (team->left()) {
      keep_for_ever(team);
    } else {
      delete team;
    }
  }
};

/// Null if there is no memory for one.
Team* team_of_this_thread() {
  thread_local std::unique_ptr<Team, End> team;
  if (team == nullptr || team->left()) team.reset(new (std::nothrow) Team);
  return team.get();
}

}  // namespace

void run_parts(std::size_t n, void (*part)(void*, std::size_t), void* job) {
  const bool shared = n > 1 && n < Team::kMostParts && !in_part;
  if (Team* const team = shared ? team_of_this_thread() : nullptr) {
    team->run(n, part, job);
  } else {
    for (std::size_t i = 0; i < n; ++i) part(job, i);
  }
}

}  // namespace winnow::kernels
