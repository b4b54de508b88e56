#include "train/infer.h"

#include "base/error.h"
#include "base/host.h"

#include <lockstep/split.h>
#include <string.h>

/* ---- rows of a data set, over any number of workers ------------------------------------------ */

static size_t tallies(const ls_sharded_rows *r)
{
    return ((size_t)r->rows + r->batch - 1) / r->batch * r->shards;
}

int ls_sharded_rows_init(ls_sharded_rows *r, const ls_host *host, ls_error *err)
{
    r->row = ls_alloc_array(host, r->rows, sizeof *r->row);
    r->tally = ls_alloc_array(host, tallies(r), sizeof *r->tally);
    if (!r->row || !r->tally)
        return ls_fail(err, LS_ENOMEM, "out of memory for %u rows", (unsigned)r->rows);
    for (uint32_t i = 0; i < r->rows; i++)
        r->row[i] = i;
    return LS_OK;
}

void ls_sharded_rows_fini(ls_sharded_rows *r, const ls_host *host)
{
    ls_free(host, r->tally);
    ls_free(host, r->row);
}

static int infer_shard(const ls_sharded_rows *r, ls_replica *replica, uint32_t first,
                       uint32_t count, ls_tally *tally, ls_error *err)
{
    float *scores = r->scores ? r->scores + first * (size_t)r->classes : NULL;
    return ls_replica_evaluate(replica, LS_TEST, r->row + first, count, &tally->loss,
                               &tally->correct, scores, err);
}

int ls_infer_shards(const ls_sharded_rows *r, ls_replica *replica, int lo, int hi, ls_error *err)
{
    ls_tally *tally = r->tally;
    for (uint64_t begin = 0; begin < r->rows; begin += r->batch, tally += r->shards) {
        const uint64_t left = r->rows - begin;
        if (r->stop && atomic_load_explicit(r->stop, memory_order_relaxed))
            return LS_OK;
        for (int shard = lo; shard < hi; shard++) {
            uint32_t first, count;
            ls_split(left < r->batch ? (uint32_t)left : r->batch, r->shards, (uint32_t)shard,
                     &first, &count);
            int status =
                infer_shard(r, replica, (uint32_t)begin + first, count, &tally[shard], err);
            if (status)
                return status;
        }
    }
    return LS_OK;
}

ls_tally ls_sharded_rows_sum(const ls_sharded_rows *r)
{
    ls_tally sum = {0, 0};
    for (size_t i = 0; i < tallies(r); i++) {
        sum.loss += r->tally[i].loss;
        sum.correct += r->tally[i].correct;
    }
    return sum;
}

int ls_add_shard_sizes(uint32_t *sizes, int count, uint32_t rows, uint32_t batch, uint32_t shards)
{
    const uint32_t minibatch[2] = {rows < batch ? rows : batch, rows % batch};
    for (int i = 0; i < LS_SHARD_SIZES; i++) {
        const uint32_t size = (minibatch[i / 2] + (i % 2 ? shards - 1 : 0)) / shards;
        bool known = size == 0;
        for (int k = 0; k < count; k++)
            known |= sizes[k] == size;
        if (!known)
            sizes[count++] = size;
    }
    return count;
}

/* ---- images in the caller's memory, on one device -------------------------------------------- */

/* Rows that are predicted at once; what is left over is padded to the next. */
static const uint32_t sizes[] = {64, 16, 1};
enum { MOST = 64, SIZES = sizeof sizes / sizeof *sizes };

struct ls_session {
    const ls_model *model;
    const ls_host *host;
    ls_replica *replica;
    char *images;       /* [MOST] */
    int32_t *labels;    /* [MOST], or as many targets; they stay 0, and mean nothing */
    float *logits;      /* [MOST][classes] */
    uint32_t row[MOST]; /* 0, 1, 2, … */
    size_t image_bytes;
    uint64_t loaded; /* which weights it has; 0: none */
};

