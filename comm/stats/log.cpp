// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/stats/log.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ostream>

#include "comm/stats/fields.hpp"
#include "comm/stats/table.hpp"

namespace winnow::comm {

DebugLog& DebugLog::begin() {
  line_.clear();
  return add("winnow[").add(static_cast<std::uint64_t>(rank_)).add("]: ");
}

DebugLog& DebugLog::add(std::string_view text) {
  line_ += text;
  return *this;
}

DebugLog& DebugLog::add(std::uint64_t number, int base) {
  std::array<char, 20> text;
  line_.append(text.data(), std::to_chars(text.begin(), text.end(), number, base).ptr);
  return *this;
}

DebugLog& DebugLog::milliseconds(double seconds) {
  std::array<char, 64> text;
  const int size = std::snprintf(text.data(), text.size(), "%.3f", 1000 * seconds);
  return add({text.data(), static_cast<std::size_t>(size)});
}

void DebugLog::write() {
  std::ranges::replace(line_, '\n', ' ');
  line_ += '\n';
  out_.write(line_.data(), static_cast<std::streamsize>(line_.size())).flush();
}

void DebugLog::write_plan(const Bucket& bucket, const BucketStats& stats) {
  begin().add("bucket ");
  append_label(line_, stats);
  add(": ").add(bucket.count).add(" elements, ").add(stats.compressed).add(" of them compressed; ");
  const bool is_plain = bucket.compressor == nullptr;  // which travels as one
  add(is_plain ? 1 : bucket.parts.size()).add(" parts: ").add(bucket.words.schedule);
  if (!bucket.words.coding.empty()) add(" of ").add(bucket.words.coding);
  add("; ")
      .add(bucket.costs.wire_bytes)
      .add(" bytes a call, dense ")
      .add(bucket.costs.dense_wire_bytes);
  add("; ").add(bucket.words.reason).write();
}

void DebugLog::write_call(std::uint64_t number, const BucketStats& bucket, const Stats& call) {
  begin().add("call ").add(number).add(", bucket ");
  append_label(line_, bucket);
  add(": ").add(call.kept).add(" of ").add(call.count).add(" elements kept, ");
  add(call.wire_bytes).add(" bytes sent; ms: ");
  std::string_view comma;
  for (const StatsStage& stage : kStages) {
    add(comma).add(stage.name).add(" ").milliseconds(call.*stage.seconds);
    comma = ", ";
  }
  if (call.poisoned > 0) add("; poisoned");
  if (call.clipped > 0) add("; clipped");
  if (call.digest != 0) add("; digest ").add(call.digest, 16);
  write();
}

void DebugLog::broken(const Failure& why) {
  if (level_ < 1) return;
  begin().add("broken, no call is possible any more: ");
  add(why.kind == FailureKind::usage ? "usage error: " : "").add(why.text).write();
}

}  // namespace winnow::comm
