// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <winnow/error.hpp>
#include <winnow/transport.hpp>

#include "kernels/exec/own_process.hpp"

namespace winnow::comm {

/// Keeps a transport, and those that share its messages, to one user until it ends. Messages have
/// no tags: those of two users would be taken for each other, and sums would be wrong.
class Claim {
 public:
  /// `user` names it in errors: "an AllReducer". UsageError, before any message, if the transport
  /// has a user.
  Claim(const Transport& transport, std::string_view user) {
    if (transport.taken_->exchange(true, std::memory_order_acquire)) {
      fail_usage(std::string(user) +
                 " needs a transport of its own, and this one, or one that it is a subset of, "
                 "serves another: give each its own by Transport::duplicate "
                 "(winnow_transport_duplicate), or end the other first" +
                 (kernels::forks.load(std::memory_order_relaxed) == 0
                      ? ""
                      : "; and what a parent made before the fork to this process serves nobody "
                        "here"));
    }
    taken_ = transport.taken_;
  }
  Claim(Claim&& other) noexcept : taken_(std::move(other.taken_)) {}
  Claim& operator=(Claim&&) = delete;
  ~Claim() {
    if (taken_ != nullptr) taken_->store(false, std::memory_order_release);
  }

 private:
  std::shared_ptr<std::atomic<bool>> taken_;
};

}  // namespace winnow::comm
