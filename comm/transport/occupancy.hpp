// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <winnow/error.hpp>
#include <winnow/transport.hpp>

#include "kernels/exec/own_process.hpp"

namespace winnow::comm {

/// Who moves messages over a transport and those that share its messages. Messages have no tags:
/// those of two users at once would be taken for each other, and sums would be wrong.
class Occupancy {
 public:
  static std::shared_ptr<Occupancy> of(const Transport& transport) { return transport.occupancy_; }

  /// Whether it had no user, and now has.
  bool take() { return !taken_.exchange(true, std::memory_order_acquire); }
  void give_back() {
    finish_by({});
    taken_.store(false, std::memory_order_release);
  }
  /// How the user's calls in flight are finished; empty if it has none.
  void finish_by(std::function<void()> finish) {
    const std::lock_guard lock(mutex_);
    finish_ = std::move(finish);
  }
  /// Finishes them. Any thread may call it.
  void finish() {
    std::function<void()> finish;
    {
      const std::lock_guard lock(mutex_);
      finish = finish_;
    }
    if (finish) finish();
  }
  /// Held by the thread that moves messages.
  std::mutex& moving() { return moving_; }

 private:
  std::atomic<bool> taken_ = false;
  std::mutex moving_;
  std::mutex mutex_;  // guards finish_
  std::function<void()> finish_;
};

/// Keeps a transport to one user until it ends.
class Claim {
 public:
  /// `user` names it in errors: "an AllReducer". UsageError, before any message, if the transport
  /// has a user.
  Claim(const Transport& transport, std::string_view user) {
    auto occupancy = Occupancy::of(transport);
    if (!occupancy->take()) {
      fail_usage(std::string(user) +
                 " needs a transport of its own, and this one, or one that it is a subset of, "
                 "serves another: give each its own by Transport::duplicate (in C "
                 "winnow_transport_duplicate, in Python duplicate()), or first destroy the other "
                 "(in Python close())" +
                 (kernels::forks.load(std::memory_order_relaxed) == 0
                      ? ""
                      : "; and what a parent made before the fork to this process serves nobody "
                        "here"));
    }
    occupancy_ = std::move(occupancy);
  }
  Claim(Claim&&) noexcept = default;
  Claim& operator=(Claim&&) = delete;
  ~Claim() {
    if (occupancy_ != nullptr) occupancy_->give_back();
  }

  /// Its user's calls in flight, which a collective of the transport finishes first; see Quiet.
  void finish_by(std::function<void()> finish) { occupancy_->finish_by(std::move(finish)); }
  /// The user locks this while it moves messages.
  std::mutex& moving() const { return occupancy_->moving(); }

 private:
  std::shared_ptr<Occupancy> occupancy_;
};

/// A collective of the transport itself, which its user's calls do not meet: those in flight are
/// finished, and none begins until this ends. UsageError in a callback of such a call.
class Quiet {
 public:
  explicit Quiet(const Transport& transport) : occupancy_(Occupancy::of(transport)) {
    occupancy_->finish();
    lock_ = std::unique_lock(occupancy_->moving());
  }

 private:
  std::shared_ptr<Occupancy> occupancy_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace winnow::comm
