/* Copyright The Winnow Authors
   SPDX-License-Identifier: Apache-2.0 */
#ifndef WINNOW_WINNOW_H
#define WINNOW_WINNOW_H

/* Winnow's C interface: the binary interface for other languages. winnow.hpp is the C++ interface;
   it says at length what each call does.

   Functions return a status, and set their last argument only if it is WINNOW_SUCCESS. After any
   other status winnow_last_error() says what was wrong. Those that return no status answer -1, NULL
   or 0 instead. Handles are opaque; each has a function that destroys it and takes NULL too. What a
   call needs and is NULL (or MPI_IN_PLACE), a value that its enumeration does not have, a number
   that is none and a count that memory cannot have are WINNOW_USAGE_ERROR. A structure begins with
   its size in bytes, which the caller sets to sizeof, so that later versions can add members at its
   end; what the caller does not know counts as 0, unless it is said otherwise. Seconds below 0 are
   for ever. Values of enumerations never change. Text is UTF-8 and ends with a null byte.

   Threads: any thread may make calls, but only one at a time for each handle. Exceptions are named
   below. In a child of a fork calls fail with WINNOW_USAGE_ERROR, but for those that only read what
   this process has (winnow_work_test, residuals, statistics), and destroying does nothing. */

#include <stddef.h>
#include <stdint.h>

#define WINNOW_VERSION_MAJOR 0
#define WINNOW_VERSION_MINOR 1
#define WINNOW_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum winnow_status {
  WINNOW_SUCCESS = 0,
  WINNOW_USAGE_ERROR = 1,  /* the caller's fault; on every rank where ranks must agree */
  WINNOW_COMM_ERROR = 2,   /* the ranks cannot finish; the gradient is in the residuals */
  WINNOW_CUDA_ERROR = 3,   /* the device failed */
  WINNOW_MEMORY_ERROR = 4, /* no memory */
  WINNOW_INTERNAL_ERROR = 5
};

/* What was wrong with the calling thread's last call that failed. Valid until the next one. */
const char* winnow_last_error(void);
/* For functions of winnow_transport_functions: the text behind the status that they return. */
void winnow_set_last_error(const char* text);
/* "0.1.0": of the library that runs, which may be newer than this header. */
const char* winnow_version(void);

/* ---- Transports ---- */

/* Moves bytes between the ranks of a job. One transport serves one reducer or mixed transport at a
   time; making a second one is a WINNOW_USAGE_ERROR. For another, call
   winnow_transport_duplicate. */
typedef struct winnow_transport winnow_transport;

void winnow_transport_destroy(winnow_transport* transport);
int winnow_transport_rank(const winnow_transport* transport);
int winnow_transport_size(const winnow_transport* transport);
/* Equal on ranks of one node. */
int winnow_transport_node(const winnow_transport* transport);
/* Makes the transport unusable and wakes peers that wait on it: their calls and this rank's fail
   with WINNOW_COMM_ERROR, which names the reason. Never blocks. */
void winnow_transport_abort(winnow_transport* transport, const char* reason);
/* Another transport of the same ranks, with its own order of messages, failures and thread, which
   may outlive this one. Collective; no call of a reducer of `transport` may be in flight. Fails if
   the ranks have not come after that many seconds, and `transport` is then unusable, too.
   WINNOW_USAGE_ERROR for functions without `duplicate`. */
int winnow_transport_duplicate(winnow_transport* transport, double seconds,
                               winnow_transport** duplicate);

/* `size` ranks, 1024 at most, that are threads of this process: sets transports[0] to
   transports[size - 1]. Each rank's calls come from a thread of its own. */
int winnow_local_transports(int size, winnow_transport** transports);

/* Where one rank of a new TCP world can be reached (tcp.hpp). Make one on each rank, pass its
   address to all ranks by any store, and connect. If none can be made, pass winnow_last_error() in
   place of the address: winnow_tcp_connect then fails on the others, and shows it. */
typedef struct winnow_tcp_listener winnow_tcp_listener;

