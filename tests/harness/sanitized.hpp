// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace winnow::tests {

/// True if a sanitizer watches this program, which then takes several times longer: tests over many
/// similar cases take fewer of them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // by g++
constexpr bool kSanitized = true;
#elif defined(__has_feature)  // by clang++
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

}  // namespace winnow::tests
