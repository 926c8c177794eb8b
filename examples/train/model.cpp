// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/model.hpp"

#include <cmath>
#include <numeric>
#include <utility>

#include "train/random.hpp"

namespace train {

namespace {

/// Names the tensors in arena order: embedding, then weight and bias of each layer.
std::vector<Tensor> lay_out(const Shape& shape) {
  std::vector<Tensor> tensors;
  std::size_t end = 0;
  const auto add = [&](std::string name, int rows, int columns) {
    const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
    tensors.push_back({std::move(name), columns == 1 ? 1 : 2, end, count});
    end += count;
  };
  const auto add_layer = [&](const std::string& name, int inputs, int outputs) {
    add(name + ".weight", outputs, inputs);
    add(name + ".bias", outputs, 1);
  };
  add("embedding.weight", shape.embedding, shape.symbols);
  add_layer("hidden1", shape.context * shape.embedding, shape.hidden);
  add_layer("hidden2", shape.hidden, shape.hidden);
  add_layer("output", shape.hidden, shape.symbols);
  return tensors;
}

}  // namespace

/// Columns are windows. With x[0] the embedded context and W, b a layer's parameters,
///   forward    x[l + 1] = relu(W x[l] + b), without relu and with softmax after the last layer
///   backward   d[l + 1] = the loss by W x[l] + b;  dW = d[l + 1] x[l]',  db = rows of d[l + 1],
///              d[l] = W' d[l + 1] where x[l] > 0
template <class Scalar>
struct Model<Scalar>::Network {
  using Matrix = MatrixView<Scalar>;

  struct Layer {
    Matrix weight, weight_gradient;
    Scalar *bias, *bias_gradient;
  };

  Shape shape;
  std::shared_ptr<Device<Scalar>> device;
  Array<Scalar> parameters, gradients;
  Matrix embedding, embedding_gradient;
  std::vector<Layer> layers;
  Array<std::uint8_t> contexts, targets;  // bytes: `context` per window, and one
  Array<double> losses;                   // per window
  std::vector<Array<Scalar>> x_memory, d_memory;
  std::vector<Matrix> x, d;

  Network(const Shape& sizes, const std::vector<Tensor>& tensors,
          std::shared_ptr<Device<Scalar>> computing)
      : shape(sizes),
        device(std::move(computing)),
        parameters(device, tensors.back().begin + tensors.back().count),
        gradients(device, parameters.span().size()),
        embedding(table_in(parameters)),
        embedding_gradient(table_in(gradients)),
        contexts(device),
        targets(device),
        losses(device) {
    for (std::size_t i = 1; i < tensors.size(); i += 2) {
      const Tensor &weight = tensors[i], &bias = tensors[i + 1];
      const std::size_t outputs = bias.count, inputs = weight.count / bias.count;
      layers.push_back({{parameters.data() + weight.begin, outputs, inputs},
                        {gradients.data() + weight.begin, outputs, inputs},
                        parameters.data() + bias.begin,
                        gradients.data() + bias.begin});
    }
    for (std::size_t l = 0; l <= layers.size(); ++l) {
      x_memory.emplace_back(device);
      d_memory.emplace_back(device);
    }
    x.resize(layers.size() + 1);
    d.resize(layers.size() + 1);
  }

  /// Leaves the probabilities of the next byte in x.back(), and the windows' losses.
  void forward(const Windows& windows) {
    begin(windows);
    device->take_columns(embedding, contexts.span(), of_symbols(x[0]));
    for (std::size_t l = 0; l < layers.size(); ++l) {
      device->multiply(layers[l].weight, Take::as_is, x[l], Take::as_is, x[l + 1]);
      device->add_bias(x[l + 1], layers[l].bias);
      if (l + 1 < layers.size()) device->relu(x[l + 1]);
    }
    device->softmax(x.back(), targets.span(), losses.data());
  }