/* `interfaces`: names of network interfaces, comma-separated; NULL: those of WINNOW_SOCKET_IFNAME,
   or all that are up. */
int winnow_tcp_listen(const char* interfaces, winnow_tcp_listener** listener);

/* How a rank listens, and by what ranks know each other (TcpOptions in tcp.hpp). */
typedef struct winnow_tcp_options {
  uint32_t struct_bytes;
  const char* interfaces; /* as in winnow_tcp_listen */
  const char* secret;  /* of the job, equal on all ranks, not empty; NULL: that of WINNOW_TCP_SECRET
                          or of the file that WINNOW_TCP_SECRET_FILE names, or none */
  double host_timeout; /* seconds; 0: 20 */
  const char* tls;     /* between hosts (TcpTls in tcp.hpp): "off"; "secret": a key from the secret;
                          "certificates": the PEM files below; NULL: WINNOW_TCP_TLS, or off */
  const char* tls_certificate; /* NULL: that of the environment; likewise the next two */
  const char* tls_key;
  const char* tls_authority;
  const int32_t* stop; /* NULL, or of a meeting: a number that is 0. If another thread changes it,
                          atomically, while ranks are still to come, winnow_tcp_transport_with fails
                          with WINNOW_COMM_ERROR and listens no more */
} winnow_tcp_options;

/* The same; `options` may be NULL: those of the environment. */
int winnow_tcp_listen_with(const winnow_tcp_options* options, winnow_tcp_listener** listener);
/* 1 if this process has OpenSSL's libcrypto or can load it, as a secret needs, otherwise 0. */
int winnow_tcp_can_have_secret(void);
/* One line of text without blanks; lives as long as the listener. */
const char* winnow_tcp_address(const winnow_tcp_listener* listener);
/* The transport of rank `rank` of `size`, where addresses[r] is that of rank r. Collective, and
   once. Fails if the ranks have not come after that many seconds. */
int winnow_tcp_connect(winnow_tcp_listener* listener, int rank, int size,
                       const char* const* addresses, double seconds, winnow_transport** transport);
void winnow_tcp_listener_destroy(winnow_tcp_listener* listener);

/* Where ranks without a store meet: rank 0 listens at a port that all know. */
typedef struct winnow_tcp_meeting {
  uint32_t struct_bytes;
  int32_t rank, size;
  int32_t port;     /* 0: a free one of the 16 from 29555 on */
  const char* host; /* name or number of rank 0's host */
  const char* job;  /* equal on the ranks of one job, and no other's; NULL: what launchers say */
} winnow_tcp_meeting;

/* NULL: RANK, WORLD_SIZE and MASTER_ADDR, as torchrun sets them, WINNOW_TCP_PORT and WINNOW_TCP_JOB
   (TcpMeeting in tcp.hpp). Collective. Fails if the ranks have not come after that many seconds;
   and on all ranks if options or variables of one do not let it listen. */
int winnow_tcp_transport(const winnow_tcp_meeting* meeting, double seconds,
                         winnow_transport** transport);
/* The same; `meeting` and `options` may be NULL: those of the environment. */
int winnow_tcp_transport_with(const winnow_tcp_meeting* meeting, const winnow_tcp_options* options,
                              double seconds, winnow_transport** transport);

/* Over a communicator: `communicator` points to an MPI_Comm. Collective. Fails if the ranks have
   not met after that many seconds. In libwinnow_mpi. */
int winnow_mpi_transport(const void* communicator, double seconds, winnow_transport** transport);
/* The same for a communicator as Fortran has it: an MPI_Fint. In libwinnow_mpi. */
int winnow_mpi_transport_fortran(int communicator, double seconds, winnow_transport** transport);

/* Over a new NCCL communicator of the ranks of `other`, which takes host memory and is used only
   in this call. Collective. For buckets in memory of the current device. */
int winnow_nccl_transport(winnow_transport* other, double seconds, winnow_transport** transport);

