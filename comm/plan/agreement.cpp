// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/agreement.hpp"

#include <algorithm>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "comm/plan/differences.hpp"
#include "comm/transport/failure.hpp"
#include "comm/transport/printable.hpp"
#include "kernels/checksum.hpp"

namespace winnow::comm {
namespace {

using compress::Header;

std::uint64_t checksum_of(const Exec& exec, Header header) {
  header.checksum = 0;
  std::uint64_t sum = 0;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  kernels::checksums(exec, {{bytes}}, &sum);
  return sum;
}

/// How `other` differs from `mine`, or empty.
std::string difference(const Header& mine, const Header& other) {
  const auto text = [](std::string_view what, std::uint64_t theirs, std::uint64_t ours) {
    return std::string(what) + " (" + std::to_string(theirs) + " there, " + std::to_string(ours) +
           " here)";
  };
  if (other.version != mine.version) return text("message version", other.version, mine.version);
  if (other.digest != mine.digest) return "its options";
  if (other.call != mine.call) return text("the number of calls before", other.call, mine.call);
  if (other.count != mine.count) return text("the count of elements", other.count, mine.count);
  if (other.k != mine.k) return text("the elements to be sent", other.k, mine.k);
  if (other.bucket != mine.bucket)
    return "parameter ids, their counts and types, which are exempt, or the operation";
  return {};
}

/// The count of a refusal is the number of bytes in its words, 0 if there was no memory for them.
bool is_refusal(const Header& header) {
  return (header.flags & Header::kRefused) != 0;
}
bool is_mute(const Header& header) {
  return is_refusal(header) && header.count == 0;
}

/// Room for the words of all ranks.
std::vector<std::string> room_for_words(std::size_t ranks) {
  // All of one length, for transports on which sizes do not travel.
  return std::vector<std::string>(ranks, std::string(kMostWords, '\0'));
}

/// Whether ranks that have sent these headers differ in what words can explain: all of them find
/// the same.
bool needs_words(std::span<const Header> all) {
  const Header& first = all.front();
  const auto is_other = [&](const Header& header) {
    return is_refusal(header) || !difference(first, header).empty();
  };
  const auto has_no_words = [&](const Header& header) {
    return header.version != first.version || is_mute(header);
  };
  return std::ranges::any_of(all, is_other) && std::ranges::none_of(all, has_no_words);
}

/// All ranks' words: why some refuse, if any does; else of their options if those differ, else of
/// their buckets.
class EachOnesWords {
 public:
  /// An all-gather if `all` needs_words, and else nothing that could fail. Without words if that
  /// fails: the ranks differ anyway.
  EachOnesWords(Transport& world, const Exec& exec, std::span<const Header> all,
                const OwnWords& mine, std::vector<std::string> room, Deadline deadline)
      : by_rank_(std::move(room)) {
    if (all.size() == 1 || !needs_words(all)) {
      by_rank_.clear();
      return;
    }
    const auto has_other_options = [&](const Header& h) { return h.digest != all[0].digest; };
    const bool of_refusals = std::ranges::any_of(all, is_refusal);
    of_options_ = !of_refusals && std::ranges::any_of(all, has_other_options);
    const bool of_buckets = !of_refusals && !of_options_ && mine.bucket != nullptr;
    try {
      const std::string bucket = of_buckets ? mine.bucket() : std::string();
      gather(world, exec,
             of_refusals   ? mine.refusal
             : of_options_ ? mine.options
                           : std::string_view(bucket),
             deadline);
    } catch (const CommError&) {
      by_rank_.clear();
    } catch (const std::bad_alloc&) {
      by_rank_.clear();
      world.abort("no memory left");  // for which the others would wait
    }
  }

  /// Why `peer` refuses, or empty.
  std::string refusal(std::size_t peer) const {
    return by_rank_.empty() ? std::string() : printable(by_rank_[peer]);
  }
  /// More of how `peer` differs from `self`, or empty.
  std::string more(std::size_t peer, std::size_t self) const {
    if (by_rank_.empty()) return {};
    const std::vector<std::string_view> all(by_rank_.begin(), by_rank_.end());
    return of_options_ ? option_differences(all) : first_difference(all[peer], all[self]);
  }

