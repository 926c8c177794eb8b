// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
//
// NCCL's functions, as far as Winnow calls them. Winnow does not link NCCL: it would not load where
// there is none, and a second copy in a process (PyTorch brings its own) would break the first.
// Instead the first call of each function finds it in the copy that the process has, or loads one.
#include <dlfcn.h>
#include <nccl.h>

#include <string>
#include <winnow/error.hpp>

#include "comm/transport/nccl/registration.hpp"

namespace {

constexpr const char* kName = "libnccl.so.2";

/// Never closed: NCCL has threads of its own.
void* library() {
  static void* const library = [] {
    if (void* const loaded = ::dlopen(kName, RTLD_NOW | RTLD_NOLOAD)) return loaded;
    // A program that links NCCL statically may export it.
    if (::dlsym(RTLD_DEFAULT, "ncclGetVersion") != nullptr) return ::dlopen(nullptr, RTLD_NOW);
    void* const found = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
    if (found == nullptr) winnow::fail_usage(std::string("NCCL cannot be loaded: ") + ::dlerror());
    return found;
  }();
  return library;
}

template <class Function>
Function* find(const char* name) {
  void* const found = ::dlsym(library(), name);
  if (found == nullptr) winnow::fail_usage("this NCCL is too old: it has no " + std::string(name));
  return reinterpret_cast<Function*>(found);
}

}  // namespace

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): nccl.h abbreviates

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  static auto* const function = find<decltype(ncclAllGather)>(__func__);
  return function(from, to, count, type, comm, stream);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  static auto* const function = find<decltype(ncclAllReduce)>(__func__);
  return function(from, to, count, type, op, comm, stream);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  static auto* const function = find<decltype(ncclCommAbort)>(__func__);
  return function(comm);
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  static auto* const function = find<decltype(ncclCommCount)>(__func__);
  return function(comm, count);
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  static auto* const function = find<decltype(ncclCommCuDevice)>(__func__);
  return function(comm, device);
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  static auto* const function = find<decltype(ncclCommDeregister)>(__func__);
  return function(comm, handle);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  static auto* const function = find<decltype(ncclCommDestroy)>(__func__);
  return function(comm);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  static auto* const function = find<decltype(ncclCommFinalize)>(__func__);
  return function(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  static auto* const function = find<decltype(ncclCommGetAsyncError)>(__func__);
  return function(comm, error);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  static auto* const function = find<decltype(ncclCommInitRankConfig)>(__func__);
  return function(comm, size, id, rank, config);
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* buff, size_t size, void** handle) {
  static auto* const function = find<decltype(ncclCommRegister)>(__func__);
  return function(comm, buff, size, handle);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part,
                           ncclConfig_t* config) {
  static auto* const function = find<decltype(ncclCommSplit)>(__func__);
  return function(comm, color, key, part, config);
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  static auto* const function = find<decltype(ncclCommUserRank)>(__func__);
  return function(comm, rank);
}

const char* ncclGetErrorString(ncclResult_t result) {
  static auto* const function = find<decltype(ncclGetErrorString)>(__func__);
  return function(result);
}

const char* ncclGetLastError(ncclComm_t comm) {
  static auto* const function = find<decltype(ncclGetLastError)>(__func__);
  return function(comm);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static auto* const function = find<decltype(ncclGetUniqueId)>(__func__);
  return function(id);
}

ncclResult_t ncclGetVersion(int* version) {
  static auto* const function = find<decltype(ncclGetVersion)>(__func__);
  return function(version);
}

ncclResult_t ncclGroupStart() {
  static auto* const function = find<decltype(ncclGroupStart)>(__func__);
  return function();
}

ncclResult_t ncclGroupEnd() {
  static auto* const function = find<decltype(ncclGroupEnd)>(__func__);
  return function();
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  static auto* const function = find<decltype(ncclRecv)>(__func__);
  return function(to, count, type, peer, comm, stream);
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  static auto* const function = find<decltype(ncclReduce)>(__func__);
  return function(from, to, count, type, op, root, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  static auto* const function = find<decltype(ncclReduceScatter)>(__func__);
  return function(from, to, count, type, op, comm, stream);
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  static auto* const function = find<decltype(ncclSend)>(__func__);
  return function(from, count, type, peer, comm, stream);
}

// NOLINTEND(readability-inconsistent-declaration-parameter-name)
