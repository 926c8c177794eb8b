// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <winnow/stats.hpp>

#include "comm/plan/bucket.hpp"
#include "comm/transport/failure.hpp"

namespace winnow::comm {

/// The lines that Options::debug asks for. Each begins "winnow[RANK]: " and is one out.write, so
/// that lines of different ranks do not mix. One thread at a time; allocates only until a line of
/// each length has been written.
class DebugLog {
 public:
  DebugLog(int level, int rank, std::ostream& out)
      : level_(rank == 0 || level >= 3 ? level : 0), rank_(rank), out_(out) {}

  /// Level 1: a bucket's plan, at its first call.
  void plan(const Bucket& bucket, const BucketStats& stats) {
    if (level_ >= 1) write_plan(bucket, stats);
  }
  /// Level 2: what a call did, after `number` earlier calls.
  void call(std::uint64_t number, const BucketStats& bucket, const Stats& call) {
    if (level_ >= 2) write_call(number, bucket, call);
  }
  /// Level 1: no more calls are possible.
  void broken(const Failure& why);

 private:
  void write_plan(const Bucket& bucket, const BucketStats& stats);
  void write_call(std::uint64_t number, const BucketStats& bucket, const Stats& call);
  DebugLog& begin();
  DebugLog& add(std::string_view text);
  DebugLog& add(std::uint64_t number, int base = 10);
  DebugLog& milliseconds(double seconds);
  void write();

  int level_, rank_;
  std::ostream& out_;
  std::string line_;
};

}  // namespace winnow::comm
