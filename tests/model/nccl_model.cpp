// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A model of the part of NCCL that the NCCL transport and its tests call, so that its logic runs
// without a GPU, on the model of the CUDA runtime. Ranks are threads. A group begins when its
// stream reaches it. The model is as strict as NCCL may be:
//   - A nonblocking communicator stays in progress for some polls after each call, and until all
//     ranks have come; a call meanwhile is an error.
//   - A communicator's groups run one after another. A message ends when it has been copied; one
//     whose buffer has another size is an error of the receiver.
//   - A rank that aborts leaves its peers waiting.
//   - Of CTAs a minimum above the maximum is an error, also where the maximum is not set. A part
//     has its parent's configuration unless it is given one of its own.
//   - A communicator is not split with groups under way. It does not end, by an abort or otherwise,
//     before the graphs with its work are gone; ending it makes its device current, and then the
//     previous one.
//   - Memory is registered while no other call is in progress. In a message and in a collective all
//     ranks' buffers are registered with their communicators or none is. A range is deregistered
//     once, before the memory is freed and the communicator destroyed; an abort ends it, too. These
//     rules are NCCL's, which checks few of them; the model fails the test.
//   - The minimum and maximum of floats are fmin and fmax.
#include "tests/model/nccl_model.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/nccl_ranks.hpp"
#include "tests/model/cuda_model.hpp"
#include "tests/model/nccl_communicator_model.hpp"

