// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A model of the part of the CUDA runtime that Winnow's device code calls, so that this code runs
// without a GPU. Kernels run on a model of the SIMT machine (simt_launch.cpp), or the host's bodies
// replace them (bodies_on_stream.cpp); the host's side, which allocates, enqueues and waits, is the
// real code. Device memory is host memory that starts as garbage. A wait for the device waits for
// the streams of the calling thread, and runs what may run in those of other threads.
//
// Work runs as late as it may: in the calls that wait or ask for it, each stream in order, and no
// stream before it must. So code that reads a result too early, or without an order between
// streams, reads the old content. Work also runs if a stream is full, for which the host then
// waits. A copy from the device to host memory that is not page-locked blocks the host until it is
// done, as in CUDA. The clock of events counts pieces of work, one microsecond each; marks and
// waits take no time.
#include "tests/model/cuda_model.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace winnow::tests {

std::mutex model_mutex;
std::condition_variable model_changed;

namespace {

thread_local std::uint64_t waits_for_streams = 0;
thread_local std::map<cudaGraphNodeType, std::uint64_t> enqueued_by_type;
thread_local std::uint64_t to_host = 0;
constexpr std::size_t kMostQueued = 1024;  // per stream, before the host waits
constexpr int kHighestPriority = -5, kLowestPriority = 0;

std::vector<std::unique_ptr<CUstream_st>> streams;
std::uint64_t device_clock = 0;  // ticks
std::string problem_of_launch;   // of the kernel that failed, or empty

/// Drops finished work from the front of a stream, and a stream that nobody will use.
void retire(CUstream_st& stream) {
  while (!stream.queue.empty() && stream.queue.front()->done) stream.queue.pop_front();
  if (stream.destroyed && stream.queue.empty()) {
    std::erase_if(streams, [&](const auto& s) { return s.get() == &stream; });
  }
  model_changed.notify_all();
}

void complete(StreamWork& work) {
  work.done = true;
  device_clock += work.ticks;
  work.when = device_clock;
  retire(*work.stream);
}

/// Runs a stream's next work, if it may run now.
bool step(Lock& lock, CUstream_st& stream) {
  if (stream.queue.empty() || stream.running) return false;
  const std::shared_ptr<StreamWork> work = stream.queue.front();
  if (work->run == nullptr || !work->may_run()) return false;
  stream.running = true;
  lock.unlock();
  std::string problem;
  try {
    work->run();
  } catch (const KernelError& error) {
    problem = error.what();
  }
  lock.lock();
  if (!problem.empty()) problem_of_launch = problem;
  stream.running = false;
  complete(*work);
  return true;
}

bool step_any(Lock& lock) {
  for (const auto& stream : streams) {
    if (step(lock, *stream)) return true;  // `streams` may have changed
  }
  return false;
}

/// Runs what must run before `work` is done, and whatever that waits for. False if other threads
/// must act first.
bool pass(Lock& lock, const StreamWork& work) {
  while (!work.done) {
    if (!step(lock, *work.stream) && !step_any(lock)) return false;
  }
  return true;
}

cudaError_t wait(Lock& lock, const std::shared_ptr<StreamWork>& work) {
  while (work != nullptr && !pass(lock, *work)) model_changed.wait(lock);
  return said(problem_of_launch.empty() ? cudaSuccess : cudaErrorLaunchFailure);
}

std::shared_ptr<StreamWork> last_of(const CUstream_st& stream) {
  return stream.queue.empty() ? nullptr : stream.queue.back();
}

void await_room(Lock& lock, CUstream_st* stream) {
  while (exists(lock, stream) && stream->queue.size() >= kMostQueued) {
    if (!step(lock, *stream) && !step_any(lock)) model_changed.wait(lock);
  }
}

std::shared_ptr<StreamWork> enqueue(CUstream_st* stream, StreamWork work) {
  work.stream = stream;
  stream->queue.push_back(std::make_shared<StreamWork>(std::move(work)));
  model_changed.notify_all();
  return stream->queue.back();
}

}  // namespace

thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

bool breaks_captures(const Lock&) {
  bool any = false;
  if (capture_mode == cudaStreamCaptureModeRelaxed) return false;
  for (const auto& stream : streams) {
    if (stream->capture == nullptr) continue;
    Capture& capture = *stream->capture;
    const bool breaks = capture.by == std::this_thread::get_id()
                            ? capture.mode != cudaStreamCaptureModeRelaxed
                            : capture.mode == cudaStreamCaptureModeGlobal &&
                                  capture_mode == cudaStreamCaptureModeGlobal;
    if (breaks) capture.broken = any = true;
  }
  return any;
}

