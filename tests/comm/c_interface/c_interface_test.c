/* Copyright The Winnow Authors
   SPDX-License-Identifier: Apache-2.0 */
/* Calls every function of winnow.h but those that make transports over MPI and NCCL from C99. Ranks
   are threads. Each printed line is a failure; the last line counts checks. */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <winnow/winnow.h>

static int failures = 0, checks = 0; /* under `counting` */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static void check(int holds, const char* text, int line) {
  pthread_mutex_lock(&counting);
  ++checks;
  if (!holds) {
    ++failures;
    printf("line %d: %s (last error: %s)\n", line, text, winnow_last_error());
  }
  pthread_mutex_unlock(&counting);
}
#define CHECK(condition) check((condition) ? 1 : 0, #condition, __LINE__)
#define OK(call) CHECK((call) == WINNOW_SUCCESS)

enum { kRanks = 3, kCount = 1000 };

static pthread_barrier_t finished; /* what all ranks must have done before one aborts */

/* ---- A transport of the caller's functions: mailboxes in this process ---- */

struct mail {
  struct mail* next;
  uint64_t bytes;
  char data[1];
};

static struct post {
  pthread_mutex_t mutex;
  pthread_cond_t came;
  struct mail* box[kRanks][kRanks]; /* from, to: the oldest first */
  int aborted, destroyed;
  char why[256]; /* it was aborted */
} /* of the transports, and of their duplicates */ posts[2] = {
    {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {{NULL}}, 0, 0, ""},
    {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {{NULL}}, 0, 0, ""}};

struct receipt {
  winnow_message message;
  uint64_t ticket;
};

struct mailbox {
  struct post* post;
  int rank;
  struct receipt open[64]; /* in order */
  size_t count;
};

static int start(void* self, const winnow_message* messages, size_t count, uint64_t ticket) {
  struct mailbox* const mine = self;
  struct post* const post = mine->post;
  pthread_mutex_lock(&post->mutex);
  for (size_t i = 0; i < count; ++i) {
    const winnow_message* const m = &messages[i];
    if (!m->sends) {
      mine->open[mine->count].message = *m;
      mine->open[mine->count++].ticket = ticket;
      continue;
    }
    struct mail* const mail = malloc(sizeof *mail + m->bytes);
    mail->next = NULL;
    mail->bytes = m->bytes;
    memcpy(mail->data, m->data, m->bytes);
    struct mail** last = &post->box[mine->rank][m->peer];
    while (*last != NULL) last = &(*last)->next;
    *last = mail;
  }
  pthread_cond_broadcast(&post->came);
  pthread_mutex_unlock(&post->mutex);
  return WINNOW_SUCCESS;
}

static int wait_for(void* self, uint64_t ticket, double seconds) {
  struct mailbox* const mine = self;
  struct post* const post = mine->post;
  int status = WINNOW_SUCCESS;
  (void)seconds;
  pthread_mutex_lock(&post->mutex);
  size_t done = 0;
  while (done < mine->count && mine->open[done].ticket <= ticket) {
    const winnow_message m = mine->open[done].message;
    struct mail** const box = &post->box[m.peer][mine->rank];
    if (post->aborted) {
      const int is_usage = strncmp(post->why, "usage error: ", 13) == 0;
      winnow_set_last_error(post->why);
      status = is_usage ? WINNOW_USAGE_ERROR : WINNOW_COMM_ERROR;
      break;
    }
    if (*box == NULL) {
      pthread_cond_wait(&post->came, &post->mutex);
      continue;
    }
    struct mail* const mail = *box;
    *box = mail->next;
    if (mail->bytes > m.bytes) {
      winnow_set_last_error("a message is longer than its room");
      status = WINNOW_USAGE_ERROR;
    }
    memcpy(m.data, mail->data, mail->bytes < m.bytes ? mail->bytes : m.bytes);
    if (m.message_bytes != NULL) *m.message_bytes = mail->bytes;
    free(mail);
    ++done;
  }
  mine->count -= done;
  memmove(mine->open, mine->open + done, mine->count * sizeof mine->open[0]);
  pthread_mutex_unlock(&post->mutex);
  return status;
}

static void close_post(void* self, const char* reason) {
  struct post* const post = ((struct mailbox*)self)->post;
  pthread_mutex_lock(&post->mutex);
  if (!post->aborted) snprintf(post->why, sizeof post->why, "%s", reason);
  post->aborted = 1;
  pthread_cond_broadcast(&post->came);
  pthread_mutex_unlock(&post->mutex);
}

static void count_destroyed(void* self) {
  struct post* const post = ((struct mailbox*)self)->post;
  free(self);
  pthread_mutex_lock(&post->mutex);
  ++post->destroyed;
  pthread_mutex_unlock(&post->mutex);
}

static int duplicate_mailbox(void* self, double seconds, winnow_transport_functions* made);

/* Fills in what is not zero. */
static void open_mailbox(struct post* post, int rank, winnow_transport_functions* functions) {
  struct mailbox* const mine = calloc(1, sizeof *mine);
  mine->post = post;
  mine->rank = rank;
  functions->rank = rank;
  functions->size = kRanks;
  functions->sizes_travel = 1;
  functions->threads = 1;
  functions->self = mine;
  functions->start = start;
  functions->wait = wait_for;
  functions->abort = close_post;
  functions->destroy = count_destroyed;
  functions->duplicate = duplicate_mailbox;
}

static int duplicate_mailbox(void* self, double seconds, winnow_transport_functions* made) {
  const struct mailbox* const mine = self;
  CHECK(seconds > 0 && seconds <= 60 && made->struct_bytes == sizeof *made);
  if (mine->post != &posts[0]) {
    winnow_set_last_error("there is no third post");
    return WINNOW_COMM_ERROR;
  }
  open_mailbox(&posts[1], mine->rank, made);
  return WINNOW_SUCCESS;
}