namespace {

using winnow::tests::Lock;
using winnow::tests::nccl_bytes_of;
using winnow::tests::NcclOperation;
using winnow::tests::NcclSplit;
using winnow::tests::NcclWorld;

std::mutex& mutex = winnow::tests::model_mutex;
std::condition_variable& changed = winnow::tests::model_changed;

constexpr int kLooks = 2;  // for which a call stays in progress

std::map<std::uint64_t, std::shared_ptr<NcclWorld>> worlds;  // by unique id
std::uint64_t ids = 0;
std::set<const ncclComm*> living;
std::size_t ending = 0;  // communicators that a call ends at present
std::set<std::pair<winnow::tests::NcclJob, int>> failing;  // with its rank
std::map<std::string, std::uint64_t> calls;
std::vector<winnow::tests::NcclConfig> configs;
int version_told = NCCL_VERSION_CODE;
bool registers = true;
std::uintptr_t handles = 0;

thread_local int depth = 0;
thread_local std::map<std::pair<ncclComm*, CUstream_st*>, std::vector<NcclOperation>> enqueued;

bool is_in_graph(const ncclComm& comm) {
  return comm.held.use_count() > 1;
}

bool in_progress(ncclComm& comm) {
  if (comm.finalizing && is_in_graph(comm)) return true;
  if (comm.world->arrived < comm.world->size || comm.part != nullptr) return true;
  return !comm.blocking && comm.looks > 0;
}

/// Begins a call on `comm`, which must not be working on another.
ncclResult_t begin_call(ncclComm& comm) {
  if (in_progress(comm)) return ncclInvalidUsage;
  if (!comm.blocking) comm.looks = kLooks;
  return comm.blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t enqueue(const char* call, ncclComm* comm, CUstream_st* stream,
                     const NcclOperation& operation) {
  const Lock lock(mutex);
  ++calls[call];
  if (in_progress(*comm)) return ncclInvalidUsage;
  enqueued[{comm, stream}].push_back(operation);
  return ncclSuccess;
}

/// Memory must not be freed while a communicator knows it.
void expect_not_registered(const Lock&, const std::byte* memory, std::size_t bytes) {
  for (const ncclComm* const comm : living) {
    for (const auto& [handle, range] : comm->registered) {
      const bool apart = memory + bytes <= range.data() || range.data() + range.size() <= memory;
      EXPECT_TRUE(apart) << "rank " << comm->rank << " frees memory that is registered";
    }
  }
}

/// Notes a configuration, which may be null; returns whether NCCL takes it.
bool note(const char* call, const ncclConfig_t* config) {
  if (config == nullptr) return true;
  configs.push_back({.call = call,
                     .blocking = config->blocking,
                     .min_ctas = config->minCTAs,
                     .max_ctas = config->maxCTAs,
                     .cga_cluster_size = config->cgaClusterSize,
                     .split_share = config->splitShare});
  return config->minCTAs <= config->maxCTAs;
}

void start_runner(ncclComm& comm) {
  winnow::tests::watch_of_frees() = expect_not_registered;
  living.insert(&comm);
  comm.runner = std::thread([&comm] { comm.run(); });
}

bool have_all_joined(const ncclComm& comm, const NcclSplit& split) {
  return split.colors.size() == static_cast<std::size_t>(comm.world->size);
}

/// Gives a rank its part of a split that all have joined.
void take_part(ncclComm& comm, NcclSplit& split) {
  const auto [color, key] = split.colors.at(comm.rank);
  ncclComm*& made = *std::exchange(comm.part, nullptr);
  comm.looks = kLooks;
  made = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return;
  int size = 0, rank = 0;
  for (const auto& [other, theirs] : split.colors) {
    if (theirs.first != color) continue;
    ++size;
    rank += theirs.second < key ? 1 : 0;
  }
  auto& part = split.parts[color];
  if (part == nullptr) part = std::make_shared<NcclWorld>(size);
  ++part->arrived;
  made = new ncclComm{{.world = part, .rank = rank, .device = comm.device}};
  made->blocking = comm.part_blocks;
  start_runner(*made);
}

/// Ends a communicator, whether or not anything is under way.
void end(ncclComm* comm, bool abort) {
  int before = 0;
  (void)cudaGetDevice(&before);
  (void)cudaSetDevice(comm->device);
  (void)cudaSetDevice(before);
  {
    const Lock lock(mutex);
    (abort ? comm->aborted : comm->ending) = true;
    EXPECT_TRUE(abort || comm->registered.empty())
        << "rank " << comm->rank << " destroys a communicator with registered memory";
    comm->registered.clear();
    ending += living.erase(comm);
    if (comm->part != nullptr) *comm->part = nullptr;
    changed.notify_all();
  }
  while (is_in_graph(*comm)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  comm->runner.join();
  delete comm;
  const Lock lock(mutex);
  --ending;
}

}  // namespace

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the libraries' own names
extern "C" {

const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the model";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}

ncclResult_t ncclGetVersion(int* version) {
  const Lock lock(mutex);
  *version = version_told;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Lock lock(mutex);
  ++ids;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &ids, sizeof ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  Lock lock(mutex);
  auto& world = worlds[number];
  if (world == nullptr) world = std::make_shared<NcclWorld>(size);
  if (world->size != size || !note(__func__, config)) return ncclInvalidArgument;
  ++world->arrived;
  *comm =
      new ncclComm{{.world = world, .rank = rank, .device = winnow::tests::current_device(lock)}};
  (*comm)->blocking = config == nullptr || config->blocking != 0;
  start_runner(**comm);
  changed.notify_all();
  if ((*comm)->blocking) changed.wait(lock, [&] { return world->arrived == size; });
  return (*comm)->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}

/// The parts exist when all ranks have come; ranks of no color get none.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part,
                           ncclConfig_t* config) {
  Lock lock(mutex);
  if (!comm->groups.empty()) return ncclInvalidUsage;
  const ncclResult_t result = begin_call(*comm);
  if (result == ncclInvalidUsage) return result;
  if (!note(__func__, config)) return ncclInvalidArgument;
  NcclSplit& of = comm->world->splits[++comm->splits];
  of.colors[comm->rank] = {color, key};
  comm->part = part;
  comm->part_blocks = config == nullptr ? comm->blocking : config->blocking != 0;
  changed.notify_all();
  if (!comm->blocking) return ncclInProgress;
  changed.wait(lock, [&] { return have_all_joined(*comm, of); });
  take_part(*comm, of);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const Lock lock(mutex);
  using enum winnow::tests::NcclJob;
  const NcclWorld& world = *comm->world;
  if (comm->part == nullptr) {
    if (world.arrived == world.size && !std::exchange(comm->connected, true) &&
        failing.erase({connect, comm->rank}) != 0)
      comm->error = ncclSystemError;
  } else if (NcclSplit& of = comm->world->splits[comm->splits]; have_all_joined(*comm, of)) {
    if (failing.erase({split, comm->rank}) != 0) {
      comm->error = ncclSystemError;
    } else if (comm->error == ncclSuccess) {
      take_part(*comm, of);
    }
  }
  *state = comm->error;
  if (comm->error == ncclSuccess && in_progress(*comm)) *state = ncclInProgress;
  if (comm->looks > 0 && comm->part == nullptr) --comm->looks;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Lock lock(mutex);
  const ncclResult_t result = begin_call(*comm);
  comm->finalizing = result != ncclInvalidUsage;
  return result;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  end(comm, false);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  end(comm, true);
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  const Lock lock(mutex);
  if (!living.contains(comm)) return ncclInvalidArgument;
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  const Lock lock(mutex);
  if (!living.contains(comm)) return ncclInvalidArgument;
  *count = comm->world->size;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}

// Also where nccl.h is that of NCCL 2.18.
ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, std::size_t bytes, void** handle) {
  const Lock lock(mutex);
  ++calls[__func__];
  const ncclResult_t result = begin_call(*comm);
  EXPECT_NE(result, ncclInvalidUsage) << "memory is registered during another call";
  EXPECT_EQ(winnow::tests::look_up(lock, memory).type, cudaMemoryTypeDevice);
  if (failing.erase({winnow::tests::NcclJob::registration, comm->rank}) != 0)
    return ncclSystemError;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a name
  *handle = registers ? reinterpret_cast<void*>(++handles) : nullptr;
  if (registers) comm->registered[*handle] = {static_cast<std::byte*>(memory), bytes};
  return result;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const Lock lock(mutex);
  ++calls[__func__];
  const ncclResult_t result = begin_call(*comm);
  EXPECT_NE(result, ncclInvalidUsage) << "memory is deregistered during another call";
  EXPECT_TRUE(comm->groups.empty()) << "memory is deregistered with groups under way";
  if (handle == nullptr) return result;
  const bool known = comm->registered.erase(handle) == 1;
  EXPECT_TRUE(known) << "memory is deregistered that is not registered";
  return known ? result : ncclInvalidUsage;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  const Lock lock(mutex);
  ncclResult_t result = ncclSuccess;
  for (auto& [where, group] : enqueued) {
    const auto& [comm, stream] = where;
    result = begin_call(*comm);
    const auto begin = [comm = comm, group = std::move(group), held = comm->held](
                           const Lock& now, CUstream_st* there) {
      comm->groups.emplace_back(group, winnow::tests::enqueue_elsewhere(now, there));
      changed.notify_all();
    };
    if (winnow::tests::enqueue_or_capture(lock, stream, {begin, cudaGraphNodeTypeKernel}) !=
        cudaSuccess) {
      result = ncclUnhandledCudaError;
    }
  }
  enqueued.clear();
  return result;
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return enqueue(
      __func__, comm, stream,
      {NcclOperation::Kind::send, from, nullptr, count * nccl_bytes_of(type), type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return enqueue(__func__, comm, stream,
                 {NcclOperation::Kind::receive, nullptr, to, count * nccl_bytes_of(type), type,
                  ncclSum, peer});
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(
      __func__, comm, stream,
      {NcclOperation::Kind::all_reduce, from, to, count * nccl_bytes_of(type), type, op, -1});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(
      __func__, comm, stream,
      {NcclOperation::Kind::reduce_scatter, from, to, count * nccl_bytes_of(type), type, op, -1});
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(
      __func__, comm, stream,
      {NcclOperation::Kind::reduce, from, to, count * nccl_bytes_of(type), type, op, root});
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue(
      __func__, comm, stream,
      {NcclOperation::Kind::all_gather, from, to, count * nccl_bytes_of(type), type, ncclSum, -1});
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

namespace winnow::tests {

void fail_next(NcclJob job, int rank) {
  const Lock lock(mutex);
  failing.insert({job, rank});
}

std::uint64_t calls_of(const std::string& name) {
  const Lock lock(mutex);
  return calls[name];
}

std::vector<NcclConfig> take_configs() {
  const Lock lock(mutex);
  std::vector<NcclConfig> taken = std::exchange(configs, {});
  std::ranges::sort(taken, {}, &NcclConfig::call);
  return taken;
}

std::size_t registrations() {
  const Lock lock(mutex);
  std::size_t count = 0;
  for (const ncclComm* const comm : living) count += comm->registered.size();
  return count;
}

void let_register(bool works) {
  const Lock lock(mutex);
  registers = works;
}

void set_nccl_version(int version) {
  const Lock lock(mutex);
  version_told = version == 0 ? NCCL_VERSION_CODE : version;
}

std::size_t living_communicators() {
  const Lock lock(mutex);
  return living.size() + ending;
}

std::string why_no_nccl_ranks() {
  return "";
}

void run_nccl_ranks(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace winnow::tests
