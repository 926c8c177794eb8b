// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/acceptor.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "comm/transport/tcp/endpoint.hpp"

namespace winnow::comm {
namespace {

constexpr std::size_t kMostStrangers = 256;

}  // namespace

void Acceptor::accept_all() {
  for (const Socket& listening : listening_) {
    for (;;) {
      Socket socket = accept_from(listening);
      if (!socket.is_open() && has_too_many_files(errno)) {
        const int code = errno;
        if (connections_.size() <= most_of_ranks_ || !drop_stranger()) fail_for_files(what_, code);
        continue;
      }
      if (!socket.is_open()) break;
      if (connections_.size() >= kMostStrangers + most_of_ranks_) drop_stranger();
      connections_.push_back({.channel = NoteChannel(std::move(socket), NoteChannel::End::accepted,
                                                     credentials_, most_text_)});
    }
  }
}

/// False if there is none.
bool Acceptor::drop_stranger() {
  const auto first = std::ranges::find(connections_, false, &AcceptedConnection::greeted);
  if (first == connections_.end()) return false;
  connections_.erase(first);
  return true;
}

}  // namespace winnow::comm