cudaError_t wait_for_device(Lock& lock) {
  std::vector<std::shared_ptr<StreamWork>> own, others;
  for (const auto& stream : streams) {
    const bool is_own = stream->maker == std::this_thread::get_id();
    if (!stream->queue.empty()) (is_own ? own : others).push_back(last_of(*stream));
  }
  for (const auto& work : own) {
    if (const cudaError_t status = wait(lock, work); status != cudaSuccess) return status;
  }
  for (const auto& work : others) (void)pass(lock, *work);
  return cudaSuccess;
}

bool exists(const Lock&, const CUstream_st* stream) {
  return std::ranges::any_of(streams,
                             [&](const auto& s) { return s.get() == stream && !s->destroyed; });
}

std::multiset<int> stream_priorities() {
  const Lock lock(model_mutex);
  std::multiset<int> found;
  for (const auto& stream : streams) {
    if (!stream->destroyed) found.insert(stream->priority);
  }
  return found;
}

std::uint64_t stream_waits() {
  return waits_for_streams;
}

std::uint64_t enqueued(cudaGraphNodeType type) {
  return enqueued_by_type[type];
}
std::uint64_t copies_to_host() {
  return to_host;
}

const std::string& launch_problem(const Lock&) {
  return problem_of_launch;
}

cudaError_t enqueue_or_capture(CUstream_st* stream, cudaGraphNodeType type,
                               std::function<void()> run) {
  const auto work = [run = std::move(run)](const Lock&, CUstream_st* where) {
    enqueue(where, {.run = run});
  };
  Lock lock = lock_context();
  await_room(lock, stream);
  return enqueue_or_capture(lock, stream, Node{work, type});
}

cudaError_t enqueue_or_capture(const Lock& lock, CUstream_st* stream, const Node& node) {
  if (!exists(lock, stream)) return said(cudaErrorInvalidResourceHandle);
  if (!problem_of_launch.empty()) return said(cudaErrorLaunchFailure);
  ++enqueued_by_type[node.type];
  if (stream->capture == nullptr) {
    node.work(lock, stream);
  } else if (stream->capture->broken) {
    return said(cudaErrorStreamCaptureInvalidated);
  } else {
    stream->capture->nodes.push_back(node);
  }
  return cudaSuccess;
}

cudaError_t launch_kernel(CUstream_st* stream, std::function<void()> run) {
  {
    const Lock lock = lock_context();
    if (exists(lock, stream) && stream->device != current_device(lock)) {
      return said(cudaErrorInvalidResourceHandle);
    }
  }
  return enqueue_or_capture(stream, cudaGraphNodeTypeKernel, std::move(run));
}

std::shared_ptr<StreamWork> enqueue_elsewhere(const Lock&, CUstream_st* stream) {
  return enqueue(stream, {.run = nullptr});
}
bool is_first(const Lock&, const StreamWork& work) {
  return !work.stream->queue.empty() && work.stream->queue.front().get() == &work;
}
void finish(const Lock& lock, StreamWork& work) {
  if (is_first(lock, work)) return complete(work);
  work.run = [] {};
}

}  // namespace winnow::tests

using namespace winnow::tests;

struct CUevent_st {
  std::shared_ptr<StreamWork> mark;
  std::shared_ptr<Capture> capture;  // in which it was recorded, or null
  bool timed;
  int device;

  /// Returns whether the event belongs to an unfinished capture: nobody may query it then.
  bool captured() const { return capture != nullptr && !capture->streams.empty(); }
};

