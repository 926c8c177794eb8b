// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cub/block/block_scan.cuh>
#define WINNOW_DEVICE __device__ __forceinline__
#define WINNOW_UNROLLED _Pragma("unroll")
#define WINNOW_ROLLED _Pragma("unroll 1")
#else
#define WINNOW_DEVICE inline
#define WINNOW_UNROLLED
#define WINNOW_ROLLED
#endif

// The machine that kernels in this folder need: blocks of kThreads threads in
// warps of kLanes. Kernels are written against these functions alone, so one source serves two
// machines: nvcc makes device code of it, and g++ a host program in which each thread is a fiber
// (tests/model/machine.hpp), where the logic of a kernel is tested without a GPU. A kernel is a
// struct, whose members, of trivial types, are its arguments:
//
//   using Shared = ...;                        the shared memory of a block, a trivial type
//   WINNOW_DEVICE void run(Shared&) const;     what each thread does
//
// or, if it needs no shared memory, with run() alone.
//
// All threads of a warp, or of a block, must make its collective calls, in the same order.

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

#ifdef __CUDACC__

WINNOW_DEVICE unsigned thread() {
  return threadIdx.x;
}
WINNOW_DEVICE unsigned block() {
  return blockIdx.x;
}
WINNOW_DEVICE unsigned blocks() {
  return gridDim.x;
}

/// Returns when all threads of the block are here; all see what they wrote before.
WINNOW_DEVICE void barrier() {
  __syncthreads();
}
/// A barrier that tells whether some thread said true.
WINNOW_DEVICE bool barrier_or(bool mine) {
  return __syncthreads_or(mine ? 1 : 0) != 0;
}

/// Among the threads of the warp.
template <class T>
WINNOW_DEVICE T shuffle_xor(T mine, unsigned mask) {
  return __shfl_xor_sync(~0U, mine, static_cast<int>(mask));
}
/// The value of one lane, which all may name alike or each for itself.
template <class T>
WINNOW_DEVICE T shuffle(T mine, unsigned lane) {
  return __shfl_sync(~0U, mine, static_cast<int>(lane));
}
WINNOW_DEVICE std::uint32_t ballot(bool mine) {
  return __ballot_sync(~0U, mine ? 1 : 0);
}
/// What `combine`, for which a and b are as good as b and a, makes of what the threads gave: of
/// lanes 16 apart first.
template <class T, class Combine>
WINNOW_DEVICE T warp_reduce(T mine, const Combine& combine) {
  for (unsigned step = kLanes / 2; step > 0; step /= 2) {
    mine = combine(mine, shuffle_xor(mine, step));
  }
  return mine;
}

/// On memory of the device or of the block. They return what was there.
WINNOW_DEVICE std::uint32_t atomic_add(std::uint32_t* at, std::uint32_t value) {
  return atomicAdd(at, value);
}
WINNOW_DEVICE std::uint32_t atomic_max(std::uint32_t* at, std::uint32_t value) {
  return atomicMax(at, value);
}
WINNOW_DEVICE std::uint32_t atomic_or(std::uint32_t* at, std::uint32_t value) {
  return atomicOr(at, value);
}
/// Modulo 2^64.
WINNOW_DEVICE std::uint64_t atomic_add(std::uint64_t* at, std::uint64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), value);
}

/// A word by which blocks talk to each other while they run: written and read whole.
template <class T>
WINNOW_DEVICE void publish(T* at, T value) {
  *static_cast<volatile T*>(at) = value;
}
template <class T>
WINNOW_DEVICE T published(const T* at) {
  return *static_cast<const volatile T*>(at);
}
/// Threads that see a later write of this thread, and have a fence behind that look, see its
/// earlier ones, too. Not __threadfence(), which also puts all fences in one order: nothing here
/// needs one.
WINNOW_DEVICE void fence() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
/// Likewise for the host.
WINNOW_DEVICE void fence_host() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}
/// Between two looks at a word that another block will publish.
WINNOW_DEVICE void idle() {
  __nanosleep(20);
}

/// Rounded to nearest.
WINNOW_DEVICE float root(float x) {
  return __fsqrt_rn(x);
}