  /// Calls ready(l) when layer l's gradients are complete; for layer 0 the embedding's, too.
  template <class LayerReady>
  void backward(const LayerReady& ready) {
    device->softmax_backward(x.back(), targets.span(), d.back());
    for (std::size_t l = layers.size(); l-- > 0;) {
      const Layer& layer = layers[l];
      device->multiply(d[l + 1], Take::as_is, x[l], Take::transposed, layer.weight_gradient);
      device->sum_rows(d[l + 1], layer.bias_gradient);
      if (l > 0) ready(l);
      device->multiply(layer.weight, Take::transposed, d[l + 1], Take::as_is, d[l]);
      if (l > 0) device->relu_backward(x[l], d[l]);
    }
    device->sum_columns(of_symbols(d[0]), contexts.span(), embedding_gradient);
    ready(0);
  }

  /// Waits for the losses of forward().
  double loss() {
    const std::vector<double> each = device->read(losses.span());
    return std::accumulate(each.begin(), each.end(), 0.0);
  }

 private:
  Matrix table_in(const Array<Scalar>& arena) const {
    return {arena.data(), static_cast<std::size_t>(shape.embedding),
            static_cast<std::size_t>(shape.symbols)};
  }

  /// Embedded contexts with one column per byte.
  Matrix of_symbols(const Matrix& of_windows) const {
    return {of_windows.data, embedding.rows, contexts.span().size()};
  }

  /// Copies the windows' bytes to the device, and makes room for the rest.
  void begin(const Windows& windows) {
    const auto context = static_cast<std::size_t>(shape.context);
    std::vector<std::uint8_t> before, next;
    for (const std::uint64_t target : windows.targets) {
      const auto text = windows.text.subspan(target - context, context + 1);
      before.insert(before.end(), text.begin(), text.end() - 1);
      next.push_back(text.back());
    }
    contexts.assign(before);
    targets.assign(next);
    losses.resize(next.size());
    for (std::size_t l = 0; l < x.size(); ++l) {
      const std::size_t rows = l == 0 ? layers[0].weight.columns : layers[l - 1].weight.rows;
      for (auto [memory, matrix] : {std::pair(&x_memory[l], &x[l]), {&d_memory[l], &d[l]}}) {
        memory->resize(rows * next.size());
        *matrix = {memory->data(), rows, next.size()};
      }
    }
  }
};

template <class Scalar>
Model<Scalar>::Model(const Shape& shape, std::uint64_t seed, std::shared_ptr<Device<Scalar>> device)
    : tensors_(lay_out(shape)),
      network_(std::make_unique<Network>(shape, tensors_, std::move(device))) {
  // Uniform with the variance 1 / inputs (LeCun et al., 1998); 1 for embeddings. Biases start at
  // zero. Plain arithmetic on integer hashes: equal on any machine.
  std::vector<Scalar> start(parameters().size());
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const Tensor& tensor = tensors_[t];
    if (tensor.dimensions == 1) continue;
    const bool is_embedding = t == 0;
    const double inputs = is_embedding ? 1
                                       : static_cast<double>(tensor.count) /
                                             static_cast<double>(tensors_[t + 1].count);
    const double limit = std::sqrt(3 / inputs);
    for (std::size_t i = 0; i < tensor.count; ++i) {
      start[tensor.begin + i] = static_cast<Scalar>(limit * (2 * random_unit({seed, t, i}) - 1));
    }
  }
  network_->device->write(parameters(), start);
}

template <class Scalar>
Model<Scalar>::~Model() = default;

template <class Scalar>
std::span<Scalar> Model<Scalar>::parameters() {
  return network_->parameters.span();
}

template <class Scalar>
std::span<Scalar> Model<Scalar>::gradients() {
  return network_->gradients.span();
}

template <class Scalar>
double Model<Scalar>::loss(const Windows& windows) {
  network_->forward(windows);
  return network_->loss();
}

template <class Scalar>
double Model<Scalar>::loss_and_gradients(const Windows& windows) {
  return loss_and_gradients(windows, [](std::span<const Tensor>) {});
}

template <class Scalar>
double Model<Scalar>::loss_and_gradients(const Windows& windows, const Ready& ready) {
  network_->forward(windows);
  const std::span<const Tensor> all(tensors_);
  network_->backward([&](std::size_t layer) {
    ready(layer == 0 ? all.first(3) : all.subspan(2 * layer + 1, 2));  // weight and bias
  });
  return network_->loss();
}

template class Model<float>;
template class Model<double>;

}  // namespace train
