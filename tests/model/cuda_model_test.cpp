// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The model of the CUDA runtime reveals a host that waits for too little.
#include "tests/model/cuda_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/cuda/launch.cuh"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"

namespace winnow::tests {
namespace {

using kernels::cuda::clear;
using kernels::cuda::enqueue_copy;
using kernels::cuda::launch;

/// Adds one per block.
struct Count {
  std::uint32_t* to;

  void run() const {
    if (simt::thread() == 0) simt::atomic_add(to, 1);
  }
};

/// All threads but one wait at a barrier.
struct Divergent {
  void run() const {
    if (simt::thread() != 0) simt::barrier();
  }
};

TEST(CudaModel, MemoryIsAlignedAndStartsAsGarbage) {
  const Stream stream;
  const DeviceArray<std::byte> first(3), second(3);
  for (const auto* array : {&first, &second}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array->data()) % 256, 0U);
    EXPECT_NE(array->download(stream), std::vector<std::byte>(3));
  }
  EXPECT_EQ(cudaFree(first.data() + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(CudaModel, PointersTellWhatTheyAre) {
  const DeviceArray<std::byte> device(3);
  const PinnedArray<std::byte> pinned(3);
  const auto type_of = [](const void* at) {
    cudaPointerAttributes found;
    WINNOW_CUDA_TRY(cudaPointerGetAttributes(&found, at));
    return found.type;
  };
  EXPECT_EQ(type_of(device.data() + 2), cudaMemoryTypeDevice);
  EXPECT_EQ(type_of(device.data() + 3), cudaMemoryTypeUnregistered);
  EXPECT_EQ(type_of(pinned.data()), cudaMemoryTypeHost);
  EXPECT_EQ(type_of(&device), cudaMemoryTypeUnregistered);
}

TEST(CudaModel, NothingIsDoneBeforeSomebodyWaits) {
  const Stream stream;
  const DeviceArray<std::uint32_t> count(1);
  const PinnedArray<std::uint32_t> seen(1);
  seen.data()[0] = 7;
  clear(stream.exec(), count.data());
  launch<Count>(stream.exec(), 3, {count.data()});
  enqueue_copy(seen.span(), count.span(), stream);
  EXPECT_EQ(seen.data()[0], 7U);
  stream.synchronize();
  EXPECT_EQ(seen.data()[0], 3U);
}

TEST(CudaModel, ACopyToPageableMemoryKeepsTheHost) {
  const Stream stream;
  const DeviceArray<std::uint32_t> count(1);
  std::uint32_t seen = 7;
  clear(stream.exec(), count.data());
  enqueue_copy(std::span(&seen, 1), count.span(), stream);
  EXPECT_EQ(seen, 0U);
}

TEST(CudaModel, OnlyAnOrderLetsOneStreamWaitForTheOther) {
  for (const bool ordered : {false, true}) {
    const Stream before, after;
    const Event event;
    const DeviceArray<std::uint32_t> count(1);
    clear(before.exec(), count.data());
    before.synchronize();
    launch<Count>(before.exec(), 1, {count.data()});
    if (ordered) kernels::cuda::order(before, after, event);
    EXPECT_EQ(count.download(after)[0], ordered ? 1U : 0U);
    before.synchronize();
  }
}

TEST(CudaModel, WorkThatIsGivenUpEndsInItsTurn) {
  const Stream stream;
  const DeviceArray<std::uint32_t> count(1);
  clear(stream.exec(), count.data());
  launch<Count>(stream.exec(), 3, {count.data()});
  {
    const Lock lock(model_mutex);
    finish(lock, *enqueue_elsewhere(lock, stream.get()));
  }
  stream.synchronize();
  EXPECT_EQ(*count.data(), 3U);
}

TEST(CudaModel, FreeingWaitsForStreamsThatOtherThreadsMade) {
  const DeviceArray<std::uint32_t> count(1);
  std::unique_ptr<Stream> stream;
  std::thread([&] { stream = std::make_unique<Stream>(); }).join();
  clear(stream->exec(), count.data());
  launch<Count>(stream->exec(), 3, {count.data()});
  { const DeviceArray<std::byte> freed(1); }
  EXPECT_EQ(*count.data(), 3U);
}

TEST(CudaModel, AGlobalCaptureForbidsWhatOtherThreadsAsk) {
  const Event event;  // of no capture
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    const Stream stream;
    const bool is_global = mode == cudaStreamCaptureModeGlobal;
    cudaStreamCaptureStatus capture{};
    ASSERT_EQ(cudaStreamBeginCapture(stream.get(), mode), cudaSuccess);
    std::thread([&] { EXPECT_TRUE(kernels::cuda::has_passed(event.get())); }).join();
    EXPECT_EQ(cudaStreamIsCapturing(stream.get(), &capture), cudaSuccess);
    EXPECT_EQ(capture, cudaStreamCaptureStatusActive);
    std::thread([&] {
      const cudaError_t status = cudaEventQuery(event.get());
      EXPECT_EQ(status, is_global ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    }).join();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream.get(), &graph),
              is_global ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    if (!is_global) {
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
  }
}

TEST(CudaModel, AnEventStandsWhereItWasRecorded) {
  const Stream stream;
  const Event event;
  const DeviceArray<std::uint32_t> count(1);
  EXPECT_EQ(cudaEventQuery(event.get()), cudaSuccess);  // never recorded
  clear(stream.exec(), count.data());
  event.record(stream);
  launch<Count>(stream.exec(), 1, {count.data()});
  event.synchronize();
  EXPECT_EQ(*count.data(), 0U);
  event.record(stream);
  EXPECT_EQ(cudaEventQuery(event.get()), cudaSuccess);  // runs everything before it
  EXPECT_EQ(*count.data(), 1U);
}

TEST(CudaModel, WhoFreesMemoryWaitsForWhatUsesIt) {
  const PinnedArray<std::uint32_t> seen(1);
  {
    const Stream stream;
    const DeviceArray<std::uint32_t> count(1);
    clear(stream.exec(), count.data());
    launch<Count>(stream.exec(), 2, {count.data()});
    enqueue_copy(seen.span(), count.span(), stream);
  }
  EXPECT_EQ(seen.data()[0], 2U);
}

TEST(CudaModel, ThreadsHaveStreamsOfTheirOwn) {
  constexpr std::size_t kThreads = 4;
  std::vector<std::uint32_t> seen(kThreads);
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&seen, t] {
        const Stream stream;
        const DeviceArray<std::uint32_t> count(1);
        clear(stream.exec(), count.data());
        for (int n = 0; n < 50; ++n) launch<Count>(stream.exec(), t + 1, {count.data()});
        seen[t] = count.download(stream)[0];
      });
    }
  }
  EXPECT_EQ(seen, (std::vector<std::uint32_t>{50, 100, 150, 200}));
}

