// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "lab/reference/place.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/harness/sanitized.hpp"
#include "tests/kernels/targets.hpp"

namespace winnow::tests {

void for_each_body(const std::function<void(const Exec& exec)>& body) {
  Workspace workspace;
  {
    SCOPED_TRACE("reference");
    body({.place = lab::kReference, .workspace = &workspace});
  }
  const auto with_threads = [&] {
    for (const int threads : {1, 2, 3}) {
      if (kSanitized && threads == 2) continue;
      SCOPED_TRACE(testing::Message() << threads << " threads");
      body({.threads = threads, .workspace = &workspace});
    }
  };
  if (kSanitized) {  // the widest target alone: builds without a sanitizer compare them all
    with_threads();
  } else {
    for_each_target(with_threads);
  }
}

std::size_t many(std::size_t most) {
  constexpr std::size_t kUnderSanitizer = 30'011;
  return kSanitized ? std::min(most, kUnderSanitizer) : most;
}

}  // namespace winnow::tests
