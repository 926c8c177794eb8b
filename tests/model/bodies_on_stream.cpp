// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A device whose kernels are the host's bodies: each operation runs when its stream reaches it,
// under the model of CUDA's rules for streams, memory, captures and conditions. It tests the host's
// side of device code without the slow SIMT machine, which tests the kernels themselves. This table
// replaces the library's.
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cuda/device_exec.hpp"
#include "kernels/cuda/try.hpp"
#include "kernels/dispatch/bodies.hpp"
#include "tests/model/cuda_model.hpp"

namespace winnow::kernels {
namespace {

cudaStream_t stream_of(const Exec& exec) {
  cuda::expect_device(exec);
  return static_cast<cudaStream_t>(exec.stream);
}

/// Runs `body` with a host Exec when the stream reaches it, if the condition then holds.
template <class Body>
void launch(const Exec& exec, Body body) {
  const auto run = [condition = exec.condition, body = std::move(body)] {
    if (!holds(condition)) return;
    thread_local Workspace workspace;
    const Workspace::Scope scope(workspace);
    const FloatMode mode;
    try {
      body(Exec{.workspace = &workspace});
    } catch (const std::exception& error) {
      throw tests::KernelError(error.what());
    }
  };
  WINNOW_CUDA_TRY(tests::launch_kernel(stream_of(exec), run));
}

/// An operation as a kernel that takes its arguments by value.
template <auto operation>
struct OnStream;
template <class... Args, void (*Bodies::*operation)(const Exec&, Args...)>
struct OnStream<operation> {
  static void enqueue(const Exec& exec, Args... args) {
    launch(exec, [held = std::tuple<std::decay_t<Args>...>(args...)](const Exec& host) {
      std::apply([&](const auto&... each) { (kCpu.*operation)(host, each...); }, held);
    });
  }
};

// The runtime copies and clears memory, unless a condition turns that into kernels.

void enqueue_copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  if (to.empty()) return;
  if (exec.condition.words == nullptr) {
    WINNOW_CUDA_TRY(
        cudaMemcpyAsync(to.data(), from.data(), to.size(), cudaMemcpyDefault, stream_of(exec)));
    return;
  }
  OnStream<&Bodies::copy>::enqueue(exec, to, from);
}

void enqueue_zeros(const Exec& exec, std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  WINNOW_CUDA_TRY(cudaMemsetAsync(bytes.data(), 0, bytes.size(), stream_of(exec)));
}

void enqueue_list(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  launch(exec, [to, list = std::vector<std::byte>(from.begin(), from.end())](const Exec&) {
    if (!list.empty()) std::memcpy(to.data(), list.data(), list.size());
  });
}

}  // namespace

constinit const Bodies kCuda{
    .all_finite = OnStream<&Bodies::all_finite>::enqueue,
    .average = OnStream<&Bodies::average>::enqueue,
    .copy = enqueue_copy,
    .dequantize = OnStream<&Bodies::dequantize>::enqueue,
    .feedback_add = OnStream<&Bodies::feedback_add>::enqueue,
    .feedback_keep = OnStream<&Bodies::feedback_keep>::enqueue,
    .fill = OnStream<&Bodies::fill>::enqueue,
    .fits = OnStream<&Bodies::fits>::enqueue,
    .from_ordered = OnStream<&Bodies::from_ordered>::enqueue,
    .narrow = OnStream<&Bodies::narrow>::enqueue,
    .put = OnStream<&Bodies::put>::enqueue,
    .put_back = OnStream<&Bodies::put_back>::enqueue,
    .quantize = OnStream<&Bodies::quantize>::enqueue,
    .reduce = OnStream<&Bodies::reduce>::enqueue,
    .residual_add = OnStream<&Bodies::residual_add>::enqueue,
    .scale = OnStream<&Bodies::scale>::enqueue,
    .store = enqueue_list,
    .take = OnStream<&Bodies::take>::enqueue,
    .to_ordered = OnStream<&Bodies::to_ordered>::enqueue,
    .widen = OnStream<&Bodies::widen>::enqueue,
    .zero = enqueue_zeros,
};

}  // namespace winnow::kernels
