// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/nccl/communicator.hpp"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "comm/transport/gather_values.hpp"
#include "comm/transport/nccl/id_file.hpp"
#include "comm/transport/nccl/registration.hpp"
#include "comm/transport/poll.hpp"
#include "kernels/exec/device_scope.hpp"

namespace winnow::comm {
namespace {

constexpr std::chrono::seconds kPatience{5};     // at the end, for what peers have not fetched
constexpr std::chrono::seconds kRegistering{5};  // which waits for no peer

/// `comm` may be null.
[[noreturn]] void fail(ncclResult_t result, const std::string& what, ncclComm_t comm) {
  std::string text = what + ": " + ncclGetErrorString(result);
  const char* const more = ncclGetLastError(comm);
  if (more != nullptr && *more != '\0') text.append(" (").append(more).append(")");
  throw CommError(text, static_cast<int>(result));
}

void expect_device() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return;
  (void)cudaGetLastError();
  throw CudaError(std::string("an NCCL transport needs a GPU: ") +
                      (status == cudaSuccess ? "there is none" : cudaGetErrorString(status)),
                  static_cast<int>(status));
}

/// Checked before ranks wait for each other.
void expect_nccl(const NcclOptions& options) {
  expect_device();
  expect_library(options);
}

ncclUniqueId make_id() {
  ncclUniqueId id{};
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) fail(result, "ncclGetUniqueId", nullptr);
  return id;
}

void expect_sound(const NcclOptions& options) {
  constexpr int kLargestCluster = 8;
  const auto& [min_ctas, max_ctas, cga_cluster_size, register_memory] = options;
  const auto expect_not_below_0 = [](int ctas, const char* name) {
    WINNOW_EXPECTS(ctas >= 0, "NcclOptions::" + std::string(name) + " is " + std::to_string(ctas) +
                                  ": must be a number of thread blocks, or 0 for NCCL's choice");
  };
  expect_not_below_0(min_ctas, "min_ctas");
  expect_not_below_0(max_ctas, "max_ctas");
  WINNOW_EXPECTS(max_ctas == 0 || min_ctas <= max_ctas,
                 "NcclOptions::min_ctas is " + std::to_string(min_ctas) + " and max_ctas " +
                     std::to_string(max_ctas) + ": the minimum must not exceed the maximum");
  WINNOW_EXPECTS(cga_cluster_size >= 0 && cga_cluster_size <= kLargestCluster,
                 "NcclOptions::cga_cluster_size is " + std::to_string(cga_cluster_size) +
                     ": must be from 1 to " + std::to_string(kLargestCluster) +
                     ", or 0 for NCCL's choice");
}

void expect_equal(const NcclOptions& first, int rank, const NcclOptions& its) {
  const auto text = [](const NcclOptions& options) {
    return "min_ctas=" + std::to_string(options.min_ctas) +
           " max_ctas=" + std::to_string(options.max_ctas) +
           " cga_cluster_size=" + std::to_string(options.cga_cluster_size) +
           " register_memory=" + std::to_string(options.register_memory ? 1 : 0);
  };
  WINNOW_EXPECTS(its == first, "NcclOptions must be equal on all ranks: rank 0 has " + text(first) +
                                   ", rank " + std::to_string(rank) + " has " + text(its));
}

/// For communicators that are polled, and that share nothing with those split from them.
ncclConfig_t config_of(const NcclOptions& options) {
  constexpr int kMostCtas = 64;  // of any NCCL so far
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;
  if (options.min_ctas > 0) config.minCTAs = options.min_ctas;
  if (options.max_ctas > 0) {
    config.maxCTAs = options.max_ctas;
  } else if (options.min_ctas > 0) {
    // NCCL compares the minimum even with a maximum that is not set, and then refuses it.
    config.maxCTAs = std::max(options.min_ctas, kMostCtas);
  }
  if (options.cga_cluster_size > 0) config.cgaClusterSize = options.cga_cluster_size;
  return config;
}

/// One rank's report to all: that it has no error so far, its options, and, from rank 0, the id.
struct Word {
  std::uint64_t good;
  NcclInvitation invitation;
};

