// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace winnow::tests {

/// Whether a sanitizer watches this program, which then takes several times longer: tests that go
/// through many cases alike take fewer of them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace winnow::tests
