// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace winnow::comm {

/// The launcher's words in the environment that are equal on all ranks of this job and that no
/// other job on a host has at the same time; TcpMeeting::from_environment names the variables. One
/// line.
std::string job_of_launcher();

}  // namespace winnow::comm