/* What nobody fetched after an abort. */
static void burn_mail(struct post* post) {
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      while (post->box[from][to] != NULL) {
        struct mail* const mail = post->box[from][to];
        post->box[from][to] = mail->next;
        free(mail);
      }
    }
  }
}

/* ---- What each rank does ---- */

/* A callback's: how often it ran, and the last status. */
struct completion {
  int count, status;
};

static void complete(void* self, int status) {
  struct completion* const completion = self;
  ++completion->count;
  completion->status = status;
}

static winnow_reducer_settings settings_of(const char* options) {
  winnow_reducer_settings settings;
  memset(&settings, 0, sizeof settings);
  settings.struct_bytes = sizeof settings;
  settings.place = WINNOW_HOST;
  settings.options = options;
  return settings;
}

static winnow_segment segment_of(float* data, uint64_t id) {
  winnow_segment segment;
  memset(&segment, 0, sizeof segment);
  segment.struct_bytes = sizeof segment;
  segment.type = WINNOW_FLOAT32;
  segment.id = id;
  segment.count = kCount;
  segment.data = data;
  segment.dimensions = 2;
  segment.rate = 1;
  return segment;
}

/* A segment that travels whole beside one that is compressed. */
static void exempt(winnow_transport* transport) {
  const int size = winnow_transport_size(transport);
  const winnow_reducer_settings settings =
      settings_of("compressor=topk:0.01 schedule=gather min_bytes=0 exempt_1d=0 op=sum");
  winnow_reducer* reducer = NULL;
  OK(winnow_reducer_create(transport, &settings, &reducer));
  float whole[2] = {3, 2}, part[2] = {3, 2};
  winnow_segment bucket[2] = {segment_of(whole, 1), segment_of(part, 2)};
  bucket[0].count = bucket[1].count = 2;
  bucket[0].exempt = 1;
  OK(winnow_all_reduce(reducer, bucket, 2, WINNOW_SUM));
  CHECK(whole[0] == 3 * (float)size && whole[1] == 2 * (float)size);
  CHECK(part[0] == 3 * (float)size && part[1] == 0);
  bucket[0].exempt = 2;
  CHECK(winnow_all_reduce(reducer, bucket, 2, WINNOW_SUM) == WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "exempt 2: must be 0 or 1") != NULL);
  winnow_reducer_destroy(reducer);
}

/* A rate of 0 adds nothing of the gradient, and what waits goes out all the same. A structure of a
   time before rates has none, which leaves gradients as they are. */
static void rate(winnow_transport* transport) {
  const int size = winnow_transport_size(transport);
  const winnow_reducer_settings settings =
      settings_of("compressor=topk:0.5 schedule=gather min_bytes=0 op=sum");
  winnow_reducer* reducer = NULL;
  OK(winnow_reducer_create(transport, &settings, &reducer));
  float data[2] = {3, 2};
  winnow_segment segment = segment_of(data, 1);
  segment.count = 2;
  OK(winnow_all_reduce(reducer, &segment, 1, WINNOW_SUM));
  CHECK(data[0] == 3 * (float)size && data[1] == 0);
  data[0] = data[1] = 50;
  segment.rate = 0;
  OK(winnow_all_reduce(reducer, &segment, 1, WINNOW_SUM));
  CHECK(data[0] == 0 && data[1] == 2 * (float)size);
  data[0] = data[1] = 50; /* dense, and in a warm-up's first step */
  segment.id = 2;
  segment.dimensions = 1;
  OK(winnow_all_reduce(reducer, &segment, 1, WINNOW_SUM));
  CHECK(data[0] == 0 && data[1] == 0);
  data[0] = data[1] = 50;
  segment.rate = -0.5F;
  OK(winnow_all_reduce(reducer, &segment, 1, WINNOW_SUM));
  CHECK(data[0] == -25 * (float)size && data[1] == -25 * (float)size);
  data[0] = data[1] = 50;
  segment.rate = NAN;
  OK(winnow_all_reduce(reducer, &segment, 1, WINNOW_SUM));
  CHECK(isnan(data[0]) && isnan(data[1]));

  segment.rate = 0; /* which these do not cover */
  static const size_t kOlder[] = {offsetof(winnow_segment, rate),
                                  offsetof(winnow_segment, dimensions),
                                  offsetof(winnow_segment, input)};
  for (int i = 0; i < 3; ++i) {
    data[0] = data[1] = 50;
    segment.struct_bytes = (uint32_t)kOlder[i];
    OK(winnow_all_reduce(reducer, &segment, 1, WINNOW_SUM));
    CHECK(data[0] == 50 * (float)size && data[1] == 50 * (float)size);
  }
  winnow_reducer_destroy(reducer);
}

/* A second reducer is refused as long as the first one lives. */
static void share(winnow_transport* transport) {
  const winnow_reducer_settings settings = settings_of("op=sum links=pass=10GB/s");
  winnow_reducer *first = NULL, *second = NULL;
  OK(winnow_reducer_create(transport, &settings, &first));
  CHECK(winnow_reducer_create(transport, &settings, &second) == WINNOW_USAGE_ERROR);
  CHECK(second == NULL && strstr(winnow_last_error(), "winnow_transport_duplicate") != NULL);
  float data[1] = {1};
  winnow_segment segment = segment_of(data, 1);
  segment.count = 1;
  OK(winnow_all_reduce(first, &segment, 1, WINNOW_SUM));
  CHECK(data[0] == (float)winnow_transport_size(transport));
  winnow_reducer_destroy(first);
  OK(winnow_reducer_create(transport, &settings, &second));
  data[0] = 2;
  OK(winnow_all_reduce(second, &segment, 1, WINNOW_SUM));
  CHECK(data[0] == 2 * (float)winnow_transport_size(transport));
  winnow_reducer_destroy(second);
}

