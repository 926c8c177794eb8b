// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace winnow::tests {

/// True if ThreadSanitizer watches this program.
#if defined(__SANITIZE_THREAD__)  // by g++
constexpr bool kThreadSanitized = true;
#elif defined(__has_feature)  // by clang++
constexpr bool kThreadSanitized = __has_feature(thread_sanitizer);
#else
constexpr bool kThreadSanitized = false;
#endif

/// True if any sanitizer does. The program then takes several times longer, so tests over many
/// similar cases take fewer of them.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = kThreadSanitized || __has_feature(address_sanitizer);
#else
constexpr bool kSanitized = kThreadSanitized;
#endif

}  // namespace winnow::tests
