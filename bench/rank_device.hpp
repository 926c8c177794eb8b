// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <winnow/exec.hpp>

namespace winnow::bench {

/// The GPU that a rank's buckets lie on, and its stream there. By file: a device of CUDA
/// (rank_device_cuda.cpp), or none (rank_device_without_cuda.cpp).
class RankDevice {
 public:
  /// Makes the next device that of this thread: ranks of a node, numbered from 0, take them in
  /// turn. UsageError where there is none.
  explicit RankDevice(int rank_of_node);
  ~RankDevice();
  RankDevice(RankDevice&&) noexcept;

  int number() const;  ///< CUDA's
  Exec exec() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A CUDA graph of what `work` enqueues on a rank's stream. By file, as RankDevice.
class RankGraph {
 public:
  RankGraph(const Exec& where, const std::function<void()>& work);
  ~RankGraph();
  RankGraph(RankGraph&&) noexcept;

  /// Enqueues all of it on the stream again.
  void launch() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow::bench
