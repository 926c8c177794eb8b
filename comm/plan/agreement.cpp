// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/agreement.hpp"

#include <cstring>
#include <new>
#include <span>
#include <string>
#include <winnow/error.hpp>

#include "comm/transport/failure_latch.hpp"
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
  const auto text = [](std::string_view what, std::uint64_t there, std::uint64_t here) {
    return std::string(what) + " (" + std::to_string(there) + " there, " + std::to_string(here) +
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

/// Why ranks that have sent these headers cannot go on, or empty.
std::string disagreement(std::span<const Header> all, std::size_t self) {
  for (std::size_t peer = 0; peer < all.size(); ++peer) {
    std::string text = "rank " + std::to_string(peer);
    if ((all[peer].flags & Header::kRefused) != 0)
      return text.append(" refuses this bucket; its own error says why");
    const std::string differs = difference(all[self], all[peer]);
    if (differs.empty()) continue;
    return text.append(" differs from rank ").append(std::to_string(self)) += " in " + differs;
  }
  return {};
}

}  // namespace

std::string agree(Transport& world, const Exec& exec, Header mine, std::string_view refusal,
                  Deadline deadline) {
  const Workspace::Scope scope(*exec.workspace);
  mine.kind = Header::Kind::agreement;
  mine.checksum = checksum_of(exec, mine);
  const auto size = static_cast<std::size_t>(world.size());
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
    throw CommError(sound || received[peer] != sizeof(Header) ? usage_reason(text) : text);
  }
  try {
    return refusal.empty() ? disagreement(all, self) : std::string(refusal);
  } catch (const std::bad_alloc&) {  // the others know that they cannot go on
    return "no memory left";
  }
}

}  // namespace winnow::comm
