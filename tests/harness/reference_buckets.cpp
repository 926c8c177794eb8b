// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/bucket_place.hpp"

namespace winnow::tests {

Exec bucket_place() {
  return {.place = Place::reference};
}

}  // namespace winnow::tests
