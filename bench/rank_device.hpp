// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace winnow::bench
