// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/share.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/poll.hpp"

namespace winnow::comm {
namespace {

constexpr std::size_t kDescriptors = 2;  // the ring's memory and the bell
constexpr char kRing = 'r', kNoRing = 'n';

/// A message of one byte with room for descriptors. Not copied: it points into itself.
class Parcel {
 public:
  Parcel() {
    header_.msg_iov = &byte_;
    header_.msg_iovlen = 1;
    header_.msg_control = control_.data();
    header_.msg_controllen = control_.size();
  }
  Parcel(const Parcel&) = delete;
  Parcel& operator=(const Parcel&) = delete;

  bool send(const Socket& socket, const SharedRing& ring, const Socket& bell) {
    content_ = ring.is_open() ? kRing : kNoRing;
    if (ring.is_open()) {
      const std::array descriptors{ring.memory().get(), bell.get()};
      cmsghdr* const rights = CMSG_FIRSTHDR(&header_);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof descriptors);
      std::memcpy(CMSG_DATA(rights), descriptors.data(), sizeof descriptors);
    } else {
      header_.msg_controllen = 0;
    }
    return ::sendmsg(socket.get(), &header_, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
  }
  /// False if nothing has come; errno says whether something will.
  bool receive(const Socket& socket) {
    header_.msg_controllen = control_.size();
    const ::ssize_t got = ::recvmsg(socket.get(), &header_, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got == 0) errno = ECONNRESET;
    return got == 1;
  }
  /// The ring that came, or none, and its sender's bell.
  SharedRing ring(Socket& bell) {
    // The system drops descriptors for which the process has no room.
    if ((header_.msg_flags & MSG_CTRUNC) != 0) fail_for_files("sharing memory", EMFILE);
    cmsghdr* const rights = CMSG_FIRSTHDR(&header_);
    if (rights == nullptr || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS ||
        rights->cmsg_len != CMSG_LEN(kDescriptors * sizeof(int)))
      return {};
    std::array<int, kDescriptors> descriptors{};
    std::memcpy(descriptors.data(), CMSG_DATA(rights), sizeof descriptors);
    bell = Socket(descriptors[1]);
    return SharedRing::map(Socket(descriptors[0]));
  }
  bool is_none() const { return content_ == kNoRing; }

 private:
  char content_ = kNoRing;
  iovec byte_{&content_, 1};
  msghdr header_{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptors * sizeof(int))> control_{};
};

/// Throws why a peer shares no memory: what it said of it, or the system's `code`.
[[noreturn]] void fail_for(const std::string& who, TcpLink& link, int code) {
  const bool has_aborted = link.control.read() == NoteReader::Outcome::complete &&
                           link.control.kind() == NoteKind::abort;
  if (has_aborted) {
    const Failure why = failure_in(link.control.text());
    fail_by({who + ": " + why.text, why.kind});
  }
  fail_system(who + " shares no memory", code);
}

}  // namespace

void share_memory(std::span<TcpLink> links, const Socket& bell, Deadline deadline) {
  const auto is_shared = [](const TcpLink& link) {
    return link.data.is_open() && Endpoint::of(link.data.socket()).family() == AF_UNIX;
  };
  const auto name_of = [](std::size_t peer) { return "rank " + std::to_string(peer); };
  for (std::size_t peer = 0; peer < links.size(); ++peer) {
    TcpLink& link = links[peer];
    if (!is_shared(link)) continue;
    link.out = SharedRing::make();
    if (!link.out.is_open() && has_too_many_files(errno)) fail_for_files("sharing memory", errno);
    if (!Parcel().send(link.data.socket(), link.out, bell)) fail_for(name_of(peer), link, errno);
  }
  for (std::size_t peer = 0; peer < links.size(); ++peer) {
    TcpLink& link = links[peer];
    if (!is_shared(link)) continue;
    const std::string who = name_of(peer);
    Parcel parcel;
    const auto has_come = [&] {
      if (parcel.receive(link.data.socket())) return true;
      if (errno == EAGAIN || errno == EINTR) return false;
      fail_for(who, link, errno);
    };
    if (!sleep_until(has_come, deadline))
      fail_at_deadline("while it waited for the memory of " + who);
    Socket theirs;
    link.in = parcel.ring(theirs);
    if (link.in.is_open() == parcel.is_none())
      throw CommError(who + " shares something that is no ring of messages");
    if (link.in.is_open() && link.out.is_open()) {
      link.out.set_bell(Socket(::fcntl(theirs.get(), F_DUPFD_CLOEXEC, 0)));
      link.in.set_bell(std::move(theirs));
    } else {  // the other rank comes to the same result
      link.in = SharedRing();
      link.out = SharedRing();
    }
  }
}

}  // namespace winnow::comm
