// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/exec.hpp>
#include <winnow/workspace.hpp>

namespace winnow::kernels::cuda {

// The part of kernels/exec/place_memory.hpp for a device. CudaError if the runtime refuses,
// UsageError in a build without CUDA.

const MemorySource& device_memory();
const MemorySource& pinned_memory();
bool is_within_reach(const void* memory);
/// Waits on the host for all that is enqueued on exec.stream.
void wait(const Exec& exec);
bool is_idle(const Exec& exec);
bool is_captured(const Exec& exec);
/// An event of the current device, without timing.
void* make_event();
/// One with timing.
void* make_timed_event();
void destroy_event(void* event) noexcept;
void record(const Exec& exec, void* event);
void wait_for(const Exec& exec, void* event);
bool has_passed(void* event);
/// For two events with timing that have passed.
double seconds_between(void* begin, void* end);
int current_device();
void make_current(int device);
/// Makes the device current where an error cannot be reported.
void restore_current(int device) noexcept;

}  // namespace winnow::kernels::cuda