/* What one rank gives wrong is an error on all, which do not wait for it. */
static void refuse(winnow_transport* transport) {
  const int odd = winnow_transport_rank(transport) == 1;
  winnow_reducer* reducer = NULL;
  for (int mistake = 0; mistake < 8; ++mistake) {
    winnow_reducer_settings settings = settings_of("op=sum links=pass=10GB/s deadline=20");
    const winnow_reducer_settings* given = &settings;
    winnow_reducer** made = &reducer;
    const char* names = "";
    if (mistake == 0) settings.options = names = "densty=1";
    if (mistake == 1) settings.options = names = "compressor=topk:2";
    if (mistake == 2) settings.options = "\xff", names = "options is not UTF-8";
    if (mistake == 3) settings.place = 7, names = "place 7";
    if (mistake == 4) settings.stream = &settings, names = "WINNOW_CUDA";
    if (mistake == 5) settings.refusal = names = "the file of options is missing";
    if (mistake == 6) given = NULL, names = "settings is NULL";
    if (mistake == 7) made = NULL, names = "reducer is NULL";
    const winnow_reducer_settings right = settings_of("op=sum links=pass=10GB/s deadline=20");
    const int status =
        winnow_reducer_create(transport, odd ? given : &right, odd ? made : &reducer);
    CHECK(status == WINNOW_USAGE_ERROR && reducer == NULL);
    names = mistake == 0 ? "densty" : mistake == 1 ? "topk" : names;
    CHECK(strstr(winnow_last_error(), names) != NULL);
    CHECK(odd || strncmp(winnow_last_error(), "rank 1 refuses: ", 16) == 0);
  }
}

enum ending { AN_ABORT, OTHER_CALLS };

