// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/tcp.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/abort_on_error.hpp"
#include "comm/transport/failure_latch.hpp"
#include "comm/transport/message_keys.hpp"
#include "comm/transport/message_transport.hpp"
#include "comm/transport/occupancy.hpp"
#include "comm/transport/poll.hpp"
#include "comm/transport/tcp/abort_request.hpp"
#include "comm/transport/tcp/event_poll.hpp"
#include "comm/transport/tcp/notices.hpp"
#include "comm/transport/tcp/peer.hpp"

namespace winnow::comm {
namespace {

// epoll reports a socket once when it becomes readable or writable (EPOLLET), so the set of sockets
// never changes, and a flag of each says what it was last.

constexpr int kMostUnsent = 1 << 20;  // bytes that the kernel keeps for a peer beyond its window
constexpr unsigned kPollsBeforeSleep = 50;
constexpr std::chrono::milliseconds kLastWords{200};  // for a peer to say why its connection ended
constexpr int kShortly = 5;                           // milliseconds
constexpr int kNever = -1;                            // of epoll's timeouts

void set_socket_option(const Socket& socket, int level, int name, int value) {
  if (::setsockopt(socket.get(), level, name, &value, sizeof value) != 0)
    fail_system("setsockopt", errno);
}

// Only control connections are watched so: TCP_USER_TIMEOUT would also end a connection whose peer
// is alive and does not read for long, as a rank that computes does not.
void watch_host(const Socket& control, double timeout) {
  constexpr int kProbes = 3;
  const int pause = std::max(1, static_cast<int>(timeout / (kProbes + 1)));  // seconds
  set_socket_option(control, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_socket_option(control, IPPROTO_TCP, TCP_KEEPIDLE, pause);
  set_socket_option(control, IPPROTO_TCP, TCP_KEEPINTVL, pause);
  set_socket_option(control, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_socket_option(control, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(1000 * timeout));
}

/// Milliseconds until the deadline, rounded up, for epoll_wait.
int timeout_of(Deadline deadline) {
  if (deadline.at() == Deadline::never().at()) return kNever;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline.at() - Deadline::Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, INT_MAX));
}

class TcpTransport final : public GrowingTransport, public MessageKeys {
 public:
  TcpTransport(int rank, const std::vector<int>& nodes, std::vector<TcpLink> links, Socket bell,
               const TcpSettings& settings);
  ~TcpTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  int node() const override { return node_; }
  bool allows_threads() const override { return true; }

  Ticket start(const Exec& exec) override;
  void wait(Ticket ticket, Deadline deadline) override;
  bool test(Ticket ticket, Deadline deadline) override { return look(ticket, deadline, 0); }
  void progress() override;
  void abort(std::string_view reason, FailureKind kind) noexcept override;
  std::unique_ptr<Transport> duplicate(Deadline deadline) override;
  Credentials message_key(int peer) const override { return notices_.message_key(peer); }

 private:
  struct LostLink {
    int rank;
    std::string problem;
    Deadline patience;
  };

  void open(std::vector<TcpLink>& links);
  TcpPeer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void enqueue(const Message& message) override;
  void move(int rank) {
    move_sends(rank);
    move_receipts(rank);
  }
  void move_what_has_no_event();
  bool set_sleeping_at_rings(bool sleeps);
  void move_sends(int to);
  bool try_sends(int to);
  void move_receipts(int from);
  void take_events(int timeout);
  bool look(Ticket ticket, Deadline deadline, int timeout);
  void expect_usable();
  void lose_link(int rank, const std::string& problem);
  void find_out_about(const LostLink& link);
  void fail_later(const std::optional<Failure>& why) {
    if (!pending_.failure) pending_.failure = why;
  }
  int waits_for();
  [[noreturn]] void fail(const Failure& why);
  [[noreturn]] void fail_at_deadline();

  int rank_, node_;
  TcpSettings settings_;
  std::vector<TcpPeer> peers_;  // by rank; this rank's own is unused
  TcpNotices notices_;
  EventPoll poll_;
  /// Peers whose messages move without an event.
  struct Silent {
    std::vector<int> with_rings;
    std::vector<int> unwritten;  // whose current send waits for more to be written
  };
  Silent silent_;

  TcpMessages messages_;      // of all lanes
  std::uint64_t linked_ = 0;  // number of the first message that no peer has

