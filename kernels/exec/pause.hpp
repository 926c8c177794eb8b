// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace winnow::kernels {

/// Between two looks at a word that another thread is about to change: some 10 to 50 ns.
inline void pause() {
#if defined(__SSE2__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

}  // namespace winnow::kernels
