// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/place_memory.hpp"

#include <algorithm>
#include <winnow/error.hpp>

#include "kernels/cuda/place_memory.hpp"
#include "kernels/exec/host_memory.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::kernels {

const MemorySource& memory_of(Place place) {
  return place == Place::cuda ? cuda::device_memory() : kHostMemory;
}

const MemorySource& pinned_memory() {
  return cuda::pinned_memory();
}

void refuse_without_scratch() {
  fail_usage(
      "this needs scratch: pass Exec::workspace, or with Place::cuda Exec::device_workspace");
}

bool is_within_reach(Place place, const void* memory) {
  return place != Place::cuda || cuda::is_within_reach(memory);
}

void read(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  if (exec.place == kCountedPlace) {  // words: what else would a host read
    std::ranges::copy(from, to.begin());
    return;
  }
  copy(exec, to, from);
  wait(exec);
}

void wait_for_device(const Exec& exec) {
  cuda::wait(exec);
}

bool is_idle(const Exec& exec) {
  return exec.place != Place::cuda || cuda::is_idle(exec);
}

bool is_captured_by_device(const Exec& exec) {
  return cuda::is_captured(exec);
}

StreamMark::~StreamMark() {
  if (event_ != nullptr) cuda::destroy_event(event_);
}

void StreamMark::set(const Exec& exec) {
  if (event_ == nullptr) event_ = cuda::make_event();
  cuda::record(exec, event_);
}

void StreamMark::make_wait(const Exec& exec) const {
  if (event_ != nullptr) cuda::wait_for(exec, event_);
}

bool StreamMark::passed() const {
  return event_ == nullptr || cuda::has_passed(event_);
}

void TimedMark::set(const Exec& exec) {
  if (event_ == nullptr) event_.reset(cuda::make_timed_event());
  cuda::record(exec, event_.get());
}

bool TimedMark::passed() const {
  return cuda::has_passed(event_.get());
}

double TimedMark::seconds_since(const TimedMark& earlier) const {
  return cuda::seconds_between(earlier.event_.get(), event_.get());
}

void TimedMark::Destroy::operator()(void* event) const noexcept {
  cuda::destroy_event(event);
}

}  // namespace winnow::kernels