  /// The next wait that is not done throws the failure, or finds out about the link.
  struct Pending {
    std::optional<Failure> failure;     // why nothing more will complete
    std::optional<LostLink> lost_link;  // one of messages that ended before its rank said why
  };
  FailureLatch failure_;
  Pending pending_;
  AbortRequest abort_request_;
};

std::vector<NoteChannel> take_controls(std::vector<TcpLink>& links) {
  std::vector<NoteChannel> controls;
  for (TcpLink& link : links) controls.push_back(std::move(link.control));
  return controls;
}

TcpTransport::TcpTransport(int rank, const std::vector<int>& nodes, std::vector<TcpLink> links,
                           Socket bell, const TcpSettings& settings)
    : rank_(rank),
      node_(nodes[static_cast<std::size_t>(rank)]),
      settings_(settings),
      peers_(links.size()),
      notices_(take_controls(links)),
      poll_(std::move(bell)) {
  try {
    open(links);
  } catch (const Error& error) {
    notices_.send(NoteKind::abort, note_of(error));
    throw;
  }
}

void TcpTransport::open(std::vector<TcpLink>& links) {
  poll_.open();
  for (int other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    const auto name = 2 * static_cast<std::uint64_t>(other);
    TcpLink& link = links[static_cast<std::size_t>(other)];
    peer(other).open(link);
    if (peer(other).has_rings()) silent_.with_rings.push_back(other);
    if (Endpoint::of(notices_.control(other)).family() != AF_UNIX)
      watch_host(notices_.control(other), settings_.options.host_timeout);
    if (Endpoint::of(peer(other).data()).family() != AF_UNIX)
      set_socket_option(peer(other).data(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, kMostUnsent);
    poll_.watch(peer(other).data(), name, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    poll_.watch(notices_.control(other), name + 1, EPOLLIN | EPOLLRDHUP | EPOLLET);
  }
  silent_.unwritten.reserve(peers_.size());
}

void read_rest(const Socket& socket) {
  std::array<std::byte, 4096> rest;
  while (::recv(socket.get(), rest.data(), rest.size(), MSG_DONTWAIT) > 0) {
  }
}

// Sent data still arrives: the kernel sends it, unless something unread lies here when the
// connection is closed. After a failure only notes matter, and to read messages would let a peer
// believe that they were received.
TcpTransport::~TcpTransport() {
  if (failure_.forked()) return;
  notices_.send(NoteKind::leave, "");
  const bool failed = failure_.failed() || abort_request_.is_made();
  for (int other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    ::shutdown(peer(other).data().get(), SHUT_WR);
    if (!failed) read_rest(peer(other).data());
    ::shutdown(notices_.control(other).get(), SHUT_WR);
    read_rest(notices_.control(other));
  }
}

void TcpTransport::enqueue(const Message& message) {
  expect_usable();
  messages_.push({{message}, {.message_bytes = message.bytes}});
}

Ticket TcpTransport::start(const Exec& exec) {
  expect_usable();
  WINNOW_EXPECTS(takes(exec.place), "TCP takes no device memory: copy messages to the host");
  messages_.start();
  const std::uint64_t first = linked_;
  for (; linked_ != messages_.end(); ++linked_)
    peer(messages_[linked_].peer).append(messages_, linked_);
  // All of a peer's messages together: they go with one system call.
  for (std::uint64_t number = first; number != linked_; ++number) {
    const auto [to, is_send] = std::pair(messages_[number].peer, messages_[number].is_send);
    is_send ? move_sends(to) : move_receipts(to);
  }
  return {messages_.starts().last()};
}

void TcpTransport::move_sends(int to) {
  std::vector<int>& unwritten = silent_.unwritten;
  if (!try_sends(to) && std::ranges::find(unwritten, to) == unwritten.end())
    unwritten.push_back(to);
}

/// False if more of a message must be written first.
bool TcpTransport::try_sends(int to) {
  TcpPeer& other = peer(to);
  if (!other.send(messages_)) return false;
  const bool left = other.has_rings() && other.is_sending() && notices_.has_left(to);
  if (left || !other.send_problem().empty()) lose_link(to, other.send_problem());
  return true;
}

void TcpTransport::move_receipts(int from) {
  TcpPeer& other = peer(from);
  const bool left = other.has_rings() && notices_.has_left(from);  // and wrote before
  if (const std::string wrong = other.receive(messages_); !wrong.empty()) {
    fail_later(Failure{wrong, FailureKind::usage});
    return;
  }
  if (!other.is_receiving()) return;
  if (!other.receive_problem().empty() || (left && !other.can_read()))
    lose_link(from, other.receive_problem());
}

/// Moves growing messages, as far as they are written, and rings.
void TcpTransport::move_what_has_no_event() {
  std::erase_if(silent_.unwritten, [this](int to) { return try_sends(to); });
  for (const int other : silent_.with_rings) move(other);
}

/// Sets whether the other ends of rings ring. False if something can move: do not sleep then.
bool TcpTransport::set_sleeping_at_rings(bool sleeps) {
  bool may_sleep = true;
  for (const int rank : silent_.with_rings) may_sleep &= peer(rank).set_sleeping(sleeps);
  return may_sleep;
}

// Moves what can move, after up to `timeout` milliseconds if nothing can.
void TcpTransport::take_events(int timeout) {
  if (timeout != 0 && !set_sleeping_at_rings(true)) timeout = 0;
  std::optional<Failure> problem;
  const auto all = poll_.wait(timeout, problem);
  fail_later(problem);
  for (const auto& [events, data] : all) {
    const auto from = static_cast<int>(data.u64 / 2);
    if (data.u64 % 2 == 1) {
      fail_later(notices_.receive(from));
      notices_.answer(waits_for());
      if (peer(from).has_rings()) move(from);
      continue;
    }
    const bool ending = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (ending || (events & EPOLLIN) != 0) peer(from).set_readable(ending);
    if (ending || (events & EPOLLOUT) != 0) peer(from).set_writable();
    move(from);
  }
  if (timeout != 0) {
    set_sleeping_at_rings(false);
    move_what_has_no_event();
  }
}

// Whether a ticket is done, perhaps after up to `timeout` milliseconds.
bool TcpTransport::look(Ticket ticket, Deadline deadline, int timeout) {
  expect_usable();
  messages_.starts().expect_started(ticket);
  if (messages_.retire(ticket)) return true;
  move_what_has_no_event();
  if (messages_.retire(ticket)) return true;  // else it would sleep with nothing to wait for
  take_events(!pending_.lost_link || timeout == 0 ? timeout : kShortly);
  if (messages_.retire(ticket)) return true;
  expect_usable();
  if (pending_.lost_link) find_out_about(*pending_.lost_link);
  if (pending_.failure) fail(*pending_.failure);
  if (deadline.passed()) fail_at_deadline();
  return false;
}

/// The rank that this one waits for may itself wait for another one.
void TcpTransport::fail_at_deadline() {
  notices_.ask();
  const auto has_answers = [this] {
    take_events(0);
    return notices_.all_answered() || pending_.failure;
  };
  sleep_until(has_answers, Deadline::after(kLastWords));
  if (pending_.failure && pending_.failure->kind != FailureKind::deadline) fail(*pending_.failure);
  const int first = messages_[messages_.begin()].peer;
  fail(messages_.missed_deadline(notices_.reason_of_waiting(first)));
}

/// The rank for which this one waits first, or -1.
int TcpTransport::waits_for() {
  for (std::uint64_t n = messages_.begin(); n != linked_; ++n)
    if (!messages_[n].complete) return messages_[n].peer;
  return -1;
}

void TcpTransport::wait(Ticket ticket, Deadline deadline) {
  for (unsigned polls = 0;; ++polls) {
    if (look(ticket, deadline, polls < kPollsBeforeSleep ? 0 : timeout_of(deadline))) return;
  }
}

void TcpTransport::progress() {
  if (failure_.failed() || failure_.forked()) return;
  move_what_has_no_event();
  take_events(0);
  if (pending_.failure) fail(*pending_.failure);
}

void TcpTransport::abort(std::string_view reason, FailureKind kind) noexcept {
  if (failure_.forked()) return;  // the connections are the parent's
  abort_request_.make(aborted_here(reason, kind));
  notices_.send(NoteKind::abort, note_of(reason, kind));
  poll_.ring();
}

std::unique_ptr<Transport> TcpTransport::duplicate(Deadline deadline) {
  expect_usable();
  const Quiet quiet(*this);
  try {
    return tcp_transport_of(*this, settings_, deadline);
  } catch (const std::exception& error) {  // on this rank alone, perhaps: others would wait
    abort_by(*this, error);
    throw;
  }
}

void TcpTransport::expect_usable() {
  abort_request_.pass_on(failure_);
  failure_.expect_usable();
}

void TcpTransport::fail(const Failure& why) {
  failure_.keep(of_rank(rank_, why));
  notices_.send(NoteKind::abort, note_of(why));
  failure_.fail();
}

void TcpTransport::lose_link(int rank, const std::string& problem) {
  if (!pending_.lost_link) pending_.lost_link = {rank, problem, Deadline::after(kLastWords)};
}

// The other connection says why, perhaps a little later.
void TcpTransport::find_out_about(const LostLink& link) {
  const auto& [rank, problem, patience] = link;
  const std::string who = "rank " + std::to_string(rank);
  fail_later(notices_.receive(rank));
  if (notices_.has_left(rank)) fail_later(Failure{who + " has left: its transport was destroyed"});
  if (patience.passed()) fail_later(Failure{"the connection to " + who + ": " + problem});
}

}  // namespace

std::unique_ptr<Transport> tcp_transport_over(int rank, const std::vector<int>& nodes,
                                              std::vector<TcpLink> links, Socket bell,
                                              const TcpSettings& settings) {
  return std::make_unique<TcpTransport>(rank, nodes, std::move(links), std::move(bell), settings);
}

Socket make_bell() {
  Socket bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.is_open() && has_too_many_files(errno)) fail_for_files("eventfd", errno);
  if (!bell.is_open()) fail_system("eventfd", errno);
  return bell;
}

}  // namespace winnow::comm