static int open_replica(ls_session *s, ls_device *device, const ls_gather *preprocessing,
                        ls_error *err)
{
    const ls_replica_desc d = {
        .device = device,
        .model = s->model,
        .normalisation = *preprocessing,
        .data = {[LS_TEST] = {.images = (const void *)s->images,
                              .labels = s->labels,
                              .rows = MOST}},
        .shard_rows = sizes,
        .shard_row_counts = SIZES,
        .host = s->host,
    };
    return ls_replica_create(&s->replica, &d, err);
}

int ls_session_create(ls_session **out, ls_device *device, const ls_model *model,
                      const ls_gather *preprocessing, const ls_host *host, ls_error *err)
{
    const ls_shape *in = &model->input;
    ls_session *s = ls_alloc(host, sizeof *s);
    if (!s)
        return ls_fail(err, LS_ENOMEM, "out of memory for predictions");
    s->model = model;
    s->host = host;
    const size_t words = preprocessing->targets ? (size_t)preprocessing->targets : 1;
    s->image_bytes = (size_t)in->c * (size_t)in->h * (size_t)in->w *
                     (preprocessing->floats ? sizeof(float) : sizeof(uint8_t));
    s->images = ls_alloc_array(host, MOST, s->image_bytes);
    s->labels = ls_alloc_array(host, MOST * words, sizeof *s->labels);
    s->logits = ls_alloc_array(host, MOST * sizeof *s->logits, (size_t)model->classes);
    for (uint32_t i = 0; i < MOST; i++)
        s->row[i] = i;
    int status = s->images && s->labels && s->logits
                     ? open_replica(s, device, preprocessing, err)
                     : ls_fail(err, LS_ENOMEM, "out of memory for predictions");
    if (status)
        ls_session_destroy(s);
    else
        *out = s;
    return status;
}

void ls_session_destroy(ls_session *s)
{
    if (!s)
        return;
    ls_replica_destroy(s->replica);
    ls_free(s->host, s->logits);
    ls_free(s->host, s->labels);
    ls_free(s->host, s->images);
    ls_free(s->host, s);
}

static int load(ls_session *s, const float *canonical, uint64_t id, ls_error *err)
{
    if (s->loaded == id)
        return LS_OK;
    s->loaded = 0;
    int status = ls_replica_import(s->replica, ls_replica_weight_arena(s->replica), canonical, err);
    if (status == LS_OK)
        s->loaded = id;
    return status;
}

static uint32_t padded(uint32_t n)
{
    uint32_t size = MOST;
    for (int i = 1; i < SIZES; i++)
        if (n <= sizes[i])
            size = sizes[i];
    return size;
}

static int predict_some(ls_session *s, const char *images, uint32_t n, float *scores, ls_error *err)
{
    const size_t classes = (size_t)s->model->classes, bytes = s->image_bytes;
    const uint32_t size = padded(n);
    memcpy(s->images, images, n * bytes);
    memset(s->images + n * bytes, 0, (size - n) * bytes);
    int status = ls_replica_refresh(s->replica, LS_TEST, 0, size, err);
    if (status == LS_OK)
        status = ls_replica_predict(s->replica, s->row, size, s->logits, err);
    if (status == LS_OK)
        memcpy(scores, s->logits, n * classes * sizeof *scores);
    return status;
}

int ls_session_predict(ls_session *s, const float *canonical, uint64_t id, const void *images,
                       uint32_t n, float *scores, ls_error *err)
{
    int status = load(s, canonical, id, err);
    for (uint32_t done = 0; status == LS_OK && done < n;) {
        const uint32_t left = n - done;
        /* 17 to 48 rows are cheaper by sixteens than padded. */
        const uint32_t count = left >= MOST ? MOST : left > 48 ? left : left > 16 ? 16 : left;
        status = predict_some(s, (const char *)images + done * s->image_bytes, count,
                              scores + done * (size_t)s->model->classes, err);
        done += count;
    }
    return status;
}