/// Gathers all ranks' reports. If one has an error, throws it on that rank; on the others throws an
/// error that names the rank.
std::vector<Word> agree(Transport& other, const NcclInvitation& invitation,
                        const std::exception_ptr& error, Deadline deadline) {
  const Word mine{.good = error == nullptr ? 1U : 0U, .invitation = invitation};
  std::vector<Word> all;
  try {
    all = gather_values(other, mine, deadline);
  } catch (const std::exception&) {
    if (error == nullptr) throw;
  }
  if (error != nullptr) std::rethrow_exception(error);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].good != 0) continue;
    throw CommError("rank " + std::to_string(rank) +
                    " cannot take part in an NCCL transport; its own error says why");
  }
  return all;
}

/// Ends a communicator cleanly, or by an abort if peers do not follow.
void finish(ncclComm_t comm) {
  ncclResult_t state = ncclCommFinalize(comm);
  const auto ended = [&] {
    return state != ncclInProgress || ncclCommGetAsyncError(comm, &state) != ncclSuccess;
  };
  sleep_until(ended, Deadline::after(kPatience));
  if (state != ncclSuccess || ncclCommDestroy(comm) != ncclSuccess) (void)ncclCommAbort(comm);
}

/// Threads that end communicators. A process that exits waits for them a while, since what they
/// call is about to go.
class Endings {
 public:
  /// Runs `work` in a thread. Throws std::system_error if there can be none.
  static void start(const std::function<void()>& work) {
    static const Endings kEndings;
    const std::shared_ptr<State> state = kEndings.state_;
    const std::lock_guard lock(state->mutex);
    std::thread([state, work] {
      work();
      const std::lock_guard done(state->mutex);
      --state->under_way;
      state->changed.notify_all();
    }).detach();
    ++state->under_way;
  }