static void reduce(winnow_transport* transport, enum ending ending) {
  const int rank = winnow_transport_rank(transport);
  CHECK(winnow_transport_size(transport) == kRanks);
  CHECK(winnow_transport_node(transport) == 0);

  refuse(transport);
  share(transport);
  rate(transport);
  exempt(transport);

  /* Each rank has one large element of its own, which travels, and small ones, which wait. */
  float data[kCount], input[kCount];
  for (int i = 0; i < kCount; ++i) input[i] = 0.001F * (float)(rank + 1);
  input[rank] = (float)(rank + 10);
  winnow_reducer* reducer = NULL;
  const winnow_reducer_settings settings =
      settings_of("compressor=topk:0.001 schedule=gather min_bytes=0 op=sum");
  OK(winnow_reducer_create(transport, &settings, &reducer));
  winnow_segment segment = segment_of(data, 7);
  segment.input = input;
  segment.name = "weight";
  OK(winnow_all_reduce(reducer, &segment, 1, WINNOW_DEFAULT_OP));
  for (int i = 0; i < kCount; ++i) {
    if (i < kRanks ? data[i] != (float)(i + 10) : data[i] != 0) CHECK(!"the sum of what travels");
  }
  const float* residual = NULL;
  uint64_t count = 0;
  OK(winnow_reducer_residual(reducer, 7, &residual, &count));
  CHECK(count == kCount && residual[rank] == 0 && residual[kCount - 1] == input[kCount - 1]);
  OK(winnow_reducer_residual(reducer, 8, &residual, &count));
  CHECK(count == 0 && residual == NULL);

  float share = 0;
  OK(winnow_reducer_look_ahead_share(reducer, 0.5f, WINNOW_SUM, &share));
  CHECK(fabsf(share - kRanks / 2.0f) < 1e-6f);
  OK(winnow_reducer_look_ahead_share(reducer, 0.5f, WINNOW_AVERAGE, &share));
  CHECK(fabsf(share - 0.5f) < 1e-6f);
  CHECK(winnow_reducer_look_ahead_share(reducer, 1, WINNOW_SUM, &share) == WINNOW_USAGE_ERROR);
  CHECK(winnow_reducer_look_ahead_share(reducer, 0, WINNOW_SUM, NULL) == WINNOW_USAGE_ERROR);
  float weights[kCount];
  float ahead[kCount];
  for (int i = 0; i < kCount; ++i) weights[i] = 1000;
  OK(winnow_reducer_look_ahead(reducer, 7, weights, ahead, kCount, 2));
  CHECK(ahead[rank] == 1000 && ahead[kCount - 1] == 1000 - 2 * input[kCount - 1]);
  OK(winnow_reducer_look_ahead(reducer, 8, weights, ahead, kCount, 2));
  CHECK(ahead[kCount - 1] == 1000);
  OK(winnow_reducer_look_ahead(reducer, 8, NULL, NULL, 0, 2));
  CHECK(winnow_reducer_look_ahead(reducer, 7, NULL, ahead, kCount, 2) == WINNOW_USAGE_ERROR);
  CHECK(winnow_reducer_look_ahead(reducer, 7, weights, ahead, kCount - 1, 2) == WINNOW_USAGE_ERROR);

  OK(winnow_all_reduce(reducer, NULL, 0, WINNOW_SUM));

  /* A step that is discarded, and residuals that are scaled. */
  CHECK(winnow_reducer_discard_step(reducer) == WINNOW_USAGE_ERROR);
  OK(winnow_reducer_begin_step(reducer));
  for (int i = 0; i < kCount; ++i) data[i] = 1;
  segment.input = NULL;
  OK(winnow_all_reduce(reducer, &segment, 1, WINNOW_DEFAULT_OP));
  const uint64_t other = 8, same = 7;
  OK(winnow_reducer_discard_step_of(reducer, &other, 1));
  OK(winnow_reducer_discard_step_of(reducer, NULL, 0));
  OK(winnow_reducer_residual(reducer, 7, &residual, &count));
  CHECK(residual[kCount - 1] != input[kCount - 1]);
  OK(winnow_reducer_discard_step_of(reducer, &same, 1));
  OK(winnow_reducer_residual(reducer, 7, &residual, &count));
  CHECK(residual[kCount - 1] == input[kCount - 1]);
  OK(winnow_reducer_discard_step(reducer));
  OK(winnow_reducer_scale_residuals(reducer, 2));
  CHECK(winnow_reducer_scale_residuals(reducer, 0) == WINNOW_USAGE_ERROR);
  OK(winnow_reducer_residual(reducer, 7, &residual, &count));
  CHECK(count == kCount && residual[rank] == 0 && residual[kCount - 1] == 2 * input[kCount - 1]);

  /* Calls in flight, of which the second is not waited for. Dense: the average of rank + 1. */
  float first[kCount], second[kCount];
  for (int i = 0; i < kCount; ++i) first[i] = second[i] = (float)(rank + 1);
  winnow_segment one = segment_of(first, 1), two = segment_of(second, 2);
  one.dimensions = two.dimensions = 1;
  winnow_work *work = NULL, *dropped = NULL, *detached = NULL;
  struct completion completion = {0, -1}, of_detached = {0, -1};
  OK(winnow_all_reduce_async(reducer, &one, 1, WINNOW_AVERAGE, &work));
  OK(winnow_all_reduce_async(reducer, &two, 1, WINNOW_MAXIMUM, &dropped));
  int done = -1;
  while (done != 1) {
    OK(winnow_work_test(work, &done));
    CHECK(done == 0 || done == 1);
  }
  CHECK(first[0] == 2 && first[kCount - 1] == 2);
  OK(winnow_work_test(work, &done));
  CHECK(done == 1);
  CHECK(winnow_work_test(work, NULL) == WINNOW_USAGE_ERROR);
  OK(winnow_work_wait(work));
  CHECK(first[0] == 2 && first[kCount - 1] == 2);
  winnow_work_destroy(work);
  OK(winnow_work_on_complete(dropped, complete, &completion));
  CHECK(winnow_work_on_complete(dropped, NULL, &completion) == WINNOW_USAGE_ERROR);
  winnow_work_destroy(dropped);
  OK(winnow_reducer_synchronize(reducer));
  CHECK(second[kCount - 1] == kRanks);
  CHECK(completion.count == 1 && completion.status == WINNOW_SUCCESS);
  winnow_segment differs = segment_of(first, 3);
  differs.count = (uint64_t)(kCount - rank); /* refused on each rank */
  OK(winnow_all_reduce_async(reducer, &differs, 1, WINNOW_AVERAGE, &detached));
  OK(winnow_work_on_complete(detached, complete, &of_detached));
  OK(winnow_work_detach(detached));
  winnow_work_destroy(detached);
  CHECK(winnow_reducer_synchronize(reducer) == WINNOW_USAGE_ERROR);
  CHECK(of_detached.count == 1 && of_detached.status == WINNOW_USAGE_ERROR);
  OK(winnow_reducer_synchronize(reducer));

  /* A reduce-scatter, whose own shard is whole. */
  float shards[kRanks * 4], shard[4] = {0};
  for (int i = 0; i < kRanks * 4; ++i) shards[i] = (float)(rank + 1);
  winnow_scatter scatter;
  memset(&scatter, 0, sizeof scatter);
  scatter.struct_bytes = sizeof scatter;
  scatter.type = WINNOW_FLOAT32;
  scatter.id = 20;
  scatter.shard = 4;
  scatter.input = shards;
  scatter.output = shard;
  OK(winnow_reduce_scatter(reducer, &scatter, WINNOW_SUM));
  CHECK(shard[0] == 1 + 2 + 3 && shard[3] == (float)(rank + 1));
  OK(winnow_reducer_residual(reducer, 20, &residual, &count));
  CHECK(count == kRanks * 4 && residual[rank * 4 + 3] == 0);
  CHECK(winnow_reduce_scatter(reducer, &scatter, WINNOW_MAXIMUM) == WINNOW_USAGE_ERROR);
  scatter.type = WINNOW_FLOAT64;
  CHECK(winnow_reduce_scatter(reducer, &scatter, WINNOW_SUM) == WINNOW_USAGE_ERROR);
  CHECK(winnow_reduce_scatter(reducer, NULL, WINNOW_SUM) == WINNOW_USAGE_ERROR);

  /* Rows of a table, of which each rank has its own and a common one. */
  const uint64_t rows_of_rank[2] = {40, (uint64_t)rank};
  const float values_of_rank[4] = {1, 2, (float)(rank + 1), -1};
  winnow_rows mine;
  memset(&mine, 0, sizeof mine);
  mine.struct_bytes = sizeof mine;
  mine.type = WINNOW_FLOAT32;
  mine.id = 30;
  mine.table_rows = 50;
  mine.width = 2;
  mine.count = 2;
  mine.rows = rows_of_rank;
  mine.values = values_of_rank;
  const uint64_t* all_rows = NULL;
  const void* all_values = NULL;
  uint64_t row_count = 0;
  OK(winnow_all_reduce_rows(reducer, &mine, WINNOW_SUM, &all_rows, &all_values, &row_count));
  CHECK(row_count == kRanks + 1 && all_rows[0] == 0 && all_rows[kRanks] == 40);
  const float* const row_sums = (const float*)all_values;
  CHECK(row_sums[0] == 1 && row_sums[1] == -1 && row_sums[2 * kRanks - 2] == kRanks);
  CHECK(row_sums[2 * kRanks] == kRanks && row_sums[2 * kRanks + 1] == 2 * kRanks);
  mine.count = rank == 1 ? 2 : 0;
  OK(winnow_all_reduce_rows(reducer, &mine, WINNOW_AVERAGE, &all_rows, &all_values, &row_count));
  CHECK(row_count == 2 && all_rows[0] == 1 && ((const float*)all_values)[1] == -1.0F / kRanks);
  mine.table_rows = 1;
  CHECK(winnow_all_reduce_rows(reducer, &mine, WINNOW_SUM, &all_rows, &all_values, &row_count) ==
        WINNOW_USAGE_ERROR);
  mine.width = (uint64_t)1 << 63;
  CHECK(winnow_all_reduce_rows(reducer, &mine, WINNOW_SUM, &all_rows, &all_values, &row_count) ==
        WINNOW_USAGE_ERROR);
  CHECK(winnow_all_reduce_rows(reducer, &mine, WINNOW_SUM, NULL, &all_values, &row_count) ==
        WINNOW_USAGE_ERROR);
  CHECK(winnow_all_reduce_rows(reducer, NULL, WINNOW_SUM, &all_rows, &all_values, &row_count) ==
        WINNOW_USAGE_ERROR);

  /* State: what another reducer of as many ranks would continue from. */
  winnow_state* state = NULL;
  OK(winnow_reducer_save(reducer, &state));
  const void* saved = winnow_state_data(state);
  const size_t saved_bytes = winnow_state_bytes(state);
  CHECK(saved_bytes > kCount * sizeof(float));
  CHECK(winnow_reducer_load(reducer, &saved, &saved_bytes, 1) == WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "before the first call") != NULL);
  winnow_state_destroy(state);

  /* Text. */
  char text[4096];
  size_t bytes = 0;
  OK(winnow_reducer_options(reducer, text, sizeof text, &bytes));
  CHECK(strstr(text, "compressor=topk:0.001") != NULL && strlen(text) + 1 == bytes);
  OK(winnow_reducer_options(reducer, text, 5, &bytes));
  CHECK(strlen(text) == 4 && bytes > 5);
  OK(winnow_reducer_options(reducer, NULL, 0, &bytes));
  OK(winnow_reducer_stats(reducer, WINNOW_ALL_CALLS, text, sizeof text, &bytes));
  CHECK(text[0] == '{' && strstr(text, "\"calls\":8,") != NULL);
  CHECK(strstr(text, "\"residual_norm\":null") != NULL);
  OK(winnow_reducer_stats(reducer, WINNOW_LAST_CALL, text, sizeof text, &bytes));
  CHECK(strstr(text, "\"calls\":1,") != NULL);
  OK(winnow_reducer_stats(reducer, WINNOW_BUCKETS, text, sizeof text, &bytes));
  CHECK(text[0] == '[' && strstr(text, "\"name\":\"weight\"") != NULL);
  CHECK(strstr(text, "\"trying\":false") != NULL);
  OK(winnow_reducer_stats(reducer, WINNOW_SCHEDULES, text, sizeof text, &bytes));
  CHECK(text[0] == '[' && strstr(text, "\"schedule\":") != NULL);

  /* The caller's mistakes, which change nothing. */
  one.type = 99;
  CHECK(winnow_all_reduce(reducer, &one, 1, WINNOW_SUM) == WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "element type 99") != NULL);
  one.type = WINNOW_FLOAT32;
  one.struct_bytes = 0;
  CHECK(winnow_all_reduce(reducer, &one, 1, WINNOW_SUM) == WINNOW_USAGE_ERROR);
  one.struct_bytes = sizeof one;
  CHECK(winnow_all_reduce(reducer, &one, 1, 5) == WINNOW_USAGE_ERROR);
  CHECK(winnow_all_reduce(reducer, NULL, 1, WINNOW_SUM) == WINNOW_USAGE_ERROR);
  CHECK(winnow_all_reduce(NULL, &one, 1, WINNOW_SUM) == WINNOW_USAGE_ERROR);
  CHECK(winnow_reducer_stats(reducer, 4, text, sizeof text, &bytes) == WINNOW_USAGE_ERROR);

  /* The last rank breaks the transport, or makes another call; the others learn why. */
  pthread_barrier_wait(&finished);
  if (ending == OTHER_CALLS) {
    winnow_segment new_here = segment_of(second, 99);
    const int is_last = rank == kRanks - 1;
    CHECK(winnow_all_reduce(reducer, is_last ? &new_here : &segment, 1, WINNOW_DEFAULT_OP) ==
          WINNOW_USAGE_ERROR);
    CHECK(strstr(winnow_last_error(), "a bucket of parameters") != NULL);
  } else if (rank == kRanks - 1) {
    winnow_transport_abort(transport, "enough");
  } else {
    CHECK(winnow_all_reduce(reducer, &one, 1, WINNOW_SUM) == WINNOW_COMM_ERROR);
  }
  winnow_reducer_destroy(reducer);
  winnow_transport_destroy(transport);
}

