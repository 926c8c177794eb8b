// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What g++ calls where an instrumented function begins and ends (-finstrument-functions).
#include "tests/trace/hooks.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace winnow::tests {
namespace {

thread_local bool tracing = false;
thread_local std::vector<void*> events;

void note(void* event) {
  if (!tracing) return;
  tracing = false;  // while the list grows
  events.push_back(event);
  tracing = true;
}

}  // namespace

void start_trace() {
  events.reserve(std::size_t{1} << 20);
  tracing = true;
}

std::vector<void*> end_trace() {
  tracing = false;
  return std::exchange(events, {});
}

}  // namespace winnow::tests

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): g++ calls these names
extern "C" {
void __cyg_profile_func_enter(void* function, void*) {
  winnow::tests::note(function);
}
void __cyg_profile_func_exit(void*, void*) {
  winnow::tests::note(nullptr);
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