/* How NCCL makes a communicator (NcclOptions in nccl.hpp), equal on all ranks. 0: NCCL chooses. */
typedef struct winnow_nccl_options {
  uint32_t struct_bytes;
  int32_t min_ctas, max_ctas; /* thread blocks that one of NCCL's kernels takes */
  int32_t cga_cluster_size;   /* thread blocks of a cluster: from 1, for none, to 8 */
  int32_t register_memory;    /* 1: registers a reducer's device scratch with NCCL; 0: does not */
} winnow_nccl_options;

/* The same with options, which also hold for duplicates. */
int winnow_nccl_transport_with(winnow_transport* other, const winnow_nccl_options* options,
                               double seconds, winnow_transport** transport);
/* 1 if this Winnow was built with NCCL and the process has it or can load it, otherwise 0. */
int winnow_nccl_available(void);

/* Messages within a node go over `node`, the others over `world`: NCCL and TCP, say. `node` has the
   ranks that share this rank's winnow_transport_node, in the order of `world`, which takes host
   memory. The new transport keeps both, and from here on nobody else uses them. Collective over
   `world`. */
int winnow_mixed_transport(winnow_transport* world, winnow_transport* node, double seconds,
                           winnow_transport** transport);

/* One message of a start. */
typedef struct winnow_message {
  uint32_t struct_bytes;
  int32_t peer;            /* the other rank */
  int32_t sends;           /* 1: to the peer, and `data` is only read; 0: from the peer */
  int32_t reserved;        /* 0 */
  void* data;              /* host memory */
  uint64_t bytes;          /* to send, or the room for what is received */
  uint64_t* message_bytes; /* of a receipt, or NULL: set it to the message's true size */
} winnow_message;

/* A transport made of the caller's functions, for a network that Winnow does not know. Messages
   between two ranks arrive in the order sent. Each function returns a status, after
   winnow_set_last_error if it is not WINNOW_SUCCESS; the transport is then broken. The status is
   WINNOW_USAGE_ERROR for a message that is longer than its room, and where a peer has aborted for a
   reason that begins with "usage error: ": the call then says the same on all ranks. One thread at
   a time calls them, which may be a thread of Winnow's own if `threads` is 1; abort may be called
   at any time. */
typedef struct winnow_transport_functions {
  uint32_t struct_bytes;
  int32_t rank, size, node;
  int32_t sizes_travel; /* 1: a receipt learns its message's size; 0: messages fill their room */
  int32_t threads;      /* 1: Winnow's own thread may call the functions */
  void* self;           /* passed to each function */
  /* Starts messages; their memory stays until wait has returned for `ticket`, which grows by 1. */
  int (*start)(void* self, const winnow_message* messages, size_t count, uint64_t ticket);
  /* Returns when the messages of this ticket and of earlier ones are done, or fails after that
     many seconds; less than 0: never. */
  int (*wait)(void* self, uint64_t ticket, double seconds);
  /* Breaks the transport and wakes peers, which learn the reason. Does not block. */
  void (*abort)(void* self, const char* reason);
  /* Called once nothing else will be, by the thread that lets go of the transport; or NULL. */
  void (*destroy)(void* self);
  /* For winnow_transport_duplicate, or NULL: fills in the functions of another transport of the
     same ranks, up to the struct_bytes that are there. Collective; fails after that many seconds,
     and below 0 waits for ever. */
  int (*duplicate)(void* self, double seconds, struct winnow_transport_functions* made);
} winnow_transport_functions;

int winnow_transport_from_functions(const winnow_transport_functions* functions,
                                    winnow_transport** transport);

/* ---- Reducers ---- */

enum winnow_element_type {
  WINNOW_FLOAT32 = 0,
  WINNOW_BF16 = 1,
  WINNOW_FP16 = 2,
  WINNOW_FLOAT64 = 3,
  WINNOW_INT8 = 4,
  WINNOW_UINT8 = 5,
  WINNOW_INT32 = 6,
  WINNOW_UINT32 = 7,
  WINNOW_INT64 = 8,
  WINNOW_UINT64 = 9
};

