// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
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

// What a model of a library needs that puts work of its own into streams of the model of the CUDA
// runtime (cuda_model.cpp).

using Lock = std::unique_lock<std::mutex>;

/// One lock for all of the model: what matters there is order, not speed.
extern std::mutex model_mutex;
/// Whenever something is enqueued or done.
extern std::condition_variable model_changed;

/// A piece of a stream's work.
struct StreamWork {
  CUstream_st* stream = nullptr;
  std::function<void()> run;  ///< empty: a thread of its own does it, and says when it is done
  std::function<bool()> may_run = [] { return true; };
  std::uint64_t ticks = 1;  ///< of the device's clock, that it takes
  bool done = false;
  std::uint64_t when = 0;  ///< it was done
};

/// What puts a piece of work into a stream, now or when a graph is replayed.
using Enqueue = std::function<void(const Lock& lock, CUstream_st* stream)>;

/// One that a graph holds.
struct Node {
  Enqueue work;
  cudaGraphNodeType type;
};

/// What streams note, in the order of the calls, in the place of doing it.
struct Capture {
  std::thread::id by;
  std::vector<CUstream_st*> streams;  ///< none after its end
  std::vector<Node> nodes;
  bool broken = false;
};

/// The devices of the machine while it lives, none of which has a context yet; else there is one.
class ModelDevices {
 public:
  explicit ModelDevices(int count);
  ~ModelDevices();
  ModelDevices(const ModelDevices&) = delete;
  ModelDevices& operator=(const ModelDevices&) = delete;

  /// Those of which some call has made a context.
  std::set<int> with_context() const;
};

/// That which is current for this thread.
int current_device(const Lock& lock);
/// Takes the lock, for a call that needs the context of the current device: it makes it where there
/// is none.
Lock lock_context();

/// What lies there, as cudaPointerGetAttributes says it.
cudaPointerAttributes look_up(const Lock& lock, const void* memory);

/// Notes an error for cudaGetLastError.
cudaError_t said(cudaError_t status);
/// Of a stream that is not destroyed.
bool exists(const Lock& lock, const CUstream_st* stream);
/// Of this thread.
extern thread_local cudaStreamCaptureMode capture_mode;
/// Of a call that is not for a thread that captures, but in the relaxed mode: it breaks the
/// captures. Were there any?
bool breaks_captures(const Lock& lock);
/// For all that this thread has enqueued.
cudaError_t wait_for_device(Lock& lock);
/// Of a kernel that failed, if one did: why.
const std::string& launch_problem(const Lock& lock);
/// Enqueues work, or notes it for a graph.
cudaError_t enqueue_or_capture(CUstream_st* stream, cudaGraphNodeType type,
                               std::function<void()> run);
cudaError_t enqueue_or_capture(const Lock& lock, CUstream_st* stream, const Node& node);

/// What a kernel throws that fails: all that follows is cudaErrorLaunchFailure.
struct KernelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Enqueues `run` as a kernel on a stream of the current device.
cudaError_t launch_kernel(CUstream_st* stream, std::function<void()> run);

/// Enqueues work that a thread of its own does; not in a capture.
std::shared_ptr<StreamWork> enqueue_elsewhere(const Lock& lock, CUstream_st* stream);
/// All that stands before it in its stream is done.
bool is_first(const Lock& lock, const StreamWork& work);
/// Says that it is done, or given up.
void finish(const Lock& lock, StreamWork& work);

}  // namespace winnow::tests

struct CUstream_st {
  std::thread::id maker;
  int device = 0;
  std::deque<std::shared_ptr<winnow::tests::StreamWork>> queue;
  bool running = false;  // the first of the queue
  bool destroyed = false;
  std::shared_ptr<winnow::tests::Capture> capture;
};
