// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The devices that a rank touches, on the models of NCCL and of a CUDA runtime with several
// devices: a context costs device memory, and is refused on a device reserved for one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/nccl.hpp>
#include <winnow/winnow.hpp>

#include "kernels/elementwise.hpp"
#include "kernels/exec/device_scope.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"
#include "tests/model/cuda_model.hpp"

namespace winnow::tests {
namespace {

using kernels::DeviceScope;
using testing::ElementsAre;

int device_of_this_thread() {
  return kernels::current_device(Place::cuda);
}

/// Runs `body` on a fresh thread that has chosen no device.
void on_fresh_thread(const std::function<void()>& body) {
  std::thread([&] { EXPECT_NO_THROW(body()); }).join();
}

/// Ranks over NCCL, each on its own device, from 1 on: code that chooses none falls on device 0.
class RanksOnDevices : public testing::Test {
 protected:
  static constexpr int kRanks = 2;

  void run(const std::function<void(const std::shared_ptr<Transport>&)>& body) {
    std::string folder = testing::TempDir() + "winnow_devices_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    run_nccl_ranks(kRanks, [&](int rank) {
      WINNOW_CUDA_TRY(cudaSetDevice(rank + 1));
      body(nccl_transport({.path = folder + "/id", .job = 7, .rank = rank, .size = kRanks},
                          Deadline::after(std::chrono::seconds(60))));
    });
    EXPECT_EQ(::rmdir(folder.c_str()), 0);
  }

  ModelDevices devices_{kRanks + 1};
};

TEST(ModelDevices, AThreadBeginsWithTheFirstAndHasNoContext) {
  const ModelDevices devices(3);
  on_fresh_thread([&] {
    EXPECT_EQ(device_of_this_thread(), 0);
    EXPECT_THAT(devices.with_context(), ElementsAre());
    WINNOW_CUDA_TRY(cudaSetDevice(2));
    on_fresh_thread([] { EXPECT_EQ(device_of_this_thread(), 0); });
    EXPECT_EQ(device_of_this_thread(), 2);
    EXPECT_THAT(devices.with_context(), ElementsAre(2));
    EXPECT_EQ(cudaSetDevice(3), cudaErrorInvalidDevice);
    on_fresh_thread([] { const Stream stream; });
    EXPECT_THAT(devices.with_context(), ElementsAre(0, 2));
  });
}

TEST(ModelDevices, AStreamsKernelsAndEventsAreOfItsDevice) {
  const ModelDevices devices(2);
  on_fresh_thread([] {
    WINNOW_CUDA_TRY(cudaSetDevice(1));
    const Stream stream;
    const DeviceArray<std::byte> memory(8);
    cudaPointerAttributes found{};
    WINNOW_CUDA_TRY(cudaPointerGetAttributes(&found, memory.data()));
    EXPECT_EQ(found.device, 1);
    const DeviceScope scope(0);
    const std::span<float> two(reinterpret_cast<float*>(memory.data()), 2);
    EXPECT_THROW(kernels::fill(stream.exec(), two, 1), CudaError);
    EXPECT_THROW(Event().record(stream), CudaError);
  });
}

TEST(DeviceScope, ReturnsToTheDeviceOfBefore) {
  const ModelDevices devices(3);
  on_fresh_thread([&] {
    WINNOW_CUDA_TRY(cudaSetDevice(1));
    {
      const DeviceScope scope(2);
      EXPECT_EQ(device_of_this_thread(), 2);
    }
    EXPECT_EQ(device_of_this_thread(), 1);
    EXPECT_THROW(DeviceScope(3), CudaError);
    EXPECT_EQ(device_of_this_thread(), 1);
    EXPECT_THAT(devices.with_context(), ElementsAre(1, 2));
  });
}

TEST(DeviceScope, DoesNothingWhereThereIsNothingToDo) {
  const ModelDevices devices(2);
  on_fresh_thread([&] {
    { const DeviceScope same(0), host(kernels::current_device(Place::host)); }
    EXPECT_THAT(devices.with_context(), ElementsAre());
    kernels::stay_on(1);
    { const DeviceScope same(1); }
    kernels::stay_on(2);  // there is no such device
    EXPECT_EQ(device_of_this_thread(), 1);
    EXPECT_THAT(devices.with_context(), ElementsAre(1));
  });
}

TEST_F(RanksOnDevices, CallsInFlightTouchTheirOwnAlone) {
  constexpr std::size_t kCount = 2000;
  for (const char* const schedule : {"gather", "balanced"}) {
    run([&](const std::shared_ptr<Transport>& transport) {
      const Stream stream;
      const Exec place = stream.exec();
      AllReducer reducer(transport,
                         {.compressor = "topk:1",
                          .schedule = schedule,
                          .op = ReduceOp::sum,
                          .min_bytes = 0,
                          .exempt_1d = false},
                         place);
      kernels::PlaceArray<float> bucket(place, kCount);
      for (int step = 0; step < 2; ++step) {
        kernels::fill(place, bucket.span(), static_cast<float>(transport->rank() + 1));
        Work work = reducer.all_reduce_async(bucket.span(), 1);
        work.wait();
        std::vector<float> sum(kCount);
        kernels::read(place, std::as_writable_bytes(std::span(sum)), std::as_bytes(bucket.span()));
        EXPECT_EQ(sum, std::vector<float>(kCount, 3));
      }
    });
    EXPECT_THAT(devices_.with_context(), ElementsAre(1, 2)) << schedule;
  }
}

/// Another thread than the caller's gives up a dead peer.
TEST_F(RanksOnDevices, ACallThatIsGivenUpTouchesItsOwnAlone) {
  run([](const std::shared_ptr<Transport>& transport) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(
        transport, {.compressor = "topk:1", .schedule = "gather", .min_bytes = 0, .deadline = 2},
        place);
    kernels::PlaceArray<float> bucket(place, 1000);
    reducer.all_reduce(bucket.span(), 1);
    reducer.synchronize();
    if (transport->rank() == 1) return;
    reducer.all_reduce(bucket.span(), 1);
    kernels::wait(place);  // until the call is given up
    EXPECT_THROW(reducer.synchronize(), CommError);
  });
  EXPECT_THAT(devices_.with_context(), ElementsAre(1, 2));
}

/// A caller's thread keeps its device.
TEST_F(RanksOnDevices, ACallerKeepsItsDevice) {
  run([](const std::shared_ptr<Transport>& transport) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(transport, {.compressor = "topk:1", .schedule = "gather", .min_bytes = 0},
                       place);
    kernels::PlaceArray<float> bucket(place, 1000);
    const int other = kRanks - transport->rank();
    on_fresh_thread([&] {
      WINNOW_CUDA_TRY(cudaSetDevice(other));
      reducer.all_reduce(bucket.span(), 1);
      EXPECT_EQ(device_of_this_thread(), other);
    });
    on_fresh_thread([&] {
      reducer.all_reduce(bucket.span(), 1);
      EXPECT_EQ(device_of_this_thread(), 0);
    });
  });
}

}  // namespace
}  // namespace winnow::tests
