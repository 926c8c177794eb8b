// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <winnow/tcp.hpp>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// Sets the rest of options that hold the job's secret. Throws UsageError.
using ReadOptions = std::function<void(TcpOptions& options)>;

/// tcp_transport() with options that `read` completes. If it throws, or this rank cannot listen as
/// the options say, all ranks of the meeting throw the same (RankFailure).
std::unique_ptr<Transport> tcp_transport_by(const TcpMeeting& meeting, Deadline deadline,
                                            TcpOptions options, const ReadOptions& read);

}  // namespace winnow::comm
