// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include <winnow/tcp.hpp>

namespace winnow::tests {

/// What connects the ranks of one machine.
enum class TcpWay : std::uint8_t {
  shared,   ///< as a user gets it: shared memory
  sockets,  ///< Unix sockets, as where the system has no such memory
  inet,     ///< TCP, as between machines
  tls,      ///< TLS over it
};

/// TCP transports of `ranks` ranks, all in this process, by this secret or none; element i is rank
/// i's.
std::vector<std::unique_ptr<Transport>> tcp_transports(int ranks, TcpWay way = TcpWay::shared,
                                                       const std::string& secret = {});

/// The TCP job of which this process is a rank, by the environment that processes.sh sets.
class TcpJob {
 public:
  TcpJob();
  int rank() const { return first_->rank(); }
  int ranks() const { return first_->size(); }
  /// A new transport over all ranks; collective.
  std::unique_ptr<Transport> connect() const;

 private:
  std::unique_ptr<Transport> first_;  // carries the addresses of the others
};

}  // namespace winnow::tests