/// 4 floats of device memory at a multiple of 16 bytes, in one access. Caches may drop them first:
/// a pass over memory reads or writes each element once. Nor does nvcc cut such an access up, or
/// take it for one of shared memory, where it cannot tell whose pointer it is.
WINNOW_DEVICE void load4(const float* at, float (&to)[4]) {
  const float4 all = __ldcs(reinterpret_cast<const float4*>(at));
  to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
}
WINNOW_DEVICE void store4(float* at, const float (&from)[4]) {
  __stcs(reinterpret_cast<float4*>(at), float4{from[0], from[1], from[2], from[3]});
}
/// The same in the block's memory, which has no cache to go around.
WINNOW_DEVICE void load4_here(const float* at, float (&to)[4]) {
  const float4 all = *reinterpret_cast<const float4*>(at);
  to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
}
WINNOW_DEVICE void store4_here(float* at, const float (&from)[4]) {
  *reinterpret_cast<float4*>(at) = float4{from[0], from[1], from[2], from[3]};
}
/// Brings the line of 128 bytes around an address nearer, while this thread goes on.
WINNOW_DEVICE void prefetch(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}
/// A word among bytes, at a multiple of its size, in one access.
template <class Word>
WINNOW_DEVICE void store_word(std::byte* at, Word word) {
  *reinterpret_cast<Word*>(at) = word;
}
template <class Word>
WINNOW_DEVICE Word load_word(const std::byte* at) {
  return *reinterpret_cast<const Word*>(at);
}

/// Copies a word of device memory to memory of the block while this thread goes on, where the
/// device can.
WINNOW_DEVICE void copy_word(std::uint32_t* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
#else
  *to = *static_cast<const std::uint32_t*>(from);
#endif
}
/// Waits for this thread's copies; other threads see them behind a barrier.
WINNOW_DEVICE void await_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// Ones of a word, and the place of the lowest; a word of zeros has none.
WINNOW_DEVICE std::uint32_t ones_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(__popcll(word));
}
WINNOW_DEVICE std::uint32_t lowest_one(std::uint64_t word) {
  return static_cast<std::uint32_t>(__ffsll(static_cast<long long>(word)) - 1);
}

using BlockScan = cub::BlockScan<std::uint64_t, kThreads, cub::BLOCK_SCAN_WARP_SCANS>;
struct ScanRoom {
  BlockScan::TempStorage room;
};
/// For the block. A barrier must stand between two uses of the same memory.
WINNOW_DEVICE Scanned scan(ScanRoom& room, std::uint64_t mine) {
  Scanned result;
  BlockScan(room.room).ExclusiveSum(mine, result.before, result.total);
  return result;
}

#else  // the host model; its bodies are in tests/model/machine.cpp

unsigned thread();
unsigned block();
unsigned blocks();
void barrier();
bool barrier_or(bool mine);
std::uint64_t shuffle_xor_bits(std::uint64_t mine, unsigned mask);
/// The value of each lane; good until the thread waits for others.
const std::uint64_t* all_of_warp(std::uint64_t mine);
std::uint32_t ballot(bool mine);
std::uint32_t atomic_add(std::uint32_t* at, std::uint32_t value);
std::uint32_t atomic_max(std::uint32_t* at, std::uint32_t value);
std::uint32_t atomic_or(std::uint32_t* at, std::uint32_t value);
std::uint64_t atomic_add(std::uint64_t* at, std::uint64_t value);
/// Other threads may run here; `progress` where a spinning thread may find something new.
void switch_point(bool progress);
void idle();
void copy_word(std::uint32_t* to, const void* from);
void await_copies();
void expect_aligned(const void* at, std::size_t bytes);

inline float root(float x) {
  return std::sqrt(x);
}

inline void fence() {}
inline void fence_host() {}
inline void prefetch(const void*) {}

