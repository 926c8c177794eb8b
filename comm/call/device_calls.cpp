// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/device_calls.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/abort_on_error.hpp"
#include "comm/transport/failure.hpp"
#include "kernels/exec/device_scope.hpp"

namespace winnow::comm {
namespace {

/// A thread that gives up on stream-ordered calls if some are under way and none ends for too long:
/// otherwise only the device, which knows no deadline, would wait for a dead peer. Until then it
/// asks the device nothing, so captures can go on beside it. Calls `fail` once at most, with
/// `device` current, whatever other threads do.
std::jthread stall_watchdog(std::shared_ptr<const CompletionTracker> completions, int device,
                            std::chrono::duration<double> patience, std::function<void()> fail) {
  return std::jthread([completions = std::move(completions), device, patience,
                       fail = std::move(fail)](const std::stop_token& ending) {
    kernels::stay_on(device);
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::duration<double> kLongest{1.0};
    const auto turn = std::min(patience / 8, kLongest);
    std::uint64_t done = 0;
    Clock::time_point since = Clock::now();
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, ending, turn, [&] { return ending.stop_requested(); })) {
      const std::uint64_t now = completions->done();
      if (now != done || now == completions->ended()) {
        done = now;
        since = Clock::now();
      } else if (Clock::now() - since > patience) {
        fail();
        return;
      }
    }
  });
}

}  // namespace

DeviceCalls::DeviceCalls(Setup& setup, Health& health, Parameters& parameters, StatsBook& book)
    : setup_(setup), health_(health), parameters_(parameters), book_(book) {
  if (setup.exec().place != Place::cuda) return;
  completions_ = std::make_shared<CompletionTracker>(setup.exec(), setup.patience());
  if (setup.options.stats > 0) clock_ = std::make_unique<kernels::StreamClock>(setup.exec());
}

void DeviceCalls::set_number(std::uint64_t number) {
  number_ = number;
  if (any()) completions_->set_next(number);
}

/// Null during capture: marks in a graph cannot be read, and marks of another stream must not be
/// read while a graph is captured.
kernels::StreamClock* DeviceCalls::clock() const noexcept {
  try {
    return has_clock() && !kernels::is_captured(setup_.exec()) ? clock_.get() : nullptr;
  } catch (const CudaError&) {
    return nullptr;
  }
}

void DeviceCalls::make_room(const Bucket& bucket) {
  if (any()) completions_->make_room(bucket.number + 1);
}

void DeviceCalls::end(const Bucket& bucket, bool clipped, kernels::StreamMark* mark) {
  if (!any()) return;
  completions_->end(bucket.number, clipped);
  if (mark != nullptr) mark->set(setup_.exec());
}

void DeviceCalls::poll() {
  if (!any()) return;
  if (const auto why = completions_->failure()) health_.fail(*why);
  for (std::size_t bucket = 0; bucket < completions_->buckets(); ++bucket) {
    const kernels::CallCounts calls_since = completions_->counts(bucket);
    book_.count(bucket, calls_since);
    if (calls_since.refused > 0) parameters_.expect_anywhere();
  }
  if (clock() == nullptr) return;
  clock_->read([this](const kernels::StreamClock::Name& call, const double* stage, double seconds) {
    book_.add_time(call, stage, seconds);
  });
}

void DeviceCalls::await_last(const Bucket& bucket) {
  if (!any()) return;
  try {
    completions_->wait(completions_->ended(bucket.number));
  } catch (const Error& error) {
    health_.fail(failure_of(error));
  }
  learn();
}

void DeviceCalls::await_all() {
  if (!any()) return;
  try {
    completions_->wait(completions_->ended());
    number_ = completions_->next();
  } catch (const Error& error) {
    health_.fail(failure_of(error));
  }
}

void DeviceCalls::await_replays() {
  if (any() && completions_->has_captured()) await_all();
}

void DeviceCalls::await_messages() {
  try {
    Transport& transport = setup_.transport();
    transport.wait(transport.start(setup_.exec()), setup_.deadline());
  } catch (const Error& error) {
    health_.fail(failure_of(error));
  }
}

void DeviceCalls::synchronize() {
  if (!any()) return;
  await_all();
  learn();
}

/// Graph replays are invisible to the host, so residuals may hold anything after them.
void DeviceCalls::learn() {
  poll();
  if (completions_->has_captured()) parameters_.expect_anywhere();
}

void DeviceCalls::start_watchdog() {
  Transport& transport = setup_.transport();
  if (watchdog_.joinable() || !transport.captures() || transport.size() == 1) return;
  watchdog_ = stall_watchdog(
      completions_, setup_.context.device(), std::chrono::duration<double>(setup_.patience()),
      [&completions = *completions_, &transport] {
        const auto why = missed_deadline("while the device waited for messages");
        completions.fail(why);  // before the work continues and seems done
        transport.abort(why.text, why.kind);
      });
}

void DeviceCalls::close() noexcept {
  watchdog_ = {};
  if (!any()) return;
  try {
    if (!health_.broken()) {
      completions_->wait(completions_->ended());
      poll();
    }
  } catch (const std::exception& error) {
    abort_by(setup_.transport(), error);
  }
  completions_->close();
}

}  // namespace winnow::comm
