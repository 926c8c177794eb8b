// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/try.hpp"

namespace winnow::kernels::cuda {

void load() {
#ifdef __CUDACC__  // the host model has nothing to load
  for (const KnownKernel* known = KnownKernel::first; known != nullptr; known = known->next) {
    cudaFuncAttributes attributes;
    WINNOW_CUDA_TRY(cudaFuncGetAttributes(&attributes, known->kernel));
  }
#endif
}

}  // namespace winnow::kernels::cuda