/// Values of any type as shuffles carry them.
template <class T>
std::uint64_t bits_of(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T value_of(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
T shuffle_xor(T mine, unsigned mask) {
  return value_of<T>(shuffle_xor_bits(bits_of(mine), mask));
}

template <class T>
T shuffle(T mine, unsigned lane) {
  return value_of<T>(all_of_warp(bits_of(mine))[lane % kLanes]);
}

/// In the device's order, by one meeting in the place of five.
template <class T, class Combine>
T warp_reduce(T mine, const Combine& combine) {
  const std::uint64_t* const all = all_of_warp(bits_of(mine));
  T values[kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane) values[lane] = value_of<T>(all[lane]);
  for (unsigned step = kLanes / 2; step > 0; step /= 2) {
    for (unsigned lane = 0; lane < step; ++lane) {
      values[lane] = combine(values[lane], values[lane + step]);
    }
  }
  return values[0];
}

template <class T>
void publish(T* at, T value) {
  switch_point(false);
  *at = value;
  switch_point(true);
}
template <class T>
T published(const T* at) {
  switch_point(false);
  return *at;
}

inline void load4(const float* at, float (&to)[4]) {
  expect_aligned(at, sizeof to);
  std::memcpy(to, at, sizeof to);
}
inline void store4(float* at, const float (&from)[4]) {
  expect_aligned(at, sizeof from);
  std::memcpy(at, from, sizeof from);
}
inline void load4_here(const float* at, float (&to)[4]) {
  load4(at, to);
}
inline void store4_here(float* at, const float (&from)[4]) {
  store4(at, from);
}
template <class Word>
void store_word(std::byte* at, Word word) {
  expect_aligned(at, sizeof word);
  std::memcpy(at, &word, sizeof word);
}
template <class Word>
Word load_word(const std::byte* at) {
  Word word;
  expect_aligned(at, sizeof word);
  std::memcpy(&word, at, sizeof word);
  return word;
}

inline std::uint32_t ones_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(std::popcount(word));
}
inline std::uint32_t lowest_one(std::uint64_t word) {
  return static_cast<std::uint32_t>(std::countr_zero(word));
}

struct ScanRoom {
  std::uint64_t values[kThreads];
};
inline Scanned scan(ScanRoom& room, std::uint64_t mine) {
  room.values[thread()] = mine;
  barrier();
  const unsigned self = thread();
  std::uint64_t before = 0, rest = 0;
  for (unsigned t = 0; t < self; ++t) before += room.values[t];
  for (unsigned t = self; t < kThreads; ++t) rest += room.values[t];
  return {before, before + rest};
}

#endif

/// This thread's number in the grid, and how many threads the grid has: a thread of a kernel in
/// which each does its own work takes every grid_threads()-th piece of it.
WINNOW_DEVICE std::uint64_t grid_thread() {
  return std::uint64_t{block()} * kThreads + thread();
}
WINNOW_DEVICE std::uint64_t grid_threads() {
  return std::uint64_t{blocks()} * kThreads;
}

/// The number of this thread within its warp.
WINNOW_DEVICE unsigned lane() {
  return thread() % kLanes;
}

/// The largest value of the threads of a warp.
WINNOW_DEVICE std::uint32_t warp_max(std::uint32_t mine) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(~0U, mine);
#else
  return warp_reduce(mine, [](std::uint32_t a, std::uint32_t b) { return b > a ? b : a; });
#endif
}

/// Likewise of the half of a warp, 16 lanes, that this thread is in.
WINNOW_DEVICE std::uint32_t half_warp_max(std::uint32_t mine) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffU << (lane() & kLanes / 2), mine);
#else
  for (unsigned step = kLanes / 4; step > 0; step /= 2) {
    const std::uint32_t other = shuffle_xor(mine, step);
    mine = other > mine ? other : mine;
  }
  return mine;
#endif
}

/// The sum over the lanes up to this one.
WINNOW_DEVICE std::uint32_t warp_sum_to(std::uint32_t mine) {
  for (unsigned step = 1; step < kLanes; step *= 2) {
    const std::uint32_t other = shuffle(mine, (lane() - step) % kLanes);
    if (lane() >= step) mine += other;
  }
  return mine;
}

/// The sum of the values of the threads of a warp.
template <class T>
WINNOW_DEVICE T warp_sum(T mine) {
  return warp_reduce(mine, [](T a, T b) { return a + b; });
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
WINNOW_DEVICE std::uint32_t warp_sum(std::uint32_t mine) {
  return __reduce_add_sync(~0U, mine);
}
#endif

}  // namespace winnow::simt