TEST(CudaModel, ACaptureRunsNothingAndTakesNoAllocation) {
  const Stream stream;
  const DeviceArray<std::uint32_t> count(1);
  clear(stream.exec(), count.data());
  const Graph sound(stream, [&] { launch<Count>(stream.exec(), 1, {count.data()}); });
  EXPECT_EQ(count.download(stream)[0], 0U);
  EXPECT_THROW(Graph(stream, [&] { EXPECT_THROW(DeviceArray<float>(1), CudaError); }), CudaError);
  EXPECT_THROW(Graph(stream, [&] { EXPECT_THROW(stream.synchronize(), CudaError); }), CudaError);
  for (int replay = 0; replay < 3; ++replay) sound.launch(stream);
  EXPECT_EQ(count.download(stream)[0], 3U);
}

TEST(CudaModel, ACaptureTakesNoEventFromOutside) {
  const Stream stream, outside;
  const Event event;
  event.record(outside);
  EXPECT_THROW(Graph(stream,
                     [&] {
                       EXPECT_EQ(cudaStreamWaitEvent(stream.get(), event.get(), 0),
                                 cudaErrorStreamCaptureIsolation);
                     }),
               CudaError);
}

TEST(CudaModel, WhatALaunchMayNotBeIsRefused) {
  const Stream stream;
  EXPECT_THROW(launch<Divergent>(stream.exec(), 0, {}), CudaError);
  int no_stream = 0;
  EXPECT_THROW(launch<Divergent>({.place = Place::cuda, .stream = &no_stream}, 1, {}), CudaError);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

/// As on a GPU, nothing works afterwards, so this runs in its own process.
TEST(CudaModelDeathTest, AKernelThatFailsIsAnErrorOfWhoWaits) {
  EXPECT_EXIT(
      {
        const Stream stream;
        launch<Divergent>(stream.exec(), 1, {});
        try {
          stream.synchronize();
        } catch (const CudaError& error) {
          std::fprintf(stderr, "%s\n", error.what());
          std::_Exit(3);
        }
      },
      testing::ExitedWithCode(3), "cudaErrorLaunchFailure: .*255 threads wait at a barrier");
}

}  // namespace
}  // namespace winnow::tests
