// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <string>
#include <vector>
#include <winnow/tcp.hpp>

#include "comm/transport/credentials.hpp"
#include "comm/transport/tcp/endpoint.hpp"
#include "comm/transport/tcp/note_channel.hpp"

namespace winnow::comm {

// How ranks meet without a store. Rank 0 listens at one of the meeting's ports. Another rank
// connects to it, and when both ends know each other's random number (NoteChannel), it sends a
// `join` with its rank and its address, a line each. Rank 0 answers at once with a `welcome`, and
// when all have come with the `list` of addresses, a line each; or with a `refusal`. All of these
// are proved by the credentials of the meeting, which the secret, the job and the size make: a
// visitor of another job or size cannot prove its join, and is dismissed.

/// The credentials of a meeting.
Credentials credentials_of(const TcpMeeting& meeting, const TcpOptions& options);
/// The ports at which rank 0 may listen, in the order in which all ranks try them.
std::vector<int> ports_of(const TcpMeeting& meeting, const Credentials& credentials);

/// Rank 0's end.
class MeetingHost {
 public:
  /// Throws UsageError if there is no such interface. `address`: rank 0's.
  MeetingHost(const TcpMeeting& meeting, const TcpOptions& options, const std::string& address);

  /// All ranks' addresses, by rank, which the others then know, too. Throws CommError at the
  /// deadline, naming the ranks that did not come; the others learn of it.
  std::vector<std::string> collect(Deadline deadline);

 private:
  struct Guest {
    NoteChannel channel;
    std::string address;  // empty: has not come
  };
  struct Visitor {
    NoteChannel channel;
    Deadline patience;
  };
  void listen(Deadline deadline);
  bool try_to_listen();
  bool try_to_listen_at(int port);
  void accept_all();
  void admit_all();
  bool admit(Visitor& visitor);
  std::string refusal_of(std::string_view join, int& rank, std::string& address);
  bool all_here();
  std::string missing() const;
  std::string strangers() const;
  void refuse_all(const std::string& why) noexcept;

  Credentials credentials_;
  std::vector<int> ports_;
  std::vector<Endpoint> endpoints_;  // at which it listens, but for the port
  std::vector<Socket> listening_;
  int port_ = 0;               // at which it listens
  int error_ = 0;              // why it does not
  std::vector<Guest> guests_;  // by rank
  std::list<Visitor> visitors_;
  int sent_away_ = 0;  // visitors without a good proof
};

}  // namespace winnow::comm
