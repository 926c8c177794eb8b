// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <winnow/transport.hpp>

namespace winnow::comm {
struct TcpPorts;  // not public, hence outside the visibility pragma
}

#pragma GCC visibility push(default)

namespace winnow {

// Transports over TCP: ranks are processes (or threads) on Linux hosts that reach each other over
// IPv4 or IPv6; within a machine they use shared memory. Messages lie in host memory.
//
// Errors. A rank whose process ends, or whose transport fails or is aborted, is a CommError on all
// others at once, with its reason; a host that stops answering, after TcpOptions::host_timeout. A
// rank that destroys its transport has left: what it sent still arrives, and only who waits for
// more from it fails. A process that exits without destroying its transport counts as dead.
//
// Threads. One at a time may call a transport, but any may call abort(), during another's call too.
// A wait polls for some microseconds, then sleeps.
//
// Trust. Ranks know each other by a secret that all of them have (TcpOptions::secret) and that
// never travels: HMAC-SHA-256, by OpenSSL's libcrypto, proves each note by which ranks meet,
// connect, abort and leave. Data without a proof is dropped and is no error of the job. Without a
// secret, whoever reaches a meeting can join it; who only knows a TcpListener's port cannot.
// checksum=all proves each message, too, if there is a secret. Nothing is encrypted unless
// TcpOptions::tls says so: then all between hosts is, but for the meeting and the greetings, which
// hold addresses, the job's name and ranks.
//
// Forks. A child keeps no connection, and must not use the transport.
//
// Duplicates are new connections with the same TcpOptions: ranks exchange the addresses of new
// listeners over the transport itself, so they need no store.

/// TLS 1.3 between hosts, for messages and for notes, by OpenSSL's libssl, which the process loads
/// when it is asked for: UsageError where it is missing. Equal on all ranks, but for the files'
/// names.
struct TcpTls {
  enum class Mode : std::uint32_t {
    off,           ///< nothing is encrypted
    secret,        ///< a key for each connection from TcpOptions::secret, and an ephemeral exchange
    certificates,  ///< each rank shows one of an authority that all of them trust
  };
  Mode mode = Mode::off;
  /// PEM files, for Mode::certificates: this rank's certificate with the chain behind it and its
  /// key, and the authorities whose certificates it accepts, whatever name they are for. Its own
  /// must be one of these. Read once; duplicates of a transport need them no more.
  std::string certificate = {}, key = {}, authority = {};
};

/// How a rank listens for the others.
struct TcpOptions {
  /// Names of the network interfaces to use, comma-separated; empty: all that are up.
  std::string interfaces;
  /// Seconds without any answer from a peer's host after which the peer counts as gone; from 1 on.
  double host_timeout = 20;
  /// The job's secret: any bytes, best 32 random ones. Empty: none, and rank 0 warns on stderr if
  /// it listens beyond its own machine. Needs OpenSSL's libcrypto at run time: UsageError where it
  /// is missing.
  std::string secret = {};
  TcpTls tls = {};
  /// Where a rank may listen for connections, for a firewall: "29600-29699", both included; empty:
  /// the system chooses. A rank holds a port for each address of its host only while ranks connect.
  /// The port of a TcpMeeting is left to it.
  std::string ports = {};

  /// The defaults, with `interfaces` from WINNOW_SOCKET_IFNAME and `ports` from WINNOW_TCP_PORTS,
  /// if these are set, and `secret` from WINNOW_TCP_SECRET or from the file that
  /// WINNOW_TCP_SECRET_FILE names, less the ends of lines behind it. `tls.mode` from WINNOW_TCP_TLS
  /// (off, secret or certificates), its files from WINNOW_TCP_TLS_CERTIFICATE, _KEY and _AUTHORITY.
  /// Throws UsageError if both secrets are set, or one is set to nothing; and for another word than
  /// these three.
  static TcpOptions from_environment();
};

/// Where one rank of a new world can be reached. Make one on each rank, pass its address to all
/// ranks through any store, and connect:
///
///   TcpListener listener;
///   store.set("winnow/" + std::to_string(rank), listener.address());
///   for (int r = 0; r < size; ++r) addresses.push_back(store.get("winnow/" + std::to_string(r)));
///   auto transport = listener.connect(rank, addresses, Deadline::after(60s));
///
/// An address has a random number by which ranks know each other: whoever has read neither the
/// store nor what ranks send cannot join. If the constructor throws, pass the text of its error in
/// place of an address: the others' connect() shows it instead of waiting for this rank.
class TcpListener {
 public:
  /// Listens at a free port of every address of the interfaces. Throws UsageError for an interface
  /// that does not exist and for ports that are all taken, CommError if the system refuses.
  explicit TcpListener(const TcpOptions& options = TcpOptions::from_environment());
  TcpListener(TcpListener&&) noexcept;
  TcpListener& operator=(TcpListener&&) noexcept;
  ~TcpListener();

