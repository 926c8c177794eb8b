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
//   - The minimum and maximum of floats are fmin and fmax.
#include "tests/model/nccl_model.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/reduce.hpp"
#include "tests/gpu/nccl_ranks.hpp"
#include "tests/model/cuda_model.hpp"

namespace {

using winnow::tests::Lock;
using winnow::tests::StreamWork;

std::mutex& mutex = winnow::tests::model_mutex;
std::condition_variable& changed = winnow::tests::model_changed;

constexpr int kLooks = 2;  // for which a call stays in progress

struct Operation {
  enum class Kind { send, receive, all_reduce, reduce_scatter, reduce, all_gather } kind;
  const void* from;
  void* to;
  std::size_t bytes;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;
};

/// A message on offer from one rank to another.
struct Offer {
  const void* from;
  std::size_t bytes;
  bool taken = false;
};

struct World;

/// One split of a communicator, which all its ranks join.
struct Split {
  std::map<int, std::pair<int, int>> colors;  // by rank: color and key
  std::map<int, std::shared_ptr<World>> parts;
};

/// State shared by the ranks of a communicator.
struct World {
  explicit World(int ranks) : size(ranks) {}
  int size, arrived = 0;
  std::map<std::pair<int, int>, std::deque<Offer*>> offers;  // by sender and receiver
  std::map<std::uint64_t, Split> splits;                     // in call order
};

std::map<std::uint64_t, std::shared_ptr<World>> worlds;  // by unique id
std::uint64_t ids = 0;
std::set<const ncclComm*> living;
std::size_t ending = 0;  // communicators that a call ends at present
std::set<std::pair<winnow::tests::NcclJob, int>> failing;  // with its rank
std::map<std::string, std::uint64_t> calls;
std::vector<winnow::tests::NcclConfig> configs;

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank = 0, device = 0;
  bool blocking = true, part_blocks = true;
  bool connected = false;     // as far as its rank knows
  int looks = 0;              // polls for which it stays in progress
  ncclComm** part = nullptr;  // of a split that not all ranks have joined
  std::uint64_t splits = 0;
  bool aborted = false, finalizing = false, ending = false;
  std::shared_ptr<int> held = std::make_shared<int>();  // by work in graphs; each holds a copy
  ncclResult_t error = ncclSuccess;
  std::deque<std::pair<std::vector<Operation>, std::shared_ptr<StreamWork>>> groups;
  std::thread runner;

  void run();
  void run_group(Lock& lock, const std::vector<Operation>& group);
  void exchange(Lock& lock, std::vector<std::pair<int, Offer>>& sends,
                const std::vector<Operation>& receipts);
  void run_collective(Lock& lock, const Operation& operation);
};

namespace {

struct Aborted {};

thread_local int depth = 0;
thread_local std::map<std::pair<ncclComm*, CUstream_st*>, std::vector<Operation>> enqueued;

std::size_t bytes_of_type(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat64:
    case ncclInt64:
    case ncclUint64:
      return 8;
    default:
      return 4;
  }
}

winnow::ElementType element_type_of(ncclDataType_t type) {
  using enum winnow::ElementType;
  static const std::map<ncclDataType_t, winnow::ElementType> types = {
      {ncclFloat32, float32}, {ncclFloat64, float64}, {ncclInt8, int8},   {ncclUint8, uint8},
      {ncclInt32, int32},     {ncclUint32, uint32},   {ncclInt64, int64}, {ncclUint64, uint64}};
  return types.at(type);
}

winnow::ReduceOp op_of(ncclRedOp_t op) {
  static const std::map<ncclRedOp_t, winnow::ReduceOp> ops = {{ncclSum, winnow::ReduceOp::sum},
                                                              {ncclProd, winnow::ReduceOp::product},
                                                              {ncclMin, winnow::ReduceOp::minimum},
                                                              {ncclMax, winnow::ReduceOp::maximum}};
  return ops.at(op);
}

