// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <winnow/exec.hpp>
#include <winnow/workspace.hpp>

#include "kernels/exec/lab_places.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::kernels {

/// Memory that spans of a place lie in: of the host, or of the current device. UsageError where
/// Winnow was built without CUDA.
const MemorySource& memory_of(Place place);

/// Page-locked host memory, which a device may also read and write by itself. UsageError
/// where Winnow was built without CUDA.
const MemorySource& pinned_memory();

[[noreturn]] void refuse_without_scratch();

/// The workspace for scratch in the memory of exec.place. UsageError if there is none.
inline Workspace& scratch_of(const Exec& exec) {
  const bool on_host = exec.place == Place::host || exec.place == kReferencePlace;
  Workspace* const workspace = on_host ? exec.workspace : exec.device_workspace;
  if (workspace == nullptr) refuse_without_scratch();
  return *workspace;
}

/// Whether memory is the current device's, or managed. A place of the host reaches everything.
bool is_within_reach(Place place, const void* memory);

/// Reads what lies in the memory of exec.place: on a device waits for all that is enqueued on
/// exec.stream, and for the copy.
void read(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from);

/// Whether work is only enqueued, so that a host which reads what it leaves waits for exec.stream.
inline bool reading_waits(const Exec& exec) {
  return exec.place == Place::cuda;
}

[[gnu::visibility("default")]] void wait_for_device(const Exec& exec);

/// Waits on the host for all that is enqueued on exec.stream of a device.
inline void wait(const Exec& exec) {
  if (reading_waits(exec)) wait_for_device(exec);
}

/// Whether all of it is done by now; throws what wait throws. Not in a capture.
bool is_idle(const Exec& exec);

bool is_captured_by_device(const Exec& exec);

/// Whether what is enqueued on exec.stream of a device is captured into a graph.
inline bool is_captured(const Exec& exec) {
  return exec.place == Place::cuda && is_captured_by_device(exec);
}

/// A point in the work on a device's stream, for other streams to wait for. Nothing until it is
/// set.
class [[gnu::visibility("default")]] StreamMark {
 public:
  StreamMark() = default;
  ~StreamMark();
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;

  /// Stands behind all that is enqueued on exec.stream, from now on.
  void set(const Exec& exec);
  /// Work enqueued on exec.stream from now on waits for it; the host does not.
  void make_wait(const Exec& exec) const;
  /// Whether the stream has passed it.
  bool passed() const;

 private:
  void* event_ = nullptr;
};

/// A point in the work on a device's stream that knows when the stream passed it. Nothing until it
/// is set.
class TimedMark {
 public:
  /// Stands behind all that is enqueued on exec.stream, from now on.
  void set(const Exec& exec);
  /// Whether the stream has passed it. It must be set.
  bool passed() const;
  /// The device's clock measures it, in steps of about half a microsecond. Both are passed.
  double seconds_since(const TimedMark& earlier) const;

 private:
  struct Destroy {
    void operator()(void* event) const noexcept;
  };
  std::unique_ptr<void, Destroy> event_;
};

/// At its end, gives back all scratch that was taken since its start: in the memory of exec.place,
/// and the host's lists.
class ScratchScope {
 public:
  explicit ScratchScope(const Exec& exec) : lists_(*exec.workspace), data_(scratch_of(exec)) {}

 private:
  Workspace::Scope lists_, data_;
};

/// Takes scratch of the place, and enqueues zeros there.
template <class T>
std::span<T> take_zeros(const Exec& exec, std::size_t count) {
  const auto taken = scratch_of(exec).take<T>(count);
  zero(exec, std::as_writable_bytes(taken));
  return taken;
}

/// Scratch for several arrays, taken as one: each begins at a cache line.
template <class T>
class Arrays {
 public:
  /// The share of `room` that an array of `count` takes.
  static constexpr std::size_t room(std::size_t count) {
    constexpr std::size_t kLine = 64 / sizeof(T);
    return (count + kLine - 1) / kLine * kLine;
  }
  Arrays(Workspace& scratch, std::size_t room) : left_(scratch.take<T>(room)) {}

  std::span<T> next(std::size_t count) {
    return std::exchange(left_, left_.subspan(room(count))).first(count);
  }

 private:
  std::span<T> left_;
};

/// A list of the host, and where the bodies of a place read it.
template <class T>
struct Placed {
  std::span<const T> host = {};
  const T* placed = nullptr;  ///< `host` itself on the host; on a device a copy in its scratch, or
                              ///< null if the list has one entry, which travels with the launch

  /// A part of the list.
  Placed subspan(std::size_t begin, std::size_t count) const {
    return {host.subspan(begin, count), placed == nullptr ? nullptr : placed + begin};
  }
};

/// Makes a list known to the bodies of exec.place; it must stay. On a device the copy travels with
/// launches, like the list of `store`, and becomes scratch of exec.device_workspace.
template <class T>
Placed<T> place(const Exec& exec, std::span<const T> list) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (exec.place != Place::cuda) return {list, list.data()};
  if (list.size() == 1) return {list, nullptr};
  const auto copy = scratch_of(exec).take<T>(list.size());
  store(exec, std::as_writable_bytes(copy), std::as_bytes(list));
  return {list, copy.data()};
}

/// A word in the memory of exec.place: free on the host, one wait on a device.
template <class T>
T read(const Exec& exec, const T* word) {
  if (exec.place != Place::cuda) return *word;
  T said;
  read(exec, std::as_writable_bytes(std::span(&said, 1)), std::as_bytes(std::span(word, 1)));
  return said;
}

/// The answer that an operation leaves in a word of zero: `ask(word)` runs or enqueues it. Waits,
/// as read does, and on a device takes the word from exec.device_workspace.
template <class Ask>
std::uint32_t answer(const Exec& exec, const Ask& ask) {
  if (exec.place != Place::cuda) {
    std::uint32_t said = 0;
    ask(&said);
    return said;
  }
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const auto word = take_zeros<std::uint32_t>(exec, 1);
  ask(word.data());
  return read(exec, word.data());
}

/// Owns zero-initialised memory of a place for `T`; empty by default. Ending one of device memory
/// waits for the device.
template <class T>
class PlaceArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  PlaceArray() = default;
  /// `source`, if not null: memory that kernels of exec.place reach, instead of exec.place's own.
  PlaceArray(const Exec& exec, std::size_t count, const MemorySource* source = nullptr)
      : PlaceArray(source != nullptr ? *source : memory_of(exec.place), count) {
    zero(exec, std::as_writable_bytes(span()));
  }

  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  std::span<T> span() { return {data(), count_}; }
  std::span<const T> span() const { return {data(), count_}; }

 private:
  PlaceArray(const MemorySource& source, std::size_t count)
      : memory_(source.allocate(count * sizeof(T)), Release{source.release}), count_(count) {}
  T* data() const { return reinterpret_cast<T*>(memory_.get()); }

  struct Release {
    void (*release)(std::byte* memory) noexcept = nullptr;
    void operator()(std::byte* memory) const noexcept { release(memory); }
  };
  std::unique_ptr<std::byte, Release> memory_;
  std::size_t count_ = 0;
};

}  // namespace winnow::kernels
