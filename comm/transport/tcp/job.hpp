// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace winnow::comm {

/// What this job's launcher says in the environment that no other job on a host says at the same
/// time and all ranks of the job say alike; TcpMeeting::from_environment names the variables. One
/// line.
std::string job_of_launcher();

}  // namespace winnow::comm