enum winnow_reduce_op {
  WINNOW_DEFAULT_OP = -1, /* the reducer's option "op": the average unless set */
  WINNOW_SUM = 0,
  WINNOW_AVERAGE = 1,
  WINNOW_MINIMUM = 2,
  WINNOW_MAXIMUM = 3,
  WINNOW_PRODUCT = 4
};

enum winnow_place { WINNOW_HOST = 0, WINNOW_CUDA = 1 };

/* Sums buckets over all ranks, sending only what matters and carrying the rest as residuals into
   the next call. */
typedef struct winnow_reducer winnow_reducer;

typedef struct winnow_reducer_settings {
  uint32_t struct_bytes;
  int32_t place;       /* of the buckets: host memory, or memory of the current device */
  void* stream;        /* a cudaStream_t if place is WINNOW_CUDA; otherwise NULL */
  const char* options; /* words such as "compressor=topk:0.01 op=sum"; NULL: none. Variables of the
                          environment (WINNOW_COMPRESSOR) come last, so they win. */
  const char* refusal; /* NULL; or why this rank has no settings: create then fails on all ranks,
                          with this text, instead of a wait for this one */
} winnow_reducer_settings;

/* Collective: compares the options of all ranks. Fails on all of them if those of one are wrong,
   whatever the mistake, but for `transport`. The reducer keeps the transport: its handle may be
   destroyed at any time, and still serves for abort until then. */
int winnow_reducer_create(winnow_transport* transport, const winnow_reducer_settings* settings,
                          winnow_reducer** reducer);
/* Finishes calls in flight. Destroy their works first. */
void winnow_reducer_destroy(winnow_reducer* reducer);

/* One parameter's elements in a bucket. All segments of an array have the same struct_bytes. */
typedef struct winnow_segment {
  uint32_t struct_bytes;
  int32_t type;       /* winnow_element_type */
  uint64_t id;        /* of the parameter; stable across steps and restarts; keys the residual */
  uint64_t count;     /* elements */
  void* data;         /* the gradient, unless `input` holds it; receives the result */
  const void* input;  /* or NULL */
  const char* name;   /* for the option "exempt"; or NULL */
  int32_t dimensions; /* of the tensor; 0: unknown; 1 (norms, biases): dense by default */
  float rate;         /* multiplies the gradient, such as a learning rate: 1 leaves it as it is, and
                         at 0 only what waits goes out; one that is not finite makes the result NaN.
                         1 if struct_bytes does not reach it. */
  int32_t exempt;     /* 1: travels dense, whatever the options say; or 0 */
} winnow_segment;

/* Reduces a bucket in place, or out of place where segments have inputs. All ranks make the same
   calls in the same order, with the same ids and counts. After WINNOW_COMM_ERROR the bucket reads
   zero and its content is in the residuals; see AllReducer in allreducer.hpp for the exceptions. */
int winnow_all_reduce(winnow_reducer* reducer, const winnow_segment* bucket, size_t segments,
                      int op);

/* The memory of a reduce-scatter. */
typedef struct winnow_scatter {
  uint32_t struct_bytes;
  int32_t type;   /* winnow_element_type: WINNOW_FLOAT32, WINNOW_BF16 or WINNOW_FP16 */
  uint64_t id;    /* of the parameter; keys the residual; not one that is also reduced whole */
  uint64_t shard; /* elements that each rank receives */
  void* input;    /* a shard for each rank, in rank order; scratch afterwards */
  void* output;   /* one shard: apart from the input, or this rank's shard of it */
} winnow_scatter;

/* `output` becomes the sum or average of all ranks' shards with this rank's number
   (AllReducer::reduce_scatter): each rank sends what the compressor keeps of the others' shards,
   and the rest is its residual. All ranks call it with the same id and shard. Waits for calls in
   flight. After WINNOW_COMM_ERROR the output reads zero; AllReducer says what is lost. */
int winnow_reduce_scatter(winnow_reducer* reducer, const winnow_scatter* scatter, int op);

