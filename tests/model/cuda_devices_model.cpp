// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The devices of the model of the CUDA runtime, and which of them have a context. As since CUDA 12,
// cudaSetDevice makes one at once, and a call that needs a context makes that of the thread's
// device.

#include "tests/model/cuda_model.hpp"

namespace winnow::tests {

namespace {
constexpr int kMultiprocessors = 1;
constexpr int kCacheBytes = 1 << 25;

int devices = 1;
std::set<int> contexts;
thread_local int current = 0;
}  // namespace

ModelDevices::ModelDevices(int count) {
  const Lock lock(model_mutex);
  devices = count;
  contexts.clear();
}
ModelDevices::~ModelDevices() {
  const Lock lock(model_mutex);
  devices = 1;
}

std::set<int> ModelDevices::with_context() const {
  const Lock lock(model_mutex);
  return contexts;
}

int current_device(const Lock&) {
  return current;
}

Lock lock_context() {
  Lock lock(model_mutex);
  contexts.insert(current);
  return lock;
}

}  // namespace winnow::tests

using namespace winnow::tests;

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the library's own names
extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const Lock lock(model_mutex);
  *count = devices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  const Lock lock(model_mutex);
  if (device < 0 || device >= devices) return said(cudaErrorInvalidDevice);
  current = device;
  contexts.insert(device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const Lock lock(model_mutex);
  const bool is_known =
      attribute == cudaDevAttrMultiProcessorCount || attribute == cudaDevAttrL2CacheSize;
  if (!is_known || device < 0 || device >= devices) return said(cudaErrorInvalidValue);
  *value = attribute == cudaDevAttrL2CacheSize ? kCacheBytes : kMultiprocessors;
  return cudaSuccess;
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
