// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "train/device/device.hpp"

namespace train {

/// Sizes of the network: the last `context` bytes, each as `embedding` numbers, through two hidden
/// layers to one score for each of the `symbols` possible next bytes.
struct Shape {
  int context = 16;
  int embedding = 32;
  int hidden = 768;
  int symbols = 256;
};

/// Where a parameter tensor lies in the arena of all parameters (and of all gradients).
struct Tensor {
  std::string name;
  int dimensions;
  std::size_t begin, count;
};

/// The task: predict the bytes at `targets` of `text`, each from the `context` bytes before it.
struct Windows {
  std::span<const std::uint8_t> text;
  std::span<const std::uint64_t> targets;
};

/// A byte-level language model: embedding, two ReLU layers, softmax (Bengio et al., 2003).
/// Scalar is float, or double for the gradient's test.
template <class Scalar>
class Model {
 public:
  /// Initial parameters depend only on `seed` and have the same bits on every rank.
  Model(const Shape& shape, std::uint64_t seed,
        std::shared_ptr<Device<Scalar>> device = cpu_device<Scalar>());
  ~Model();

  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// In the device's memory, like the gradients.
  std::span<Scalar> parameters();
  std::span<Scalar> gradients();

  /// The loss, in nats, summed over the windows.
  double loss(const Windows& windows);
  /// Returns the same, and sets gradients() to those of the mean loss.
  double loss_and_gradients(const Windows& windows);
  /// Also calls ready(tensors) whenever the gradients of more tensors are complete, in device
  /// order, from the last layer to the embedding.
  using Ready = std::function<void(std::span<const Tensor>)>;
  double loss_and_gradients(const Windows& windows, const Ready& ready);

 private:
  struct Network;
  std::vector<Tensor> tensors_;
  std::unique_ptr<Network> network_;
};

}  // namespace train