 private:
  void gather(Transport& world, const Exec& exec, std::string_view own, Deadline deadline) {
    const auto size = static_cast<std::size_t>(world.size());
    const auto self = static_cast<std::size_t>(world.rank());
    std::vector<std::uint64_t> received(size);
    if (by_rank_.empty()) by_rank_ = room_for_words(size);
    std::ranges::copy(own.substr(0, kMostWords), by_rank_[self].begin());
    for (std::size_t peer = 0; peer < size; ++peer) {
      if (peer == self) continue;
      world.send(std::as_bytes(std::span(by_rank_[self])), static_cast<int>(peer));
      world.recv(std::as_writable_bytes(std::span(by_rank_[peer])), static_cast<int>(peer),
                 &received[peer]);
    }
    world.wait(world.start(exec), deadline);
    for (std::string& words : by_rank_) words.resize(std::min(words.find('\0'), words.size()));
  }

  std::vector<std::string> by_rank_;  // empty: there are none
  bool of_options_ = false;
};

/// Why ranks that have sent these headers cannot go on, or empty.
std::string disagreement(std::span<const Header> all, std::size_t self,
                         const EachOnesWords& words) {
  for (std::size_t peer = 0; peer < all.size(); ++peer) {
    std::string text = "rank " + std::to_string(peer);
    if (is_refusal(all[peer])) {
      const std::string why = words.refusal(peer);
      return text.append(" refuses") +=
             why.empty() ? std::string("; its own error says why") : ": " + why;
    }
    const std::string differs = difference(all[self], all[peer]);
    if (differs.empty()) continue;
    text.append(" differs from rank ").append(std::to_string(self)) += " in " + differs;
    const std::string more = words.more(peer, self);
    return more.empty() ? text : text.append(": ") += more;
  }
  return {};
}

}  // namespace

std::string agree(Transport& world, const Exec& exec, Header mine, const OwnWords& words,
                  Deadline deadline) {
  const Workspace::Scope scope(*exec.workspace);
  mine.kind = Header::Kind::agreement;
  const auto size = static_cast<std::size_t>(world.size());
  std::vector<std::string> room;
  if (is_refusal(mine)) {
    mine.count = 0;
    try {  // now, since others will wait for words that it announces
      room = room_for_words(size);
      mine.count = words.refusal.size();
    } catch (const std::bad_alloc&) {
      // They learn that it refuses, but not why.
    }
  }
  mine.checksum = checksum_of(exec, mine);
  const auto self = static_cast<std::size_t>(world.rank());
  const auto all = exec.workspace->take<Header>(size);
  const auto received = exec.workspace->take<std::uint64_t>(size);
  all[self] = mine;
  for (std::size_t peer = 0; peer < size; ++peer) {
    if (peer == self) continue;
    world.send(std::as_bytes(all.subspan(self, 1)), static_cast<int>(peer));
    world.recv(std::as_writable_bytes(all.subspan(peer, 1)), static_cast<int>(peer),
               &received[peer]);
  }
  world.wait(world.start(exec), deadline);

  for (std::size_t peer = 0; peer < size; ++peer) {
    if (peer == self) continue;
    const Header& other = all[peer];
    const bool sound = received[peer] == sizeof(Header) && other.magic == Header::kMagic &&
                       other.checksum == checksum_of(exec, other);
    if (sound && other.kind == Header::Kind::agreement) continue;
    const std::string text = "rank " + std::to_string(peer) + " does something else while rank " +
                             std::to_string(self) + " is in the first call of a bucket";
    const bool is_usage = sound || received[peer] != sizeof(Header);
    fail_by({text, is_usage ? FailureKind::usage : FailureKind::environment});
  }
  try {
    const EachOnesWords each(world, exec, all, words, std::move(room), deadline);
    return words.refusal.empty() ? disagreement(all, self, each) : std::string(words.refusal);
  } catch (const std::bad_alloc&) {  // the others know that they cannot go on
    return "no memory left";
  }
}

}  // namespace winnow::comm
