// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cub/block/block_scan.cuh>
#include <cuda/atomic>

#include "kernels/cuda/simt_kernel.hpp"

// The machine of simt.hpp that is a GPU.

namespace winnow::simt {

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
/// A barrier that returns whether some thread passed true.
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
/// The result of `combine`, which is commutative, over the threads' values: lanes 16 apart first.
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
  const cuda::atomic_ref<T, cuda::thread_scope_device> word(*at);
  word.store(value, cuda::memory_order_relaxed);
}
template <class T>
WINNOW_DEVICE T published(const T* at) {
  const cuda::atomic_ref<T, cuda::thread_scope_device> word(*const_cast<T*>(at));
  return word.load(cuda::memory_order_relaxed);
}
/// Threads that see a later write of this thread, and have a fence behind that look, see its
/// earlier ones, too. Not __threadfence(), which also puts all fences in one order: nothing here
/// needs one.
WINNOW_DEVICE void fence() {
  cuda::atomic_thread_fence(cuda::memory_order_acq_rel, cuda::thread_scope_device);
}
/// Publishes a word in host memory to the host.
template <class T>
WINNOW_DEVICE void publish_to_host(T* at, T value) {
  const cuda::atomic_ref<T, cuda::thread_scope_system> word(*at);
  word.store(value, cuda::memory_order_relaxed);
}
WINNOW_DEVICE void fence_host() {
  cuda::atomic_thread_fence(cuda::memory_order_acq_rel, cuda::thread_scope_system);
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
/// Accesses 4 floats in the block's memory, which has no cache to go around.
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

}  // namespace winnow::simt