/* A reducer over a duplicate ends in an abort, and one over the transport itself goes on. */
static void* run_rank(void* transport) {
  winnow_transport* duplicate = NULL;
  OK(winnow_transport_duplicate(transport, 60, &duplicate));
  if (duplicate != NULL) reduce(duplicate, OTHER_CALLS);
  reduce(transport, AN_ABORT);
  return NULL;
}

static void run(winnow_transport** transports) {
  pthread_t threads[kRanks];
  for (int r = 0; r < kRanks; ++r) pthread_create(&threads[r], NULL, run_rank, transports[r]);
  for (int r = 0; r < kRanks; ++r) pthread_join(threads[r], NULL);
}

/* ---- TCP: by addresses, and by a meeting ---- */

static winnow_tcp_listener* listeners[kRanks];
static const char* addresses[kRanks];
static winnow_tcp_meeting meetings[kRanks];

static void* connect_rank(void* number) {
  const int rank = *(const int*)number;
  winnow_transport* transport = NULL;
  OK(winnow_tcp_connect(listeners[rank], rank, kRanks, addresses, 60, &transport));
  winnow_tcp_listener_destroy(listeners[rank]);
  if (transport != NULL) reduce(transport, AN_ABORT);
  return NULL;
}

static void* meet_rank(void* number) {
  winnow_transport* transport = NULL;
  OK(winnow_tcp_transport(&meetings[*(const int*)number], 60, &transport));
  if (transport != NULL) reduce(transport, AN_ABORT);
  return NULL;
}

