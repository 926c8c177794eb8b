// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/acceptor.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace winnow::comm {
namespace {

constexpr std::size_t kMostIncoming = 256;  // besides those of all ranks

}  // namespace

void Acceptor::accept_all() {
  for (const Socket& listening : ports_.sockets) {
    for (;;) {
      Socket socket = accept_from(listening);
      if (!socket.is_open() && has_too_many_files(errno)) {
        const int code = errno;
        // Ranks alone do not make more than two each at a time: these may be theirs.
        if (connections_.size() <= 2 * ranks_ || !drop_stranger())
          fail_for_files("accepting the connection of a rank", code);
        continue;
      }
      if (!socket.is_open()) break;
      if (connections_.size() >= kMostIncoming + 2 * ranks_) drop_stranger();
      connections_.push_back({.channel = NoteChannel(std::move(socket), NoteChannel::End::accepted,
                                                     credentials_, Greeting::kMostText)});
    }
  }
}

/// The one that has waited longest; it comes again if it is a rank's. False if there is none.
bool Acceptor::drop_stranger() {
  const auto first = std::ranges::find(connections_, false, &Incoming::greeted);
  if (first == connections_.end()) return false;
  connections_.erase(first);
  return true;
}

void Acceptor::close() {
  ports_.sockets.clear();
  connections_.clear();
}

}  // namespace winnow::comm