/// into[i] = fmin or fmax of into[i] and from[i]; of two zeros the first stays.
template <class T>
void reduce_floats(ncclRedOp_t op, void* into, const void* from, std::size_t count) {
  const std::span<T> a(static_cast<T*>(into), count);
  const std::span<const T> b(static_cast<const T*>(from), count);
  for (std::size_t i = 0; i < count; ++i) {
    const bool other = op == ncclMin ? b[i] < a[i] : b[i] > a[i];
    if (other || std::isnan(a[i])) a[i] = b[i];
  }
}

void reduce(ncclRedOp_t op, ncclDataType_t type, void* into, const void* from, std::size_t count) {
  const bool extreme = op == ncclMin || op == ncclMax;
  if (extreme && type == ncclFloat32) return reduce_floats<float>(op, into, from, count);
  if (extreme && type == ncclFloat64) return reduce_floats<double>(op, into, from, count);
  const winnow::ElementType element = element_type_of(type);
  winnow::kernels::reduce({}, op_of(op), {into, count, element},
                          winnow::ConstElements(from, count, element));
}

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
                     const Operation& operation) {
  const Lock lock(mutex);
  ++calls[call];
  if (in_progress(*comm)) return ncclInvalidUsage;
  enqueued[{comm, stream}].push_back(operation);
  return ncclSuccess;
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
  living.insert(&comm);
  comm.runner = std::thread([&comm] { comm.run(); });
}

bool have_all_joined(const ncclComm& comm, const Split& split) {
  return split.colors.size() == static_cast<std::size_t>(comm.world->size);
}

/// Gives a rank its part of a split that all have joined.
void take_part(ncclComm& comm, Split& split) {
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
  if (part == nullptr) part = std::make_shared<World>(size);
  ++part->arrived;
  made = new ncclComm{.world = part, .rank = rank, .device = comm.device};
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

/// Runs the groups of one communicator, in order.
void ncclComm::run() {
  Lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return aborted || !groups.empty() || ending; });
    if (groups.empty() || aborted) break;
    const auto group = groups.front().first;
    const auto work = groups.front().second;
    changed.wait(lock, [&] { return aborted || winnow::tests::is_first(lock, *work); });
    if (aborted) break;
    try {
      run_group(lock, group);
    } catch (const Aborted&) {
      break;
    }
    groups.pop_front();
    winnow::tests::finish(lock, *work);
  }
  for (const auto& [group, work] : groups) winnow::tests::finish(lock, *work);  // kernels leave
}

void ncclComm::run_group(Lock& lock, const std::vector<Operation>& group) {
  std::vector<std::pair<int, Offer>> sends;
  std::vector<Operation> receipts;
  for (const Operation& operation : group) {
    if (operation.kind == Operation::Kind::send) {
      sends.push_back({operation.peer, {operation.from, operation.bytes}});
    } else if (operation.kind == Operation::Kind::receive) {
      receipts.push_back(operation);
    }
  }
  exchange(lock, sends, receipts);
  for (const Operation& operation : group) {
    if (operation.kind == Operation::Kind::send || operation.kind == Operation::Kind::receive) {
      continue;
    }
    run_collective(lock, operation);
  }
}

/// Offers all outgoing messages, takes all incoming ones, and waits until all of them are taken.
void ncclComm::exchange(Lock& lock, std::vector<std::pair<int, Offer>>& sends,
                        const std::vector<Operation>& receipts) {
  const auto withdraw = [&] {
    for (auto& [peer, offer] : sends) std::erase(world->offers[{rank, peer}], &offer);
  };
  const auto wait = [&](const auto& condition) {
    changed.wait(lock, [&] { return aborted || condition(); });
    if (!aborted) return;
    withdraw();
    throw Aborted();
  };
  for (auto& [peer, offer] : sends) world->offers[{rank, peer}].push_back(&offer);
  changed.notify_all();
  for (const Operation& receipt : receipts) {
    auto& queue = world->offers[{receipt.peer, rank}];
    wait([&] { return !queue.empty(); });
    Offer& offer = *queue.front();
    if (offer.bytes != receipt.bytes) error = ncclInvalidUsage;  // NCCL would hang, or worse
    std::memcpy(receipt.to, offer.from, std::min(offer.bytes, receipt.bytes));
    offer.taken = true;
    queue.pop_front();
    changed.notify_all();
  }
  wait([&] {
    return std::ranges::all_of(sends, [](const auto& send) { return send.second.taken; });
  });
}