namespace {
cudaError_t refuse(const Lock&, Capture& capture, cudaError_t status) {
  capture.broken = true;
  return said(status);
}
}  // namespace

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the library's own names
extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  const Lock lock = lock_context();
  streams.push_back(std::make_unique<CUstream_st>());
  *stream = streams.back().get();
  (*stream)->maker = std::this_thread::get_id();
  (*stream)->device = current_device(lock);
  (*stream)->priority = std::clamp(priority, kHighestPriority, kLowestPriority);
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  const Lock lock = lock_context();
  if (!exists(lock, stream)) return said(cudaErrorInvalidResourceHandle);
  *priority = stream->priority;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock = lock_context();
  if (!exists(lock, stream)) return said(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) {
    stream->capture->broken = true;
    std::erase(stream->capture->streams, stream);
  }
  stream->destroyed = true;
  retire(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Lock lock = lock_context();
  if (!exists(lock, stream)) return said(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) {
    return refuse(lock, *stream->capture, cudaErrorStreamCaptureUnsupported);
  }
  ++waits_for_streams;
  return wait(lock, last_of(*stream));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Lock lock = lock_context();
  if (!exists(lock, stream)) return said(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) {
    return refuse(lock, *stream->capture, cudaErrorStreamCaptureUnsupported);
  }
  if (breaks_captures(lock)) return said(cudaErrorStreamCaptureUnsupported);
  const std::shared_ptr<StreamWork> last = last_of(*stream);
  if (last != nullptr && !pass(lock, *last)) return cudaErrorNotReady;
  return said(problem_of_launch.empty() ? cudaSuccess : cudaErrorLaunchFailure);
}
cudaError_t cudaDeviceSynchronize() {
  Lock lock = lock_context();
  if (breaks_captures(lock)) return said(cudaErrorStreamCaptureUnsupported);
  return wait_for_device(lock);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock = lock_context();
  if (!exists(lock, stream)) return said(cudaErrorInvalidResourceHandle);
  if (event->captured()) {
    if (stream->capture == nullptr) event->capture->streams.push_back(stream);
    stream->capture = event->capture;
    return cudaSuccess;
  }
  if (stream->capture != nullptr) {
    return refuse(lock, *stream->capture, cudaErrorStreamCaptureIsolation);
  }
  if (event->mark == nullptr || event->mark->done) return cudaSuccess;
  enqueue(stream,
          {.run = [] {}, .may_run = [mark = event->mark] { return mark->done; }, .ticks = 0});
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const cudaError_t status =
      enqueue_or_capture(stream, cudaGraphNodeTypeMemcpy, [=] { std::memcpy(to, from, bytes); });
  if (status != cudaSuccess) return status;
  Lock lock = lock_context();
  const cudaMemoryType there = look_up(lock, to).type;
  const bool from_device = look_up(lock, from).type == cudaMemoryTypeDevice;
  if (from_device && there == cudaMemoryTypeHost) ++to_host;
  const bool may_go_on = !from_device || there != cudaMemoryTypeUnregistered;
  return may_go_on || stream->capture != nullptr ? status : wait(lock, last_of(*stream));
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return enqueue_or_capture(stream, cudaGraphNodeTypeMemset,
                            [=] { std::memset(to, value, bytes); });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  const cudaError_t status = cudaDeviceSynchronize();
  std::memset(to, value, bytes);
  return status;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Lock lock = lock_context();
  *event =
      new CUevent_st{nullptr, nullptr, (flags & cudaEventDisableTiming) == 0, current_device(lock)};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock = lock_context();
  if (!exists(lock, stream) || event->device != stream->device) {
    return said(cudaErrorInvalidResourceHandle);
  }
  event->capture = stream->capture;
  event->mark = stream->capture == nullptr ? enqueue(stream, {.run = [] {}, .ticks = 0}) : nullptr;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Lock lock = lock_context();
  if (event->captured()) return refuse(lock, *event->capture, cudaErrorCapturedEvent);
  if (breaks_captures(lock)) return said(cudaErrorStreamCaptureUnsupported);
  const std::shared_ptr<StreamWork> mark = event->mark;
  if (mark != nullptr && !pass(lock, *mark)) return cudaErrorNotReady;
  return said(problem_of_launch.empty() ? cudaSuccess : cudaErrorLaunchFailure);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Lock lock = lock_context();
  if (event->captured()) return refuse(lock, *event->capture, cudaErrorCapturedEvent);
  return wait(lock, event->mark);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock = lock_context();
  if (!begin->timed || !end->timed || begin->mark == nullptr || end->mark == nullptr) {
    return said(cudaErrorInvalidResourceHandle);
  }
  if (!begin->mark->done || !end->mark->done) return cudaErrorNotReady;
  constexpr float kMillisecondsOfATick = 1e-3F;
  const auto ticks = static_cast<std::int64_t>(end->mark->when - begin->mark->when);
  *milliseconds = kMillisecondsOfATick * static_cast<float>(ticks);
  return cudaSuccess;
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
