// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "lab/reference/place.hpp"
#include "tests/harness/bucket_place.hpp"

namespace winnow::tests {

Exec bucket_place() {
  return {.place = lab::kReference};
}

}  // namespace winnow::tests