  /// One line of text without blanks, the same until the end of the listener.
  const std::string& address() const { return address_; }

  /// The transport of rank `rank`. addresses[r]: the address of rank r; all ranks pass the same
  /// list. Collective, and once: the listener then listens no more, whatever the outcome. Two
  /// connections are made to each peer. Connections of strangers are closed. Throws UsageError if
  /// the list is not of addresses or does not hold this one at `rank`, or if ranks pass different
  /// lists; CommError at the deadline, naming the ranks that did not come. One rank's error is an
  /// error on all.
  std::unique_ptr<Transport> connect(int rank, std::span<const std::string> addresses,
                                     Deadline deadline);

 private:
  TcpOptions options_;
  std::string address_;
  std::unique_ptr<comm::TcpPorts> ports_;  // null once connected
};

/// A meeting point for ranks without a store: rank 0 listens where all look for it. It listens on
/// the interfaces of TcpOptions; on loopback alone if `host` is "localhost" or a number of
/// loopback.
struct TcpMeeting {
  std::string host;  ///< name or number of rank 0's host
  /// 0: the first free one of the kPorts ports from kDefaultPort on, from a place in this range
  /// that the job decides. Any other number is that port alone.
  int port = 0;
  int rank = 0, size = 1;
  /// Equal on the ranks of one job, and no other's. Ranks of another job, or size, that come to the
  /// same port are sent away, and neither job is disturbed. Empty: what from_environment() reads.
  std::string job = {};
  /// Null, or a number that is 0. If another thread changes it while ranks are still to come, the
  /// meeting throws CommError and listens no more; ranks that have come to rank 0 learn of it.
  const std::atomic<std::int32_t>* stop = nullptr;
  /// Not empty: why this rank cannot know the rest. tcp_transport() throws it as a UsageError, on
  /// all ranks that it finds.
  std::string problem = {};

  static constexpr int kDefaultPort = 29555, kPorts = 16;
  /// torchrun's RANK, WORLD_SIZE and MASTER_ADDR, and WINNOW_TCP_PORT. Its MASTER_PORT is taken by
  /// its own store. The job is WINNOW_TCP_JOB or, if that is not set, what launchers say of it:
  /// torchrun's TORCHELASTIC_RUN_ID, MASTER_PORT and, of a single agent,
  /// TORCHELASTIC_RESTART_COUNT; SLURM_JOB_ID, PBS_JOBID, LSB_JOBID and FLUX_JOB_ID; without
  /// torchrun also SLURM_STEP_ID and PMIx's PMIX_NAMESPACE. Throws UsageError if one of the first
  /// three is missing or is no number; a WINNOW_TCP_PORT that is none is a `problem`.
  static TcpMeeting from_environment();
};

/// Meets, then connects as a TcpListener. Collective. Ranks may come in any order. Throws
/// UsageError for a rank that is not of the size, and CommError on a rank whose number another
/// process has already, while the others go on; otherwise as TcpListener. If options or variables
/// of one rank do not let it listen (an interface, a port, a file of TLS), every rank throws its
/// error, which names it, when it has come to the meeting; the rank itself waits up to its deadline
/// to tell the others. With a wrong port, or a job of several lines, it looks for them for 5
/// seconds at most, by the first line and at the ports by default. It alone throws if its secret
/// cannot be read or used: it could prove nothing to them.
std::unique_ptr<Transport> tcp_transport(const TcpMeeting& meeting, Deadline deadline,
                                         const TcpOptions& options);
/// With TcpOptions::from_environment().
std::unique_ptr<Transport> tcp_transport(const TcpMeeting& meeting, Deadline deadline);

}  // namespace winnow

#pragma GCC visibility pop
