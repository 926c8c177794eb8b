// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_nccl.hpp"

#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "comm/id_file.hpp"

namespace winnow::comm {
namespace {

constexpr std::chrono::milliseconds kPatience{200};  // for peers at the end
constexpr std::chrono::milliseconds kPause{1};       // between two looks

/// `comm` may be null.
[[noreturn]] void fail(ncclResult_t result, const std::string& what, ncclComm_t comm) {
  std::string text = what + ": " + ncclGetErrorString(result);
  const char* const more = ncclGetLastError(comm);
  if (more != nullptr && *more != '\0') text.append(" (").append(more).append(")");
  throw CommError(text, static_cast<int>(result));
}

/// Before ranks wait for each other.
void expect_device() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return;
  (void)cudaGetLastError();
  throw CudaError(std::string("an NCCL transport needs a GPU: ") +
                      (status == cudaSuccess ? "there is none" : cudaGetErrorString(status)),
                  static_cast<int>(status));
}

ncclUniqueId make_id() {
  ncclUniqueId id{};
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) fail(result, "ncclGetUniqueId", nullptr);
  return id;
}

/// What a rank says to all: that it has come so far without an error, and, of rank 0, the id.
struct Word {
  std::uint64_t good;
  ncclUniqueId id;
};

/// What all ranks say. Throws where one has an error: there that, elsewhere one that names the
/// rank.
std::vector<Word> agree(Transport& other, const ncclUniqueId& id, const std::exception_ptr& error,
                        Deadline deadline) {
  const Word mine{.good = error == nullptr ? 1U : 0U, .id = id};
  std::vector<Word> all(static_cast<std::size_t>(other.size()));
  try {
    other.all_gather({}, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                     deadline);
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

/// Removes the file at its end.
class Removal {
 public:
  explicit Removal(const IdFile& file) : file_(file) {}
  ~Removal() { file_.remove(); }
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;

 private:
  const IdFile& file_;
};

}  // namespace

NcclCommunicator::NcclCommunicator(ncclComm_t borrowed) : comm_(borrowed), owned_(false) {
  WINNOW_EXPECTS(borrowed != nullptr, "nccl_transport of no communicator");
  WINNOW_EXPECTS(idle(),
                 "nccl_transport of a communicator that is still at work: must be one of which "
                 "ncclCommGetAsyncError says ncclSuccess");
  look_up();
}

NcclCommunicator::NcclCommunicator(NcclCommunicator&& other) noexcept
    : comm_(std::exchange(other.comm_, nullptr)),
      split_(std::move(other.split_)),
      owned_(other.owned_),
      rank_(other.rank_),
      size_(other.size_),
      device_(other.device_) {}

NcclCommunicator::~NcclCommunicator() {
  if (comm_ == nullptr || !owned_) return;
  try {
    check(ncclCommFinalize(comm_), "ncclCommFinalize");
    settle(Deadline::after(kPatience));
    if (ncclCommDestroy(comm_) == ncclSuccess) return;
  } catch (const std::exception&) {
    // Peers have gone another way.
  }
  abort();
}

NcclCommunicator NcclCommunicator::join(const ncclUniqueId& id, int rank, int size,
                                        Deadline deadline) {
  NcclCommunicator made;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  made.check(ncclCommInitRankConfig(&made.comm_, size, id, rank, &config),
             "ncclCommInitRankConfig");
  made.settle(deadline);
  made.look_up();
  return made;
}

NcclCommunicator NcclCommunicator::meet(Transport& other, Deadline deadline) {
  ncclUniqueId id{};
  std::exception_ptr error;
  try {
    expect_device();
    if (other.rank() == 0) id = make_id();
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  id = agree(other, id, error, deadline)[0].id;

  std::optional<NcclCommunicator> made;
  try {
    made.emplace(join(id, other.rank(), other.size(), deadline));
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  (void)agree(other, id, error, deadline);
  return std::move(*made);
}

NcclCommunicator NcclCommunicator::meet(const NcclMeeting& meeting, Deadline deadline) {
  const auto& [path, job, rank, size, node] = meeting;
  WINNOW_EXPECTS(size >= 1 && rank >= 0 && rank < size,
                 "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                     " comes to a meeting: must be from 0 to size - 1");
  const IdFile file(path, job);
  ncclUniqueId id{};
  if (rank != 0) {
    expect_device();
    file.read(std::as_writable_bytes(std::span(&id, 1)), deadline);
    return join(id, rank, size, deadline);
  }
  try {
    expect_device();
    id = make_id();
  } catch (const std::exception& error) {
    file.refuse(error.what());
    throw;
  }
  file.write(std::as_bytes(std::span(&id, 1)));
  const Removal removal(file);  // all have read it when they have joined
  return join(id, rank, size, deadline);
}

NcclCommunicator NcclCommunicator::split(int color, int key, Deadline deadline) {
  split_ = std::make_unique<ncclComm_t>(nullptr);
  check(ncclCommSplit(comm_, color, key, split_.get(), nullptr), "ncclCommSplit");
  settle(deadline);  // the part is there when its parent is done
  NcclCommunicator part;
  part.comm_ = *split_;
  if (part.comm_ == nullptr) return part;
  part.settle(deadline);
  part.look_up();
  return part;
}

void NcclCommunicator::look_up() {
  check(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank");
  check(ncclCommCount(comm_, &size_), "ncclCommCount");
  check(ncclCommCuDevice(comm_, &device_), "ncclCommCuDevice");
}

void NcclCommunicator::check(ncclResult_t result, const char* call) const {
  if (result != ncclSuccess && result != ncclInProgress) fail(result, call, comm_);
}

bool NcclCommunicator::idle() const {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
  check(state, "NCCL, asked by ncclCommGetAsyncError");
  return state == ncclSuccess;
}

void NcclCommunicator::settle(Deadline deadline) const {
  while (!idle()) {
    if (deadline.passed()) throw CommError("the deadline passed while NCCL connected ranks");
    std::this_thread::sleep_for(kPause);
  }
}

void NcclCommunicator::abort() noexcept {
  if (comm_ != nullptr) (void)ncclCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace winnow::comm
