// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <winnow/error.hpp>

#include "winnow/nccl.hpp"

namespace winnow {
namespace {

[[noreturn]] void refuse() {
  fail_usage(
      "this Winnow was built without NCCL; take mpi_transport or local_transports, and host "
      "memory");
}

}  // namespace

bool nccl_available() {
  return false;
}

std::unique_ptr<Transport> nccl_transport(ncclComm*, int, const NcclOptions&, Deadline) {
  refuse();
}

std::unique_ptr<Transport> nccl_transport(Transport&, Deadline, const NcclOptions&) {
  refuse();
}

std::unique_ptr<Transport> nccl_transport(const NcclMeeting&, Deadline, const NcclOptions&) {
  refuse();
}

}  // namespace winnow