  Endings(const Endings&) = delete;
  Endings& operator=(const Endings&) = delete;
  ~Endings() {
    if (::getpid() != state_->process) return;  // the threads are those of the parent
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, kPatience, [&] { return state_->under_way == 0; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int under_way = 0;
    pid_t process = ::getpid();
  };

  Endings() = default;

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace

void expect_library(const NcclOptions& options) {
  const int oldest = options.register_memory ? NCCL_VERSION(2, 19, 0) : NCCL_VERSION(2, 18, 0);
  const char* const what = options.register_memory ? "NcclOptions::register_memory" : "Winnow";
  int version = 0;
  const ncclResult_t result = ncclGetVersion(&version);
  if (result != ncclSuccess) fail(result, "ncclGetVersion", nullptr);
  WINNOW_EXPECTS(version >= oldest, "this NCCL has version code " + std::to_string(version) +
                                        "; for " + what + " must be at least " +
                                        std::to_string(oldest));
}

NcclCommunicator::NcclCommunicator(ncclComm_t borrowed, const NcclOptions& options,
                                   Deadline deadline)
    : comm_(borrowed), options_(options), owned_(false) {
  expect_sound(options);
  WINNOW_EXPECTS(borrowed != nullptr, "nccl_transport of no communicator");
  expect_library(options);
  settle(deadline);
  look_up();
}

NcclCommunicator::~NcclCommunicator() {
  if (comm_ != nullptr && owned_ && !process_.left()) leave(finish);
}

/// NCCL waits until graphs that hold work of a communicator are gone, even to abort it; and this
/// very thread may own them. Then another thread does the waiting.
void NcclCommunicator::leave(void (*end)(ncclComm_t)) noexcept {
  const auto work = [end, comm = std::exchange(comm_, nullptr), split = split_] { end(comm); };
  if (!in_graph_) {
    work();
    return;
  }
  try {
    Endings::start([work, device = device_] {
      kernels::stay_on(device);
      work();
    });
  } catch (const std::exception&) {  // there can be no further thread
    work();
  }
}

std::unique_ptr<NcclCommunicator> NcclCommunicator::join(const NcclInvitation& given, int rank,
                                                         int size, Deadline deadline) {
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(given.options));
  ncclConfig_t config = config_of(given.options);
  made->check(ncclCommInitRankConfig(&made->comm_, size, given.id, rank, &config),
              "ncclCommInitRankConfig");
  made->settle(deadline);
  made->look_up();
  return made;
}

std::unique_ptr<NcclCommunicator> NcclCommunicator::meet(Transport& other,
                                                         const NcclOptions& options,
                                                         Deadline deadline) {
  NcclInvitation invitation{.id = {}, .options = options};
  std::exception_ptr error;
  try {
    expect_sound(options);
    expect_nccl(options);
    if (other.rank() == 0) invitation.id = make_id();
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  const std::vector<Word> words = agree(other, invitation, error, deadline);
  const NcclInvitation& first = words[0].invitation;
  for (int rank = 0; rank < other.size(); ++rank) {
    expect_equal(first.options, rank, words[static_cast<std::size_t>(rank)].invitation.options);
  }

  std::unique_ptr<NcclCommunicator> made;
  try {
    made = join(first, other.rank(), other.size(), deadline);
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  (void)agree(other, invitation, error, deadline);
  return made;
}

std::unique_ptr<NcclCommunicator> NcclCommunicator::meet(const NcclMeeting& meeting,
                                                         const NcclOptions& options,
                                                         Deadline deadline) {
  const auto& [path, job, rank, size, node] = meeting;
  WINNOW_EXPECTS(size >= 1 && rank >= 0 && rank < size,
                 "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                     " comes to a meeting: must be from 0 to size - 1");
  expect_sound(options);
  const IdFile file(path, job);
  NcclInvitation invitation{.id = {}, .options = options};
  if (rank != 0) {
    expect_nccl(options);
    file.read(std::as_writable_bytes(std::span(&invitation, 1)), deadline);
    expect_equal(invitation.options, rank, options);
    return join(invitation, rank, size, deadline);
  }
  try {
    expect_nccl(options);
    invitation.id = make_id();
  } catch (const std::exception& error) {
    file.refuse(error.what());
    throw;
  }
  file.write(std::as_bytes(std::span(&invitation, 1)));
  // All have read it once they have joined.
  const auto remove = [](const IdFile* read) { read->remove(); };
  const std::unique_ptr<const IdFile, decltype(remove)> removal(&file, remove);
  return join(invitation, rank, size, deadline);
}

std::unique_ptr<NcclCommunicator> NcclCommunicator::split(int color, int key, Deadline deadline) {
  split_ = std::make_shared<ncclComm_t>(nullptr);
  // Without one a part would share its parent's, which may be the caller's.
  ncclConfig_t config = config_of(options_);
  use([&](ncclComm_t comm) {
    check(ncclCommSplit(comm, color, key, split_.get(), &config), "ncclCommSplit");
  });
  settle(deadline);  // the part exists when its parent is done
  if (*split_ == nullptr) return nullptr;
  std::unique_ptr<NcclCommunicator> part(new NcclCommunicator(options_));
  part->comm_ = *split_;
  part->settle(deadline);
  part->look_up();
  return part;
}

void* NcclCommunicator::register_memory(std::span<std::byte> memory) const {
  void* handle = nullptr;
  use([&](ncclComm_t comm) {
    check(ncclCommRegister(comm, memory.data(), memory.size(), &handle), "ncclCommRegister");
  });
  settle(Deadline::after(kRegistering), "registered memory");
  return handle;
}

void NcclCommunicator::deregister(void* handle) const {
  use([&](ncclComm_t comm) { check(ncclCommDeregister(comm, handle), "ncclCommDeregister"); });
  settle(Deadline::after(kRegistering), "registered memory");
}

void NcclCommunicator::look_up() {
  use([&](ncclComm_t comm) {
    check(ncclCommUserRank(comm, &rank_), "ncclCommUserRank");
    check(ncclCommCount(comm, &size_), "ncclCommCount");
    check(ncclCommCuDevice(comm, &device_), "ncclCommCuDevice");
  });
}

void NcclCommunicator::check(ncclResult_t result, const char* call) const {
  if (result != ncclSuccess && result != ncclInProgress) fail(result, call, comm_);
}

bool NcclCommunicator::idle() const {
  ncclResult_t state = ncclSuccess;
  use([&](ncclComm_t comm) {
    check(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
    check(state, "NCCL, asked by ncclCommGetAsyncError");
  });
  return state == ncclSuccess;
}

void NcclCommunicator::settle(Deadline deadline, const char* what) const {
  if (!sleep_until([this] { return idle(); }, deadline)) {
    fail_at_deadline(std::string("while NCCL ") + what);
  }
}

void NcclCommunicator::abort(Failure why) noexcept {
  if (process_.left()) return;
  const std::lock_guard lock(mutex_);
  if (failure_.failed()) return;
  failure_.keep(std::move(why));
  leave([](ncclComm_t comm) { (void)ncclCommAbort(comm); });
}

FailureLatch NcclCommunicator::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace winnow::comm
