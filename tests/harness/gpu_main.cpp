// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

/// Exits with 77, which Meson counts as skipped, if every test that ran was skipped: a machine
/// without a GPU must not look as if its GPU had passed.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  const auto& unit = *testing::UnitTest::GetInstance();
  const bool all_skipped =
      unit.skipped_test_count() > 0 && unit.skipped_test_count() == unit.test_to_run_count();
  return status == 0 && all_skipped ? 77 : status;
}
