// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/simt_kernel.hpp"

// The machine of simt.hpp that is a host. Functions without a body here have it in
// tests/model/machine.cpp.

namespace winnow::simt {

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
void publish_to_host(T* at, T value) {
  publish(at, value);
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

}  // namespace winnow::simt
