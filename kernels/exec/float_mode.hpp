// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace winnow::kernels {

/// While it lives, this thread's float arithmetic follows IEEE 754: denormals are neither flushed
/// nor read as zero, and rounding is to nearest even. Restores the caller's mode at its end.
/// Frameworks set flush-to-zero in some threads and not in others; ranks would then differ.
class FloatMode {
 public:
  FloatMode() : saved_(read()) {
    if (saved_ != (saved_ & ~kUnwanted)) write(saved_ & ~kUnwanted);
  }
  ~FloatMode() {
    if (saved_ != (saved_ & ~kUnwanted)) write(saved_);
  }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__SSE2__)
  using Register = std::uint32_t;
  static constexpr Register kUnwanted = 0x8000 | 0x0040 | 0x6000;  // FTZ, DAZ, rounding (MXCSR)
  static Register read() { return _mm_getcsr(); }
  static void write(Register mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Register = std::uint64_t;
  static constexpr Register kUnwanted = (1u << 24) | (3u << 22);  // FZ, rounding (FPCR)
  static Register read() {
    Register mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void write(Register mode) { asm volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
#else
  using Register = std::uint32_t;
  static constexpr Register kUnwanted = 0;
  static Register read() { return 0; }
  static void write(Register) {}
#endif

  const Register saved_;
};

}  // namespace winnow::kernels
