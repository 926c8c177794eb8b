// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace winnow::tests {

// For models of libraries that put their own work on streams of the model of the CUDA runtime
// (cuda_model.cpp).

using Lock = std::unique_lock<std::mutex>;

/// One lock for the whole model: order matters here, not speed.
extern std::mutex model_mutex;
/// Notified when anything is enqueued or done.
extern std::condition_variable model_changed;

/// A piece of work on a stream.
struct StreamWork {
  CUstream_st* stream = nullptr;
  std::function<void()> run;  ///< empty: another thread does it and reports when it is done
  std::function<bool()> may_run = [] { return true; };
  std::uint64_t ticks = 1;  ///< that it takes on the device's clock
  bool done = false;
  std::uint64_t when = 0;  ///< when it was done
};

/// Puts a piece of work on a stream, now or when a graph is replayed.
using Enqueue = std::function<void(const Lock& lock, CUstream_st* stream)>;

/// A piece of work in a graph.
struct Node {
  Enqueue work;
  cudaGraphNodeType type;
};

/// The streams' work during a capture, in call order, recorded instead of done.
struct Capture {
  std::thread::id by;
  cudaStreamCaptureMode mode;
  std::vector<CUstream_st*> streams;  ///< none after the capture has ended
  std::vector<Node> nodes;
  bool broken = false;
};

/// The machine's devices while it lives, all without a context at first; without it there is one
/// device.
class ModelDevices {
 public:
  explicit ModelDevices(int count);
  ~ModelDevices();
  ModelDevices(const ModelDevices&) = delete;
  ModelDevices& operator=(const ModelDevices&) = delete;

  /// The devices for which some call has made a context.
  std::set<int> with_context() const;
};

/// This thread's current device.
int current_device(const Lock& lock);
/// The priorities of the streams that exist.
std::multiset<int> stream_priorities();

/// Takes the lock for a call that needs the current device's context, and makes the context if
/// there is none.
Lock lock_context();

/// The memory's attributes, as from cudaPointerGetAttributes.
cudaPointerAttributes look_up(const Lock& lock, const void* memory);

/// Called when memory of so many bytes is freed; empty at first.
using WatchOfFrees = std::function<void(const Lock&, const std::byte* memory, std::size_t bytes)>;
WatchOfFrees& watch_of_frees();

/// Records an error for cudaGetLastError.
cudaError_t said(cudaError_t status);
/// Returns whether the stream exists and is not destroyed.
bool exists(const Lock& lock, const CUstream_st* stream);
/// This thread's mode.
extern thread_local cudaStreamCaptureMode capture_mode;
/// For a call that a capturing thread must not make, except in the relaxed mode: breaks the
/// captures. Returns whether there were any.
bool breaks_captures(const Lock& lock);
/// Waits for everything that this thread has enqueued.
cudaError_t wait_for_device(Lock& lock);
/// How often this thread has waited for a stream (cudaStreamSynchronize).
std::uint64_t stream_waits();
/// How much work of a type this thread has put on streams or into graphs.
std::uint64_t enqueued(cudaGraphNodeType type);
/// How often this thread has copied from the device to page-locked memory.
std::uint64_t copies_to_host();
/// Returns why a kernel failed, or an empty text.
const std::string& launch_problem(const Lock& lock);
/// Enqueues work, or records it for a graph.
cudaError_t enqueue_or_capture(CUstream_st* stream, cudaGraphNodeType type,
                               std::function<void()> run);
cudaError_t enqueue_or_capture(const Lock& lock, CUstream_st* stream, const Node& node);

/// Thrown by a failing kernel: every later call returns cudaErrorLaunchFailure.
struct KernelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Enqueues `run` as a kernel on a stream of the current device.
cudaError_t launch_kernel(CUstream_st* stream, std::function<void()> run);

/// Enqueues work that another thread does; not in a capture.
std::shared_ptr<StreamWork> enqueue_elsewhere(const Lock& lock, CUstream_st* stream);
/// Returns whether everything before the work on its stream is done.
bool is_first(const Lock& lock, const StreamWork& work);
/// Marks the work as done or given up; if others are before it, it is done in its turn.
void finish(const Lock& lock, StreamWork& work);

}  // namespace winnow::tests

struct CUstream_st {
  std::thread::id maker;
  int device = 0, priority = 0;
  std::deque<std::shared_ptr<winnow::tests::StreamWork>> queue;
  bool running = false;  // the first of the queue
  bool destroyed = false;
  std::shared_ptr<winnow::tests::Capture> capture;
};
