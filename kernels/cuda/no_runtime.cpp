// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <winnow/error.hpp>

#include "kernels/cuda/place_memory.hpp"

namespace winnow::kernels::cuda {

namespace {
constexpr const char* kNoCuda =
    "this Winnow was built without CUDA; pass host memory and Place::host";
}  // namespace

const MemorySource& device_memory() {
  fail_usage(kNoCuda);
}

const MemorySource& pinned_memory() {
  fail_usage(kNoCuda);
}

bool is_within_reach(const void*) {
  fail_usage(kNoCuda);
}

void wait(const Exec&) {
  fail_usage(kNoCuda);
}

bool is_idle(const Exec&) {
  fail_usage(kNoCuda);
}

bool is_captured(const Exec&) {
  fail_usage(kNoCuda);
}

void* make_event() {
  fail_usage(kNoCuda);
}

void* make_timed_event() {
  fail_usage(kNoCuda);
}

void destroy_event(void*) noexcept {}

void record(const Exec&, void*) {
  fail_usage(kNoCuda);
}

void wait_for(const Exec&, void*) {
  fail_usage(kNoCuda);
}

bool has_passed(void*) {
  fail_usage(kNoCuda);
}

double seconds_between(void*, void*) {
  fail_usage(kNoCuda);
}

int current_device() {
  fail_usage(kNoCuda);
}

void make_current(int) {
  fail_usage(kNoCuda);
}

void restore_current(int) noexcept {}

}  // namespace winnow::kernels::cuda
