// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>

#include "kernels/call_status.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

/// Calls on a device whose work is enqueued and not waited for: their ends, in the order of the
/// stream, and what the host may know of them. One thread at a time enqueues; `done`, `test` and
/// `wait` are for any. To end this waits for the device.
class CallEnds {
 public:
  /// Of calls on where.stream of the current device. `patience` is how long, in seconds, a wait for
  /// one may take.
  CallEnds(const Exec& where, double patience);

  /// Of the call that is being enqueued.
  kernels::CallStatus& verdict();
  /// Sees to it that calls of buckets below `buckets` may end. Allocates where there are more.
  void make_room(std::size_t buckets);
  /// Enqueues the end of a call of a bucket. In a capture: of each replay, which counts as the call
  /// before.
  void end(std::size_t bucket);

  /// Calls whose ends are enqueued.
  std::uint64_t ended() const { return ended_; }
  /// How many of them are known to be done, without asking the device.
  std::uint64_t done() const;
  /// Whether the first `calls` of them are done, and all replays on the stream, where one was
  /// captured.
  bool test(std::uint64_t calls) const;
  /// Returns when they are. CommError where none ends for too long, CudaError where the device has
  /// failed.
  void wait(std::uint64_t calls) const;

  /// No call after this comes to a good end. For any thread.
  void fail(const std::string& why);
  /// What fail was told, or what is wrong with a message that some call met; or empty. For any
  /// thread.
  std::string failure() const;
  /// Calls of a bucket that have become NaN since this was asked last.
  std::uint64_t refused(std::size_t bucket);
  std::size_t buckets() const { return heard_.size(); }
  /// The stream may go: whoever asks later hears that all is done.
  void close() { closed_ = true; }

 private:
  static constexpr std::size_t kBlock = 512;  // buckets

  struct Release {
    void (*release)(std::byte* memory) noexcept = nullptr;
    void operator()(std::uint64_t* memory) const noexcept {
      release(reinterpret_cast<std::byte*>(memory));
    }
  };
  using PinnedWords = std::unique_ptr<std::uint64_t, Release>;
  static PinnedWords make_pinned(std::size_t words);
  kernels::CallReport& report() const {
    return *reinterpret_cast<kernels::CallReport*>(report_.get());
  }
  std::uint64_t* refused_word(std::size_t bucket) const {
    return refused_[bucket / kBlock].get() + bucket % kBlock;
  }

  Exec exec_;
  std::chrono::duration<double> patience_;
  kernels::PlaceArray<kernels::CallStatus> verdict_;
  PinnedWords report_;
  std::vector<PinnedWords> refused_;
  std::vector<std::uint64_t> heard_;  // of refused, by bucket
  std::atomic<std::uint64_t> ended_ = 0;
  std::atomic<bool> captured_ = false, closed_ = false;
  mutable std::mutex mutex_;  // guards failure_
  std::string failure_;
};

}  // namespace winnow::comm
