// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// Compiled when the build is configured: can this nvcc and its host compiler do C++20?
#include <concepts>
#include <span>
#include <string>

template <std::floating_point T>
__global__ void increment(T* element) {
  *element += T{1};
}

cudaError_t probe(std::span<float> elements, cudaStream_t stream) {
  increment<<<1, 1, 0, stream>>>(elements.data());
  return cudaGetLastError();
}
