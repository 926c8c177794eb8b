// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/team.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "kernels/exec/keep_for_ever.hpp"
#include "kernels/exec/own_process.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace winnow::kernels {
namespace {

constexpr int kPolls = 5000;  // of some 10 to 50 ns each, before a thread sleeps

void pause() {
#if defined(__SSE2__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

/// Returns when `word` is no longer `value`.
void await_change(const std::atomic<unsigned>& word, unsigned value) {
  for (int polls = 0; polls < kPolls; ++polls) {
    if (word.load(std::memory_order_acquire) != value) return;
    pause();
  }
  word.wait(value, std::memory_order_acquire);
}

thread_local bool in_part = false;

/// The helpers of one thread.
class Team {
 public:
  using Part = void (*)(void*, std::size_t);

  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() {
    ended_ = true;
    for (const auto& helper : helpers_) helper->call();
  }

  void run(std::size_t n, Part part, void* job) {
    part_ = part;
    job_ = job;
    const std::size_t helpers = std::min(n - 1, count_helpers(n - 1));
    working_.store(static_cast<unsigned>(helpers), std::memory_order_relaxed);
    for (std::size_t i = 0; i < helpers; ++i) helpers_[i]->call();
    in_part = true;
    part(job, 0);
    for (std::size_t i = helpers + 1; i < n; ++i) part(job, i);
    in_part = false;
    for (unsigned left; (left = working_.load(std::memory_order_acquire)) != 0;) {
      await_change(working_, left);
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

  /// The number of helpers, after an attempt to have `wanted`.
  std::size_t count_helpers(std::size_t wanted) {
    try {
      while (helpers_.size() < wanted) {
        auto helper = std::make_unique<Helper>();
        helpers_.reserve(wanted);
        helper->thread = std::jthread(
            [this, &calls = helper->calls, i = helpers_.size() + 1] { help(calls, i); });
        helpers_.push_back(std::move(helper));
      }
    } catch (const std::exception&) {
      // The system has no thread or no memory left.
    }
    return helpers_.size();
  }

  void help(const std::atomic<unsigned>& calls, std::size_t i) {
    in_part = true;
    for (unsigned seen = 0;; ++seen) {
      await_change(calls, seen);
      if (ended_) return;
      part_(job_, i);
      if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
    }
  }

  OwnProcess process_;
  Part part_ = nullptr;
  void* job_ = nullptr;
  bool ended_ = false;
  std::atomic<unsigned> working_{0};
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
  if (Team* const team = n > 1 && !in_part ? team_of_this_thread() : nullptr) {
    team->run(n, part, job);
  } else {
    for (std::size_t i = 0; i < n; ++i) part(job, i);
  }
}

}  // namespace winnow::kernels