/* Between nodes by TCP, within them by threads: all ranks are on one. */
static winnow_transport* of_node[kRanks];

static void* mix_rank(void* number) {
  const int rank = *(const int*)number;
  winnow_transport *world = NULL, *mixed = NULL;
  OK(winnow_tcp_transport(&meetings[rank], 60, &world));
  OK(winnow_mixed_transport(world, of_node[rank], 60, &mixed));
  winnow_transport_destroy(world);
  winnow_transport_destroy(of_node[rank]);
  if (mixed != NULL) reduce(mixed, AN_ABORT);
  return NULL;
}

static void run_over_tcp(void* (*start_rank)(void*)) {
  pthread_t threads[kRanks];
  int ranks[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    ranks[r] = r;
    pthread_create(&threads[r], NULL, start_rank, &ranks[r]);
  }
  for (int r = 0; r < kRanks; ++r) pthread_join(threads[r], NULL);
}

/* Of three ranks one has a word for `tls` that there is not. */
static void* fail_rank(void* number) {
  const int rank = *(const int*)number;
  winnow_transport* transport = NULL;
  winnow_tcp_options options;
  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  if (rank == 1) options.tls = "on";
  CHECK(winnow_tcp_transport_with(&meetings[rank], &options, 1e9, &transport) ==
        WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "rank 1: tls='on'") != NULL);
  return NULL;
}

