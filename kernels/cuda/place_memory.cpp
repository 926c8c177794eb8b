// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/place_memory.hpp"

#include "kernels/cuda/device_exec.hpp"
#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/stream.hpp"
#include "kernels/cuda/try.hpp"

namespace winnow::kernels::cuda {

namespace {
StreamRef stream_of(const Exec& exec) {
  expect_device(exec);
  return StreamRef(static_cast<cudaStream_t>(exec.stream));
}

void* make_event(unsigned flags) {
  cudaEvent_t event = nullptr;
  WINNOW_CUDA_TRY(cudaEventCreateWithFlags(&event, flags));
  return event;
}
}  // namespace

const MemorySource& device_memory() {
  return kDeviceMemory;
}

const MemorySource& pinned_memory() {
  return kPinnedMemory;
}

bool is_within_reach(const void* memory) {
  cudaPointerAttributes found{};
  WINNOW_CUDA_TRY(cudaPointerGetAttributes(&found, memory));
  if (found.type == cudaMemoryTypeManaged) return true;
  return found.type == cudaMemoryTypeDevice && found.device == current_device();
}

void wait(const Exec& exec) {
  stream_of(exec).synchronize();
}

bool is_idle(const Exec& exec) {
  const RelaxedCapture relaxed;
  const cudaError_t status = cudaStreamQuery(stream_of(exec).get());
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  WINNOW_CUDA_TRY(status);
  return true;
}

bool is_captured(const Exec& exec) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  WINNOW_CUDA_TRY(cudaStreamIsCapturing(stream_of(exec).get(), &status));
  return status != cudaStreamCaptureStatusNone;
}

void* make_event() {
  return make_event(cudaEventDisableTiming);
}

void* make_timed_event() {
  return make_event(cudaEventDefault);
}

void destroy_event(void* event) noexcept {
  (void)cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

void record(const Exec& exec, void* event) {
  WINNOW_CUDA_TRY(cudaEventRecord(static_cast<cudaEvent_t>(event), stream_of(exec).get()));
}

void wait_for(const Exec& exec, void* event) {
  WINNOW_CUDA_TRY(cudaStreamWaitEvent(stream_of(exec).get(), static_cast<cudaEvent_t>(event), 0));
}

bool has_passed(void* event) {
  return has_passed(static_cast<cudaEvent_t>(event));
}

double seconds_between(void* begin, void* end) {
  return seconds_between(static_cast<cudaEvent_t>(begin), static_cast<cudaEvent_t>(end));
}

int current_device() {
  int device = 0;
  WINNOW_CUDA_TRY(cudaGetDevice(&device));
  return device;
}

void make_current(int device) {
  WINNOW_CUDA_TRY(cudaSetDevice(device));
}

void restore_current(int device) noexcept {
  (void)cudaSetDevice(device);
}

}  // namespace winnow::kernels::cuda