/* The rows that a rank has of a table, such as an embedding's gradient. */
typedef struct winnow_rows {
  uint32_t struct_bytes;
  int32_t type;         /* winnow_element_type: WINNOW_FLOAT32, WINNOW_BF16 or WINNOW_FP16 */
  uint64_t id;          /* of the parameter */
  uint64_t table_rows;  /* rows of the table: equal on all ranks, as type, id and width are */
  uint64_t width;       /* elements of a row */
  uint64_t count;       /* rows that this rank has, perhaps none */
  const uint64_t* rows; /* which they are: `count` numbers below table_rows, also repeated */
  const void* values;   /* count * width elements */
} winnow_rows;

/* Sums the rows that ranks have (AllReducer::all_reduce_rows). *rows becomes the numbers of all
   rows that any rank has, ascending, *values their sums or averages, and *count how many there are:
   views that hold until the next winnow_all_reduce_rows of this reducer, or its end. In host
   memory. Waits for calls in flight. */
int winnow_all_reduce_rows(winnow_reducer* reducer, const winnow_rows* mine, int op,
                           const uint64_t** rows, const void** values, uint64_t* count);

/* A call in flight. The caller keeps the elements, inputs and names (not the array of segments)
   alive and untouched until the call is done. */
typedef struct winnow_work winnow_work;

int winnow_all_reduce_async(winnow_reducer* reducer, const winnow_segment* bucket, size_t segments,
                            int op, winnow_work** work);
/* Returns when the call is done, on a device too, with the status of the call. Once for each work.
   Any thread may wait for a work, whatever others do with the reducer, if its transport allows
   threads (TCP, local; MPI with MPI_THREAD_MULTIPLE); otherwise the thread that made the call. */
int winnow_work_wait(winnow_work* work);
/* Sets *done to 1 if the call is done, on a device too, so that winnow_work_wait returns at once;
   otherwise to 0. If the transport allows no threads, this runs the next call first and may block.
   Before winnow_work_wait. */
int winnow_work_test(winnow_work* work, int* done);
/* Has `callback` run once, when the call is done, on a device too, with the status of the call;
   winnow_last_error() then says in its thread what was wrong. That is the reducer's own thread if
   its transport allows threads, so later calls wait for it; otherwise one that waits; or this one,
   before winnow_work_on_complete returns, if the call is done. Callbacks run in the order of calls.
   A callback neither makes calls of the reducer nor waits for them nor destroys it; it may destroy
   works. Before winnow_work_wait. */
int winnow_work_on_complete(winnow_work* work, void (*callback)(void* self, int status),
                            void* self);
/* From here on nobody waits for the call, which goes on; its work is still to be destroyed. If the
   call fails with WINNOW_COMM_ERROR, so do later ones; winnow_reducer_synchronize reports the first
   WINNOW_USAGE_ERROR. */
int winnow_work_detach(winnow_work* work);
/* Waits if nobody has and it is not detached, and drops the status. */
void winnow_work_destroy(winnow_work* work);

/* Returns when all calls are done, on a device too, and callbacks have run. */
int winnow_reducer_synchronize(winnow_reducer* reducer);

/* A parameter's residual, in the memory of the buckets: `count` elements of float32, or NULL and 0
   if there is none. Valid until the next call. Not allowed while calls are in flight. */
int winnow_reducer_residual(winnow_reducer* reducer, uint64_t id, const float** residual,
                            uint64_t* count);

/* Steps that may be undone, for a trainer that skips a step since its loss scale overflowed
   (AllReducer::begin_step, discard_step and scale_residuals). After begin_step the first call of
   each parameter keeps what it finds; discard_step, on all ranks between the same calls, brings it
   back, and discard_step_of that of these parameters alone, where a step of others is taken (ids
   that no call has had are ignored). scale_residuals multiplies this rank's residuals by a number
   above 0, for gradients of another scale from here on. Not allowed while calls are in flight. */
