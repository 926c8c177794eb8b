// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// main of tests whose ranks are threads that share a GPU.
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "tests/harness/device.hpp"

/// Exits with 77, which Meson counts as skipped, if there is no GPU.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string reason = winnow::tests::why_no_device();
  if (reason.empty()) return RUN_ALL_TESTS();
  std::cout << "skipped: " << reason << '\n';
  return 77;
}
