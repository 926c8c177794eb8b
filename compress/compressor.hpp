// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/exec.hpp>

#include "compress/message.hpp"
#include "compress/part.hpp"
#include "kernels/call_status.hpp"
#include "kernels/terms.hpp"

namespace winnow::compress {

/// One part on its way into messages.
struct EncodeJob {
  const Part& part;
  float decay = 1;
  Header header;                     ///< of every message, but for count, k, codings and poison
  kernels::RandomKey random;         ///< the message to owner o takes stage random.stage + o
  double* encode_seconds = nullptr;  ///< grows by what follows the selection, or the fused pass of
                                     ///< a compressor that keeps everything; null: not counted
  double* add_seconds = nullptr;     ///< grows by the adding of what other ranks sent
};

/// What encode leaves. messages[o], for owner o, is room for
/// message_room(local_count(o), most_for(o)) bytes before and the message after; that of
/// Part::self stays as it is.
struct Outbox {
  std::span<std::span<std::byte>> messages;
  Owned owned = {};        ///< what encode knows of the positions of Part::self
  bool finite = true;      ///< whether every acc was; where not, messages carry Header::kPoison
  std::uint64_t kept = 0;  ///< elements chosen for messages
  /// On a device, if not null: the one message, for all, becomes this as if it had been opened, and
  /// the verdict is told of its poison.
  MessageView* opened = nullptr;
  kernels::CallStatus* verdict = nullptr;
};

/// Where Compressor::add writes. `message`, if not empty, has message_bytes(k, k, codings()) bytes
/// for k = sum.size().
struct Addition {
  std::span<float> sum;
  std::span<std::byte> message;
};

/// A message that came, or this rank's own, to be opened.
struct Incoming {
  std::span<const std::byte> message;
  Expected expected;
  int sender;
};

/// What a schedule ended with: the sums of owners where it is shared_out, else messages for all, in
/// their order.
struct Outcome {
  std::span<const MessageView> messages;
  bool shared_out = false;
  float factor = 1;
  bool zeroed = false;  ///< the elements are as encode left them; else they may hold anything: in
                        ///< host memory they are set to zero first
  /// On a device, if not null: by it nothing is written where a message may not be read, and to it
  /// goes whether the sums are finite.
  kernels::CallStatus* verdict = nullptr;
};

/// How a rank's gradient becomes messages: a selection, the coding of what it selects, and error
/// feedback with what is not sent. Stateless: what is carried lies in the Part's ParameterStates.
class Compressor {
 public:
  explicit Compressor(const Codings& codings) : codings_(codings) {}
  virtual ~Compressor() = default;

  const Codings& codings() const { return codings_; }
  /// Whether it keeps everything exactly, so that a dense schedule does the same for less.
  bool lossless() const { return everything() && codings_.exact(); }

  /// The specification in its canonical form, e.g. "topk:0.01,int8".
  virtual std::string name() const;
  /// Whether it keeps every element of any parameter.
  virtual bool everything() const = 0;
  /// k: elements kept of `count` elements of a parameter.
  virtual std::uint64_t kept(std::uint64_t count) const = 0;
  /// Whether k is only the most that may be kept, and messages say how many there are.
  virtual bool any_k() const { return false; }
  /// Of such a compressor: every acc of this magnitude or more is kept, and no other.
  virtual float bound() const { return 0; }
  /// Error feedback, selection and coding of one part in one pass: writes one message per owner,
  /// and leaves the rest in the residuals. The elements become zero where not everything is kept;
  /// where it is, they stay (in device memory they are undefined then and there: write_outcome
  /// writes them all). Outbox::owned is taken from exec.workspace.
  virtual void encode(const Exec& exec, const EncodeJob& job, Outbox& out) const = 0;
  /// Adds what other ranks sent, in rank order, to what this rank owns (contributions[r] is of rank
  /// r, that of Part::self empty), then selects and codes the sums: writes one message to `out`,
  /// room for message_bytes(local_count(self), owner_k[self], codings()) bytes, and to `owned` what
  /// is left for keep_left. Returns the message. The residuals stay. The message carries
  /// Header::kPoison where job.header does or a sum is not finite. job.random names its random
  /// numbers.
  virtual std::span<std::byte> encode_sums(const Exec& exec, const EncodeJob& job,
                                           std::span<const MessageView> contributions, Owned& owned,
                                           std::span<std::byte> out) const = 0;

  // For schedules that agree on a support before values travel.

