// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/model.hpp"

#include <Eigen/Dense>
#include <cmath>

#include "train/random.hpp"

// The only file that includes Eigen: it alone is compiled for the instruction set of this machine,
// on which the sizes and alignment of Eigen's types depend.

namespace train {

namespace {

/// Names the tensors in the order of the arena: embedding, then weight and bias of each layer.
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
  using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;
  using Vector = Eigen::Matrix<Scalar, Eigen::Dynamic, 1>;
  using MatrixView = Eigen::Map<Matrix>;
  using VectorView = Eigen::Map<Vector>;
  using Index = Eigen::Index;

  struct Layer {
    MatrixView weight, weight_gradient;
    VectorView bias, bias_gradient;
  };

  Shape shape;
  Vector parameters, gradients;  // Eigen's, since the order of its sums goes by alignment
  MatrixView embedding, embedding_gradient;
  std::vector<Layer> layers;
  std::vector<Matrix> x, d;

  Network(const Shape& sizes, const std::vector<Tensor>& tensors)
      : shape(sizes),
        parameters(Vector::Zero(static_cast<Index>(tensors.back().begin + tensors.back().count))),
        gradients(Vector::Zero(parameters.size())),
        embedding(parameters.data(), sizes.embedding, sizes.symbols),
        embedding_gradient(gradients.data(), sizes.embedding, sizes.symbols) {
    for (std::size_t i = 1; i < tensors.size(); i += 2) {
      const Tensor &weight = tensors[i], &bias = tensors[i + 1];
      const auto outputs = static_cast<Index>(bias.count);
      const auto inputs = static_cast<Index>(weight.count / bias.count);
      layers.push_back({MatrixView(parameters.data() + weight.begin, outputs, inputs),
                        MatrixView(gradients.data() + weight.begin, outputs, inputs),
                        VectorView(parameters.data() + bias.begin, outputs),
                        VectorView(gradients.data() + bias.begin, outputs)});
    }
    x.resize(layers.size() + 1);
    d.resize(layers.size() + 1);
  }

  /// Leaves the probabilities of the next byte in x.back(); returns the sum of losses.
  double forward(const Windows& windows) {
    embed(windows);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      x[l + 1].noalias() = layers[l].weight * x[l];
      x[l + 1].colwise() += layers[l].bias;
      if (l + 1 < layers.size()) x[l + 1] = x[l + 1].cwiseMax(Scalar(0));
    }
    return softmax(windows);
  }

  /// Calls ready(l) when layer l's gradients are complete; layer 0's once the embedding's are too.
  template <class LayerReady>
  void backward(const Windows& windows, const LayerReady& ready) {
    const auto count = static_cast<Index>(windows.targets.size());
    d.back() = x.back();
    for (Index i = 0; i < count; ++i) d.back()(target(windows, i), i) -= Scalar(1);
    d.back() /= static_cast<Scalar>(count);
    for (std::size_t l = layers.size(); l-- > 0;) {
      layers[l].weight_gradient.noalias() = d[l + 1] * x[l].transpose();
      layers[l].bias_gradient = d[l + 1].rowwise().sum();
      if (l > 0) ready(l);
      d[l].noalias() = layers[l].weight.transpose() * d[l + 1];
      if (l > 0) d[l] = (x[l].array() > Scalar(0)).select(d[l], Scalar(0));
    }
    embed_backward(windows);
    ready(0);
  }

 private:
  static Index target(const Windows& windows, Index window) {
    return windows.text[windows.targets[static_cast<std::size_t>(window)]];
  }

  /// The byte at place `place` of a window's context.
  Index context(const Windows& windows, Index window, Index place) const {
    const std::uint64_t at = windows.targets[static_cast<std::size_t>(window)];
    return windows.text[at - static_cast<std::uint64_t>(shape.context - place)];
  }

  void embed(const Windows& windows) {
    const Index width = shape.embedding;
    x[0].resize(shape.context * width, static_cast<Index>(windows.targets.size()));
    for (Index i = 0; i < x[0].cols(); ++i) {
      for (Index place = 0; place < shape.context; ++place) {
        x[0].col(i).segment(place * width, width) = embedding.col(context(windows, i, place));
      }
    }
  }

  void embed_backward(const Windows& windows) {
    const Index width = shape.embedding;
    embedding_gradient.setZero();
    for (Index i = 0; i < d[0].cols(); ++i) {
      for (Index place = 0; place < shape.context; ++place) {
        embedding_gradient.col(context(windows, i, place)) +=
            d[0].col(i).segment(place * width, width);
      }
    }
  }

  /// Turns scores into probabilities in place.
  double softmax(const Windows& windows) {
    Matrix& scores = x.back();
    double loss = 0;
    for (Index i = 0; i < scores.cols(); ++i) {
      auto column = scores.col(i).array();
      column -= column.maxCoeff();
      const Scalar score = column(target(windows, i));
      column = column.exp();
      const Scalar sum = column.sum();
      column /= sum;
      loss += std::log(static_cast<double>(sum)) - static_cast<double>(score);
    }
    return loss;
  }
};

template <class Scalar>
Model<Scalar>::Model(const Shape& shape, std::uint64_t seed)
    : tensors_(lay_out(shape)), network_(std::make_unique<Network>(shape, tensors_)) {
  // Uniform with the variance 1 / inputs (LeCun et al., 1998); 1 for embeddings. Biases start at
  // zero. Plain arithmetic on integer hashes: equal on any machine.
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const Tensor& tensor = tensors_[t];
    if (tensor.dimensions == 1) continue;
    const bool is_embedding = t == 0;
    const double inputs = is_embedding ? 1
                                       : static_cast<double>(tensor.count) /
                                             static_cast<double>(tensors_[t + 1].count);
    const double limit = std::sqrt(3 / inputs);
    for (std::size_t i = 0; i < tensor.count; ++i) {
      parameters()[tensor.begin + i] =
          static_cast<Scalar>(limit * (2 * random_unit({seed, t, i}) - 1));
    }
  }
}

template <class Scalar>
Model<Scalar>::~Model() = default;

template <class Scalar>
std::span<Scalar> Model<Scalar>::parameters() {
  return {network_->parameters.data(), static_cast<std::size_t>(network_->parameters.size())};
}

template <class Scalar>
std::span<Scalar> Model<Scalar>::gradients() {
  return {network_->gradients.data(), static_cast<std::size_t>(network_->gradients.size())};
}

template <class Scalar>
double Model<Scalar>::loss(const Windows& windows) {
  return network_->forward(windows);
}

template <class Scalar>
double Model<Scalar>::loss_and_gradients(const Windows& windows) {
  return loss_and_gradients(windows, [](std::span<const Tensor>) {});
}

template <class Scalar>
double Model<Scalar>::loss_and_gradients(const Windows& windows, const Ready& ready) {
  const double loss = network_->forward(windows);
  const std::span<const Tensor> all(tensors_);
  network_->backward(windows, [&](std::size_t layer) {
    ready(layer == 0 ? all.first(3) : all.subspan(2 * layer + 1, 2));  // weight and bias
  });
  return loss;
}

template class Model<float>;
template class Model<double>;

}  // namespace train