/* Whether nobody listens at a port of loopback; connections that have ended do not count. */
static int is_free(int port) {
  const int listening = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  struct sockaddr_in address;
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_port = htons((uint16_t)port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int failed = bind(listening, (struct sockaddr*)&address, sizeof address);
  close(listening);
  return !failed;
}

/* One that was free a moment ago, and that the system gives to nobody who names none. */
static int free_port(void) {
  int port = 20000 + (int)(getpid() % 12000);
  while (!is_free(port)) ++port;
  return port;
}

static int32_t stop_meeting = 0;

/* Nobody but another thread ends it: the other ranks do not come. */
static void* wait_in_meeting(void* number) {
  winnow_transport* transport = NULL;
  winnow_tcp_options options;
  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.stop = &stop_meeting;
  CHECK(winnow_tcp_transport_with(&meetings[*(const int*)number], &options, 1e9, &transport) ==
        WINNOW_COMM_ERROR);
  CHECK(strstr(winnow_last_error(), "another thread of this rank stopped the meeting") != NULL);
  return NULL;
}

static void stop_in_meeting(int port) {
  for (int rank = 0; rank < 2; ++rank) {
    pthread_t thread;
    __atomic_store_n(&stop_meeting, 0, __ATOMIC_RELAXED);
    pthread_create(&thread, NULL, wait_in_meeting, &rank);
    while (rank == 0 && is_free(port)) sched_yield();
    __atomic_store_n(&stop_meeting, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    CHECK(is_free(port));
  }
}

static void run_tcp(void) {
  for (int r = 0; r < kRanks; ++r) {
    OK(winnow_tcp_listen("lo", &listeners[r]));
    addresses[r] = winnow_tcp_address(listeners[r]);
  }
  run_over_tcp(connect_rank);
  const int port = free_port();
  for (int r = 0; r < kRanks; ++r) {
    memset(&meetings[r], 0, sizeof meetings[r]);
    meetings[r].struct_bytes = sizeof meetings[r];
    meetings[r].rank = r;
    meetings[r].size = kRanks;
    meetings[r].port = port;
    meetings[r].host = "127.0.0.1";
  }
  run_over_tcp(meet_rank);
  run_over_tcp(fail_rank);
  CHECK(is_free(port));
  winnow_transport* transport = NULL;
  CHECK(winnow_tcp_transport(&meetings[0], 0.1, &transport) == WINNOW_COMM_ERROR);
  CHECK(is_free(port));
  stop_in_meeting(port);
  OK(winnow_local_transports(kRanks, of_node));
  run_over_tcp(mix_rank);
}

/* Two steps of a second moment: the first is the gradient's sign times the rate. */
static void divide(void) {
  float gradient[kCount], moment[kCount];
  for (int i = 0; i < kCount; ++i) {
    gradient[i] = i % 2 == 0 ? 3.0f : -0.5f;
    moment[i] = 0;
  }
  gradient[7] = NAN;
  winnow_second_moment by;
  memset(&by, 0, sizeof by);
  by.struct_bytes = sizeof by;
  by.rate = 0.25f;
  by.decay = 0.5;
  by.epsilon = 1e-12;
  by.steps = 1;
  OK(winnow_divide_by_moment(&by, gradient, moment, kCount));
  CHECK(gradient[0] == 0.25f && gradient[kCount - 1] == -0.25f && moment[0] == 4.5f);
  CHECK(isnan(gradient[7]) && moment[7] == 0);
  gradient[0] = 1;
  by.steps = by.threads = 2;
  OK(winnow_divide_by_moment(&by, gradient, moment, kCount));
  CHECK(moment[0] == 2.75f && fabsf(gradient[0] - 0.25f / sqrtf(2.75f / 0.75f)) < 1e-7f);
  OK(winnow_divide_by_moment(&by, NULL, NULL, 0));
  CHECK(winnow_divide_by_moment(&by, gradient, NULL, kCount) == WINNOW_USAGE_ERROR);
  by.steps = 0;
  CHECK(winnow_divide_by_moment(&by, gradient, moment, kCount) == WINNOW_USAGE_ERROR);
  by.steps = 1;
  by.decay = 1;
  CHECK(winnow_divide_by_moment(&by, gradient, moment, kCount) == WINNOW_USAGE_ERROR);
  CHECK(winnow_divide_by_moment(NULL, gradient, moment, kCount) == WINNOW_USAGE_ERROR);
  by.decay = 0.5;
  CHECK(winnow_divide_by_moment(&by, gradient, moment, (uint64_t)1 << 52) == WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "more than memory can have") != NULL);
}

/* Texts where none can lie, as MPI_IN_PLACE is one. */
static void refuse_texts(void) {
  const char* const nowhere = (const char*)1;
  winnow_tcp_listener* listener = NULL;
  CHECK(winnow_tcp_listen(nowhere, &listener) == WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "interfaces is MPI_IN_PLACE") != NULL);
  for (int text = 0; text < 6; ++text) {
    winnow_tcp_options options;
    memset(&options, 0, sizeof options);
    options.struct_bytes = sizeof options;
    if (text == 0) options.interfaces = nowhere;
    if (text == 1) options.secret = nowhere;
    if (text == 2) options.tls = nowhere;
    if (text == 3) options.tls_certificate = nowhere;
    if (text == 4) options.tls_key = nowhere;
    if (text == 5) options.tls_authority = nowhere;
    CHECK(winnow_tcp_listen_with(&options, &listener) == WINNOW_USAGE_ERROR);
    CHECK(strstr(winnow_last_error(), " is MPI_IN_PLACE") != NULL);
  }
  winnow_transport *transport = NULL, *alone = NULL;
  winnow_tcp_meeting meeting;
  memset(&meeting, 0, sizeof meeting);
  meeting.struct_bytes = sizeof meeting;
  meeting.size = 1;
  meeting.host = nowhere;
  CHECK(winnow_tcp_transport(&meeting, 1, &transport) == WINNOW_USAGE_ERROR);
  meeting.host = "127.0.0.1";
  meeting.job = nowhere;
  CHECK(winnow_tcp_transport(&meeting, 1, &transport) == WINNOW_USAGE_ERROR);
  OK(winnow_local_transports(1, &alone));
  winnow_reducer* reducer = NULL;
  winnow_reducer_settings settings = settings_of(nowhere);
  CHECK(winnow_reducer_create(alone, &settings, &reducer) == WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "options is MPI_IN_PLACE") != NULL);
  settings = settings_of(NULL);
  settings.refusal = nowhere;
  CHECK(winnow_reducer_create(alone, &settings, &reducer) == WINNOW_USAGE_ERROR);
  settings.refusal = NULL;
  OK(winnow_reducer_create(alone, &settings, &reducer));
  float data[1] = {1};
  winnow_segment segment = segment_of(data, 1);
  segment.count = 1;
  segment.name = nowhere;
  CHECK(winnow_all_reduce(reducer, &segment, 1, WINNOW_SUM) == WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "name is MPI_IN_PLACE") != NULL);
  segment.name = NULL;
  segment.count = (uint64_t)1 << 60;
  CHECK(winnow_all_reduce(reducer, &segment, 1, WINNOW_SUM) == WINNOW_USAGE_ERROR);
  winnow_work* work = NULL;
  OK(winnow_all_reduce_async(reducer, &segment, 1, WINNOW_SUM, &work));
  CHECK(winnow_work_wait(work) == WINNOW_USAGE_ERROR);
  winnow_work_destroy(work);
  CHECK(winnow_reducer_look_ahead(reducer, 1, data, data, (uint64_t)1 << 52, 1) ==
        WINNOW_USAGE_ERROR);
  winnow_scatter scatter;
  memset(&scatter, 0, sizeof scatter);
  scatter.struct_bytes = sizeof scatter;
  scatter.shard = (uint64_t)1 << 52;
  scatter.input = scatter.output = data;
  CHECK(winnow_reduce_scatter(reducer, &scatter, WINNOW_SUM) == WINNOW_USAGE_ERROR);
  winnow_set_last_error(nowhere);
  CHECK(winnow_last_error()[0] == '\0');
  winnow_transport_abort(alone, nowhere);
  segment.count = 1;
  CHECK(winnow_all_reduce(reducer, &segment, 1, WINNOW_SUM) != WINNOW_USAGE_ERROR);
  winnow_reducer_destroy(reducer);
  winnow_transport_destroy(alone);
  CHECK(listener == NULL && transport == NULL);
}

