// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace winnow::tests {

/// While it lives, this thread flushes denormal results and reads denormals as zero, as frameworks
/// set it up. It does nothing if the processor has no such mode that we know.
class FlushToZero {
 public:
#if defined(__SSE2__)
  FlushToZero() : saved_(read()) { _mm_setcsr(saved_ | 0x8040); }
  ~FlushToZero() { _mm_setcsr(saved_); }
  static std::uint32_t read() { return _mm_getcsr() & 0xffc0; }  // without the sticky flags
#else
  static std::uint32_t read() { return 0; }
#endif

 private:
  std::uint32_t saved_ = 0;
};

}  // namespace winnow::tests
