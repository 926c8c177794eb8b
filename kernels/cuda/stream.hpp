// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <winnow/exec.hpp>

#include "kernels/cuda/try.hpp"

namespace winnow::kernels::cuda {

/// A stream that somebody else owns. All device memory is touched on a stream that is named.
class StreamRef {
 public:
  explicit StreamRef(cudaStream_t stream) : stream_(stream) {}

  cudaStream_t get() const { return stream_; }
  Exec exec() const { return {.place = Place::cuda, .stream = stream_}; }
  /// Waits on the host for all that is enqueued.
  void synchronize() const { WINNOW_CUDA_TRY(cudaStreamSynchronize(stream_)); }
  /// Lower numbers go first. The default stream, which nobody makes, has the priority of most
  /// streams.
  int priority() const {
    int priority = 0;
    if (stream_ != nullptr) WINNOW_CUDA_TRY(cudaStreamGetPriority(stream_, &priority));
    return priority;
  }

 private:
  cudaStream_t stream_;
};

/// Owns a stream of the current device, which does not wait for the default stream. Work that is
/// still enqueued when it ends is done all the same. CUDA takes the nearest priority that the
/// device has.
class Stream {
 public:
  explicit Stream(int priority = 0) {
    cudaStream_t stream = nullptr;
    WINNOW_CUDA_TRY(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
    stream_.reset(stream);
  }

  // NOLINTNEXTLINE(google-explicit-constructor): a stream is such a view
  operator StreamRef() const { return StreamRef(stream_.get()); }
  cudaStream_t get() const { return stream_.get(); }
  Exec exec() const { return StreamRef(*this).exec(); }
  int priority() const { return StreamRef(*this).priority(); }
  void synchronize() const { StreamRef(*this).synchronize(); }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const noexcept { (void)cudaStreamDestroy(stream); }
  };
  std::unique_ptr<CUstream_st, Destroy> stream_;
};

/// Lets this thread ask, while it lives, for what a capture under way elsewhere does not allow in
/// stricter modes: how far a stream is that captures nothing.
class RelaxedCapture {
 public:
  RelaxedCapture() { WINNOW_CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Whether an event is passed by now. Not of one that a capture has recorded; others may be asked
/// for while this thread captures.
inline bool has_passed(cudaEvent_t event) {
  const RelaxedCapture relaxed;
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  WINNOW_CUDA_TRY(status);
  return true;
}

/// For two events with timing that have passed.
inline double seconds_between(cudaEvent_t begin, cudaEvent_t end) {
  const RelaxedCapture relaxed;
  float milliseconds = 0;
  WINNOW_CUDA_TRY(cudaEventElapsedTime(&milliseconds, begin, end));
  return 1e-3 * static_cast<double>(milliseconds);
}

/// Owns a mark that a stream passes, of the current device.
class Event {
 public:
  enum class Timing { off, on };

  explicit Event(Timing timing = Timing::off) {
    cudaEvent_t event = nullptr;
    const unsigned flags = timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming;
    WINNOW_CUDA_TRY(cudaEventCreateWithFlags(&event, flags));
    event_.reset(event);
  }

  cudaEvent_t get() const { return event_.get(); }
  void record(StreamRef stream) const {
    WINNOW_CUDA_TRY(cudaEventRecord(event_.get(), stream.get()));
  }
  /// Waits on the host until it is passed.
  void synchronize() const { WINNOW_CUDA_TRY(cudaEventSynchronize(event_.get())); }
  bool passed() const { return has_passed(event_.get()); }
  /// Both with Timing::on, and passed.
  double seconds_since(const Event& begin) const {
    return seconds_between(begin.get(), event_.get());
  }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const noexcept { (void)cudaEventDestroy(event); }
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

/// The one way to cross streams: what is enqueued on `after` from here on waits for all that is
/// enqueued on `before` by now. Does not block the host; within a capture `after` joins it.
inline void order(StreamRef before, StreamRef after, const Event& event) {
  event.record(before);
  WINNOW_CUDA_TRY(cudaStreamWaitEvent(after.get(), event.get(), 0));
}

}  // namespace winnow::kernels::cuda
