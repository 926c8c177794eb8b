// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <cstddef>

// Functions of NCCL that the nccl.h of NCCL 2.18 does not declare.
extern "C" {
ncclResult_t ncclCommRegister(ncclComm_t comm, void* buff, std::size_t size, void** handle);
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle);
}