static void reject(void) {
  winnow_tcp_listener* listener = NULL;
  CHECK(winnow_tcp_listen("no such interface", &listener) == WINNOW_USAGE_ERROR);
  CHECK(winnow_tcp_connect(NULL, 0, 1, addresses, 1, NULL) == WINNOW_USAGE_ERROR);
  winnow_tcp_listener_destroy(listener);
  winnow_transport* transport = NULL;
  winnow_reducer* reducer = NULL;
  winnow_transport_functions functions;
  memset(&functions, 0, sizeof functions);
  functions.struct_bytes = sizeof functions;
  functions.size = 1;
  CHECK(winnow_transport_from_functions(&functions, &transport) == WINNOW_USAGE_ERROR);
  functions.start = start;
  functions.wait = wait_for;
  functions.abort = close_post;
  functions.rank = 1;
  CHECK(winnow_transport_from_functions(&functions, &transport) == WINNOW_USAGE_ERROR);
  CHECK(winnow_transport_from_functions(NULL, &transport) == WINNOW_USAGE_ERROR);
  functions.rank = 0;
  OK(winnow_transport_from_functions(&functions, &transport));
  winnow_transport* duplicate = NULL;
  CHECK(winnow_transport_duplicate(transport, 1, &duplicate) == WINNOW_USAGE_ERROR);
  CHECK(winnow_transport_duplicate(NULL, 1, &duplicate) == WINNOW_USAGE_ERROR);
  CHECK(duplicate == NULL);
  winnow_transport_destroy(transport);
  transport = NULL;
  CHECK(winnow_local_transports(0, &transport) == WINNOW_USAGE_ERROR);
  CHECK(winnow_mixed_transport(NULL, NULL, 1, &transport) == WINNOW_USAGE_ERROR);
  CHECK(winnow_nccl_transport(NULL, 1, &transport) == WINNOW_USAGE_ERROR);
  winnow_transport* alone = NULL;
  OK(winnow_local_transports(1, &alone));
  winnow_nccl_options limits = {.struct_bytes = sizeof limits, .min_ctas = 8, .max_ctas = 4};
  CHECK(winnow_nccl_transport_with(alone, NULL, 1, &transport) == WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "options is NULL") != NULL);
  CHECK(winnow_nccl_transport_with(alone, &limits, 1, &transport) == WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "min_ctas is 8 and max_ctas 4") != NULL ||
        strstr(winnow_last_error(), "without NCCL") != NULL);
  winnow_nccl_options registered = {.struct_bytes = sizeof registered, .register_memory = 2};
  CHECK(winnow_nccl_transport_with(alone, &registered, 1, &transport) == WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "register_memory is 2: must be 1") != NULL);
  winnow_transport_destroy(alone);
  (void)winnow_nccl_available(); /* depends on the machine */
  CHECK(transport == NULL);

  /* A structure of a later version: what it adds may be there as long as it is not used. */
  struct {
    winnow_reducer_settings known;
    int32_t later[2];
  } larger;
  memset(&larger, 0, sizeof larger);
  larger.known = settings_of("compressor=topk:2");
  larger.known.struct_bytes = sizeof larger;
  OK(winnow_local_transports(1, &transport));
  CHECK(winnow_reducer_create(transport, &larger.known, &reducer) == WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "topk") != NULL);
  larger.known.options = NULL;
  larger.later[0] = 1;
  CHECK(winnow_reducer_create(transport, &larger.known, &reducer) == WINNOW_USAGE_ERROR);
  CHECK(strstr(winnow_last_error(), "newer") != NULL);
  larger.later[0] = 0;
  OK(winnow_reducer_create(transport, &larger.known, &reducer));
  winnow_state* state = NULL;
  OK(winnow_reducer_save(reducer, &state));
  const void* saved = winnow_state_data(state);
  size_t saved_bytes = winnow_state_bytes(state);
  OK(winnow_reducer_load(reducer, &saved, &saved_bytes, 1));
  --saved_bytes;
  CHECK(winnow_reducer_load(reducer, &saved, &saved_bytes, 1) == WINNOW_USAGE_ERROR);
  CHECK(winnow_reducer_load(reducer, NULL, NULL, 0) == WINNOW_USAGE_ERROR);
  winnow_state_destroy(state);
  winnow_state_destroy(NULL);
  winnow_reducer_destroy(reducer);
  CHECK(winnow_reducer_create(NULL, &larger.known, &reducer) == WINNOW_USAGE_ERROR);
  winnow_transport_destroy(transport);
  winnow_transport_destroy(NULL);
  winnow_reducer_destroy(NULL);
  winnow_work_destroy(NULL);
  CHECK(winnow_work_wait(NULL) == WINNOW_USAGE_ERROR);
  int done = 0;
  CHECK(winnow_work_test(NULL, &done) == WINNOW_USAGE_ERROR);
}

int main(void) {
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", WINNOW_VERSION_MAJOR, WINNOW_VERSION_MINOR,
           WINNOW_VERSION_PATCH);
  CHECK(strcmp(version, winnow_version()) == 0 && strcmp(version, EXPECTED_VERSION) == 0);
  winnow_set_last_error(NULL);
  CHECK(winnow_last_error()[0] == '\0');

  divide();
  refuse_texts();
  reject();
  pthread_barrier_init(&finished, NULL, kRanks);
  winnow_transport* transports[kRanks];
  OK(winnow_local_transports(kRanks, transports));
  run(transports);
  for (int r = 0; r < kRanks; ++r) {
    winnow_transport_functions functions;
    memset(&functions, 0, sizeof functions);
    functions.struct_bytes = sizeof functions;
    open_mailbox(&posts[0], r, &functions);
    OK(winnow_transport_from_functions(&functions, &transports[r]));
  }
  run(transports);
  CHECK(posts[0].destroyed == kRanks && posts[1].destroyed == kRanks);
  run_tcp();
  burn_mail(&posts[0]);
  burn_mail(&posts[1]);
  printf("%d checks, %d failures\n", checks, failures);
  return failures > 0;
}