  /// Error feedback in one pass over memory, after which residuals hold acc and the elements are
  /// zero, and the support that Part::self picks from this rank's acc: its owner_k[self] largest.
  /// Writes a message of message_bytes(local_count(self), owner_k[self],
  /// codings().without_values()) bytes, with Header::kPoison where job.header has it or an acc is
  /// not finite. Takes no more scratch in one turn than in another. Throws UsageError where any_k:
  /// ranks could not know how many values follow.
  virtual void select(const Exec& exec, const EncodeJob& job, std::span<std::byte> out) const = 0;
  /// Moves acc at taken.index out of the residuals into taken.value. Where there is room, `out`
  /// (message_bytes(k, k, codings()) for k values) becomes a message of them, and what the coding
  /// misses goes back into the residuals.
  virtual void take(const Exec& exec, const EncodeJob& job, Taken& taken,
                    std::span<std::byte> out) const;
  /// Moves taken.value back, over what the residuals hold there: undoes take.
  virtual void put(const Exec& exec, const Part& part, const Taken& taken) const;
  /// Sums terms of as many values in their order: out.sum[i] = ((0 + terms[0][i]) + terms[1][i]) +
  /// ...; where there is room, codes the sums, with Header::kPoison where one is not finite, and
  /// leaves in out.sum what the coding misses.
  virtual void add(const Exec& exec, const EncodeJob& job, std::span<const MessageView> terms,
                   const Addition& out) const;

  /// The sum whose values travelled in a message of their own, at the positions of its support:
  /// with the flags of both, and no bytes until it is packed.
  virtual MessageView place_values(const Exec& exec, const MessageView& support,
                                   const MessageView& values) const;

  /// Room for a message, from scratch of the place. This and open are here for compressors that
  /// only count bytes: schedules touch messages by them alone.
  virtual std::span<std::byte> room(const Exec& exec, std::size_t bytes) const;
  /// compress::open with the codings of this compressor: partial_codings of them for a partial,
  /// and none of values for a support.
  virtual MessageView open(const Exec& exec, std::span<const std::byte> message,
                           const Expected& expected, int sender) const;
  /// Opens all of them, which are of one kind, into as many views. Returns the flags of all headers
  /// together, on which ranks agree. On a device waits for it once.
  virtual std::uint16_t open_all(const Exec& exec, std::span<const Incoming> incoming,
                                 std::span<MessageView> views) const;
  /// The same of messages of fixed sizes on a device, which the host does not wait for: what is to
  /// be said of them goes to the verdict, by their senders. By that alone may be known whether what
  /// the views name can be read.
  virtual void open_unseen(const Exec& exec, std::span<const Incoming> incoming,
                           std::span<MessageView> views, kernels::CallStatus& verdict) const;
  /// compress::merge and compress::pack with the codings of this compressor: a lossy one is applied
  /// once, by the sender whose residual keeps what it misses.
  virtual MessageView merge(const Exec& exec, const Header& header, const MessageView& first,
                            const MessageView& second) const;
  virtual void pack(const Exec& exec, MessageView& sum, std::span<std::byte> out) const;

  // For schedules in which gradients travel whole within a node.

  /// Seals a header that goes alone, before a gradient: `out` has sizeof(Header) bytes.
  virtual void announce(const Exec& exec, const Header& header, std::span<std::byte> out) const;
  /// sum = the gradients, by kernels::ordered_sum. One that is not finite shows in the sum.
  virtual void sum_gradients(const Exec& exec, std::span<const kernels::Term> gradients,
                             std::span<float> sum) const;
  /// The elements of a part = the sum of what a schedule ended with, times factor. Returns whether
  /// all are finite; true where a verdict says so.
  virtual bool write_outcome(const Exec& exec, const Part& part, const Outcome& outcome) const;
  /// residual += message to `owner`: undoes what encode took.
  virtual void put_back(const Exec& exec, const Part& part, std::uint32_t owner,
                        const MessageView& message) const;
  /// compress::keep_left and compress::put_back_own.
  virtual void keep_left(const Exec& exec, const Part& part, const Owned& owned) const;
  virtual void put_back_own(const Exec& exec, const Part& part, const Owned& owned) const;

 protected:
  /// Those of messages of a kind.
  Codings codings_of(Header::Kind kind) const;
  /// The selection's own part of the name, e.g. "topk:0.01".
  virtual std::string selection() const = 0;

 private:
  Codings codings_;
};

/// A line of the table of selections.
struct SelectionEntry {
  std::string_view name;
  std::string_view grammar;  ///< how it is written, for messages and --help
  std::unique_ptr<Compressor> (*make)(std::string_view argument, const Codings& codings);
};
std::span<const SelectionEntry> selections();

/// Parses SELECTION[:ARGUMENT][,VALUE[:block=N][:stochastic]][,INDEX], e.g. "topk:0.01",
/// "topk:0.01,int8:block=128:stochastic,bitmap" or, of every element, "int4". Throws UsageError; an
/// unknown word names the nearest known one.
std::unique_ptr<Compressor> make_compressor(std::string_view specification);

/// The most bytes that a message can have which carries k or fewer of count elements.
std::size_t message_room(std::uint64_t count, std::uint64_t k, const Codings& codings);

/// Shares a part out among `owners`, of whom this rank is `self`, and says how many elements are
/// kept where: in Piece and Part. With one owner and self Part::kNobody a message is for all ranks.
void share_out(Part& part, const Compressor& compressor, std::uint32_t owners, std::uint32_t self);

/// Makes this rank another owner of a part that was shared out: Part::self and what is its own of
/// each piece. What is kept for others, Part::k and Piece::k, stays that of the owner it was.
void become_owner(Part& part, const Compressor& compressor, std::uint32_t self);

}  // namespace winnow::compress
