// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/targets.hpp"

namespace winnow::tests {

void for_each_body(const std::function<void(const Exec& exec)>& body) {
  Workspace workspace;
  {
    SCOPED_TRACE("reference");
    body({.place = Place::reference, .workspace = &workspace});
  }
  for_each_target([&] {
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << threads << " threads");
      body({.threads = threads, .workspace = &workspace});
    }
  });
}

std::size_t many(std::size_t most) {
  return most;
}

}  // namespace winnow::tests
