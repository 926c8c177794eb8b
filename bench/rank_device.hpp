// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <winnow/exec.hpp>

namespace winnow::bench {

/// A rank's GPU and stream for its buckets. The build picks a device of CUDA (rank_device_cuda.cpp)
/// or none (rank_device_without_cuda.cpp).
class RankDevice {
 public:
  /// Makes a device current on this thread: a node's ranks, numbered from 0, take devices in turn.
  /// UsageError if there is none.
  explicit RankDevice(int rank_of_node);
  ~RankDevice();
  RankDevice(RankDevice&&) noexcept;

  int number() const;  ///< CUDA's number
  Exec exec() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A CUDA graph of what `work` enqueues on a rank's stream. The build picks its file, as for
/// RankDevice.
class RankGraph {
 public:
  RankGraph(const Exec& where, const std::function<void()>& work);
  ~RankGraph();
  RankGraph(RankGraph&&) noexcept;

  /// Enqueues the graph on the stream again.
  void launch() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow::bench