int winnow_reducer_begin_step(winnow_reducer* reducer);
int winnow_reducer_discard_step(winnow_reducer* reducer);
int winnow_reducer_discard_step_of(winnow_reducer* reducer, const uint64_t* ids, uint64_t count);
int winnow_reducer_scale_residuals(winnow_reducer* reducer, float factor);

/* Look-ahead (AllReducer::look_ahead): ahead = weights - share * residual, `count` elements each in
   the memory of the buckets; a copy where there is no residual. Not allowed while calls are in
   flight. */
int winnow_reducer_look_ahead(const winnow_reducer* reducer, uint64_t id, const float* weights,
                              float* ahead, uint64_t count, float share);
/* The share for an optimizer with this momentum (AllReducer::look_ahead_share), to be multiplied by
   its learning rate. `op`: of winnow_reduce_op. */
int winnow_reducer_look_ahead_share(const winnow_reducer* reducer, float momentum, int op,
                                    float* share);

/* ---- Gradients before they are reduced ---- */

/* A step of second moments, as Adam has them. */
typedef struct winnow_second_moment {
  uint32_t struct_bytes;
  int32_t place;   /* of gradient and moment: host memory, or memory of the current device */
  void* stream;    /* a cudaStream_t if place is WINNOW_CUDA, where the work is enqueued. It must
                      not be NULL: cudaStreamLegacy names the default stream. */
  int32_t threads; /* that share the work in host memory; 0: this one */
  float rate;      /* multiplies the result, such as a learning rate */
  double decay, epsilon;
  uint64_t steps; /* gradients that the moment knows, this one included: its bias is corrected */
} winnow_second_moment;

/* moment = decay moment + (1 - decay) gradient^2, then
   gradient = rate gradient / (sqrt(moment / (1 - decay^steps)) + epsilon), in one pass: `count`
   elements of each. Where the new moment would not be finite, it stays and the gradient is not
   finite. For optimizers that divide by a moment of each rank's own gradients; a reducer does the
   same by its option "precondition". Any thread may call it at any time. */
int winnow_divide_by_moment(const winnow_second_moment* by, float* gradient, float* moment,
                            uint64_t count);

/* ---- State ---- */

/* What a rank carries from step to step, as bytes, for a checkpoint. */
typedef struct winnow_state winnow_state;

/* Not allowed while calls are in flight. */
int winnow_reducer_save(winnow_reducer* reducer, winnow_state** state);
const void* winnow_state_data(const winnow_state* state);
size_t winnow_state_bytes(const winnow_state* state);
void winnow_state_destroy(winnow_state* state);

/* Continues from states that a job has saved after the same call on each of its ranks: this rank's
   own, or those of all old ranks, in any order, if there were more or fewer ranks; or its own with
   NULL in the place of every other old rank's, where some have left: what they held stays theirs,
   and averages of what waits here stay what they were. On every rank, before its first call. */
int winnow_reducer_load(winnow_reducer* reducer, const void* const* states, const size_t* bytes,
                        size_t count);

/* ---- Text out of a reducer ----
   Each writes text of at most `room` bytes, its null byte included, and sets *bytes to what the
   whole text takes: a text that is cut short is asked for again. `text` may be NULL if room is 0.
 */

/* All options as "key=value" words, as the reducer uses them. */
int winnow_reducer_options(const winnow_reducer* reducer, char* text, size_t room, size_t* bytes);

enum winnow_stats {
  WINNOW_LAST_CALL = 0,
  WINNOW_ALL_CALLS = 1,
  WINNOW_BUCKETS = 2,
  WINNOW_SCHEDULES = 3
};

/* As JSON: an object with the members of Stats (stats.hpp); for WINNOW_BUCKETS an array of objects
   with "id", "name", "count", "compressed", "totals" and "trying"; for WINNOW_SCHEDULES an array of
   the Stats of all calls by each schedule. What was not measured is null. */
int winnow_reducer_stats(const winnow_reducer* reducer, int stats, char* text, size_t room,
                         size_t* bytes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