/// Every rank gets what all have, and computes what it needs.
void ncclComm::run_collective(Lock& lock, const Operation& operation) {
  using Kind = Operation::Kind;
  const auto ranks = static_cast<std::size_t>(world->size);
  const bool scatters = operation.kind == Kind::reduce_scatter;
  const std::size_t bytes = operation.bytes * (scatters ? ranks : 1);
  const auto* const own = static_cast<const std::byte*>(operation.from);
  std::vector<std::vector<std::byte>> all(ranks, std::vector<std::byte>(own, own + bytes));
  std::vector<std::pair<int, Offer>> sends;
  std::vector<Operation> receipts;
  const std::vector<std::byte> sent(own, own + bytes);  // `to` may overlap what others read
  for (int peer = 0; peer < world->size; ++peer) {
    if (peer == rank) continue;
    sends.push_back({peer, {sent.data(), bytes}});
    receipts.push_back({.kind = Kind::receive,
                        .from = nullptr,
                        .to = all[static_cast<std::size_t>(peer)].data(),
                        .bytes = bytes,
                        .type = ncclUint8,
                        .op = ncclSum,
                        .peer = peer});
  }
  exchange(lock, sends, receipts);
  auto* const to = static_cast<std::byte*>(operation.to);
  if (operation.kind == Kind::all_gather) {
    for (std::size_t r = 0; r < ranks; ++r) std::memcpy(to + r * bytes, all[r].data(), bytes);
    return;
  }
  const std::size_t count = bytes / bytes_of_type(operation.type);
  for (std::size_t r = 1; r < ranks; ++r) {
    reduce(operation.op, operation.type, all[0].data(), all[r].data(), count);
  }
  if (operation.kind == Kind::reduce && operation.peer != rank) return;
  const std::size_t begin = scatters ? operation.bytes * static_cast<std::size_t>(rank) : 0;
  std::memcpy(to, all[0].data() + begin, operation.bytes);
}

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the libraries' own names
extern "C" {

const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the model";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
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
  if (world == nullptr) world = std::make_shared<World>(size);
  if (world->size != size || !note(__func__, config)) return ncclInvalidArgument;
  ++world->arrived;
  *comm = new ncclComm{.world = world, .rank = rank, .device = winnow::tests::current_device(lock)};
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
  Split& of = comm->world->splits[++comm->splits];
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
  const World& world = *comm->world;
  if (comm->part == nullptr) {
    if (world.arrived == world.size && !std::exchange(comm->connected, true) &&
        failing.erase({connect, comm->rank}) != 0)
      comm->error = ncclSystemError;
  } else if (Split& of = comm->world->splits[comm->splits]; have_all_joined(*comm, of)) {
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
      {Operation::Kind::send, from, nullptr, count * bytes_of_type(type), type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return enqueue(
      __func__, comm, stream,
      {Operation::Kind::receive, nullptr, to, count * bytes_of_type(type), type, ncclSum, peer});
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(
      __func__, comm, stream,
      {Operation::Kind::all_reduce, from, to, count * bytes_of_type(type), type, op, -1});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(
      __func__, comm, stream,
      {Operation::Kind::reduce_scatter, from, to, count * bytes_of_type(type), type, op, -1});
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(__func__, comm, stream,
                 {Operation::Kind::reduce, from, to, count * bytes_of_type(type), type, op, root});
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue(
      __func__, comm, stream,
      {Operation::Kind::all_gather, from, to, count * bytes_of_type(type), type, ncclSum, -1});
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
