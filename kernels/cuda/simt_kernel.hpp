// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define WINNOW_DEVICE __device__ __forceinline__
#define WINNOW_UNROLLED _Pragma("unroll")
#define WINNOW_ROLLED _Pragma("unroll 1")
#else
#define WINNOW_DEVICE inline
#define WINNOW_UNROLLED
#define WINNOW_ROLLED
#endif

// A kernel is a struct, whose members, of trivial types, are its arguments:
//
//   using Shared = ...;                        the shared memory of a block, a trivial type
//   WINNOW_DEVICE void run(Shared&) const;     what each thread does
//
// or, if it needs no shared memory, with run() alone.

namespace winnow::simt {

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kLanes = 32;
inline constexpr unsigned kWarps = kThreads / kLanes;

struct NoShared {};
template <class Kernel>
struct SharedMemory {
  using Type = NoShared;
};
template <class Kernel>
  requires requires { typename Kernel::Shared; }
struct SharedMemory<Kernel> {
  using Type = typename Kernel::Shared;
};
template <class Kernel>
using SharedOf = typename SharedMemory<Kernel>::Type;

/// One thread of a kernel.
template <class Kernel>
WINNOW_DEVICE void run(const Kernel& kernel, SharedOf<Kernel>& shared) {
  if constexpr (requires { kernel.run(shared); }) {
    kernel.run(shared);
  } else {
    kernel.run();
  }
}

/// The result of scan: the sum over the threads before this one, and over the whole block.
struct Scanned {
  std::uint64_t before, total;
};

}  // namespace winnow::simt
