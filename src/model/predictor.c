/* SPDX-License-Identifier: MIT */
/* Predictors: compute predictions with the weights of models.
 *
 * A *predictor* has a device, a replica and a thread of the library. It serves one caller at a
 * time: a caller *borrows* the predictor from the list of idle predictors, and gives it back after
 * the prediction. The predictor has its own thread because a back end can keep state per thread
 * (such as a current device), and that state must not change on the caller's thread. The built-in
 * CPU back end keeps no such state. With that back end the caller's thread computes the prediction
 * itself, because passing the work to another thread takes longer if few CPUs are free. */
#include "model/inference.h"

#include "base/error.h"
#include "nn/replica.h"
#include "pool/pool.h"

#include <math.h>
#include <string.h>

/* Numbers of rows for which a predictor has plans. Other numbers are padded to the next larger one.
 * Predictors of the CPU back end use the whole array, so that the time of a prediction of few rows
 * is in proportion to their number. Other predictors use the first COMMON_SIZES entries. */
static const uint32_t sizes[] = {64, 16, 1, 8, 7, 6, 5, 4, 3, 2};
enum { PASS_ROWS = 64, SIZES = sizeof sizes / sizeof *sizes, COMMON_SIZES = 3 };

typedef struct predictor {
    const ls_inference *inference;
    ls_pool *pool;          /* pool of one worker */
    struct predictor *next; /* next in the list of idle predictors */
    /* A replica that is never trained; its input and output follow. */
    ls_replica *replica;
    char *images;            /* [PASS_ROWS] */
    int32_t *labels;         /* [PASS_ROWS][targets or 1] unused, always 0 */
    float *logits;           /* [PASS_ROWS][classes] */
    double *row_outputs;     /* [classes] */
    uint32_t row[PASS_ROWS]; /* row indices: 0 … PASS_ROWS − 1 */
    bool known[PASS_ROWS];   /* false: the row has an unknown value, and its outputs are NaN */
    /* number of entries of the array `sizes` for which this predictor has plans */
    int sizes;
    size_t image_bytes;
    uint64_t loaded; /* id of the model whose weights are loaded; 0: none */
    /* The current request and its result. */
    const ls_model *model;
    const char *rows; /* [n] input rows of the caller */
    ls_row_type type; /* type of their values */
    uint32_t n;       /* number of rows */
    int form;         /* form of the outputs, as in ls_model_predict */
    void *outputs;    /* [n][classes] */
    int status;       /* result of the request */
    ls_error error;   /* message of the result, if it is an error */
} predictor;

static int start(const ls_worker *w, ls_device *device, void **local, void *user, ls_error *err)
{
    (void)w;
    (void)local;
    predictor *p = user;
    const ls_inference *i = p->inference;
    const ls_replica_desc d = {
        .device = device,
        .model = i->model,
        .normalisation = i->preprocessing,
        .data = {[LS_TEST] = {.images = (const void *)p->images,
                              .labels = p->labels,
                              .rows = PASS_ROWS}},
        .shard_rows = sizes,
        .shard_row_counts = p->sizes,
        .host = i->host,
    };
    return ls_replica_create(&p->replica, &d, err);
}

static void stop(const ls_worker *w, ls_device *device, void *local, void *user)
{
    (void)w;
    (void)device;
    (void)local;
    ls_replica_destroy(((predictor *)user)->replica);
}

/* Returns the number of rows of the next forward pass, if `left` rows have not been predicted yet.
 * 17 to 48 rows are predicted in passes of up to 16 rows, because that takes less time than one
 * pass that is padded to PASS_ROWS rows. */
static uint32_t next_pass_rows(uint32_t left)
{
    if (left >= PASS_ROWS)
        return PASS_ROWS;
    return left > 16 && left <= 48 ? 16 : left;
}

static uint32_t padded(const predictor *p, uint32_t n)
{
    uint32_t size = PASS_ROWS;
    for (int i = 1; i < p->sizes; i++)
        if (n <= sizes[i] && sizes[i] < size)
            size = sizes[i];
    return size;
}

static int load(predictor *p, ls_error *err)
{
    if (p->loaded == p->model->id)
        return LS_OK;
    p->loaded = 0;
    int status = ls_replica_import(p->replica, ls_replica_weight_arena(p->replica),
                                   p->model->canonical, err);
    if (status == LS_OK)
        p->loaded = p->model->id;
    return status;
}

/* Returns the size of one of the caller's rows in bytes. */
static size_t row_bytes(const predictor *p)
{
    return p->type == LS_ROW_F64 ? p->image_bytes / sizeof(float) * sizeof(double) : p->image_bytes;
}

/* Converts n rows from the form of the caller's data to the input of the network. ls_prep_ready
 * converts one row of numbers. Bytes need no conversion here. */
static int prepare(predictor *p, const char *images, uint32_t n, ls_error *err)
{
    const ls_prep *prep = ls_card_of_model(p->model)->prep;
    const size_t floats = p->image_bytes / sizeof(float);
    float *ready = (float *)(void *)p->images;
    int status = LS_OK;
    for (uint32_t i = 0; i < n; i++)
        p->known[i] = true;
    if (p->type == LS_ROWS_READY || p->type == LS_ROW_U8) {
        memcpy(p->images, images, n * p->image_bytes);
        return LS_OK;
    }
    for (uint32_t i = 0; status == LS_OK && i < n; i++) {
        ls_error why;
        ls_prep_found found = LS_PREP_KNOWN;
        status = ls_prep_ready(prep, images + i * row_bytes(p), p->type == LS_ROW_F64,
                               ready + i * floats, floats, &found, &why);
        p->known[i] = found != LS_PREP_UNKNOWN;
        if (status)
            ls_fail(err, status, "%s", why.text);
    }
    return status;
}

/* Predicts `n` rows, and writes the outputs from value number `first` on. */
static int predict_some(predictor *p, const char *images, uint32_t n, size_t first, ls_error *err)
{
    const size_t bytes = p->image_bytes;
    const uint32_t size = padded(p, n);
    const size_t classes = (size_t)p->inference->model->classes;
    const ls_meaning meaning = ls_meaning_of_model(p->model);
    int status = prepare(p, images, n, err);
    memset(p->images + n * bytes, 0, (size - n) * bytes);
    if (status == LS_OK)
        status = ls_replica_refresh(p->replica, LS_TEST, 0, size, err);
    if (status == LS_OK)
        status = ls_replica_predict(p->replica, p->row, size, p->logits, err);
    if (status)
        return status;
    ls_outputs_put(p->outputs, first, p->logits, n, p->form, &meaning, p->row_outputs);
    for (size_t i = 0; i < n; i++)
        if (!p->known[i])
            ls_outputs_put_unknown(p->outputs, first + i * classes, classes, p->form);
    return status;
}

/* Runs the current request. Allocates no memory. The result is stored in the predictor. The
 * function itself always returns LS_OK, because the pool would keep an error as its first error and
 * return it from all later calls of ls_pool_run as well. */
static int predict(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)err;
    predictor *p = arg;
    p->status = load(p, &p->error);
    for (uint32_t done = 0; p->status == LS_OK && done < p->n;) {
        const uint32_t count = next_pass_rows(p->n - done);
        p->status = predict_some(p, p->rows + done * row_bytes(p), count,
                                 done * (size_t)p->inference->model->classes, &p->error);
        done += count;
    }
    return LS_OK;
}

static void close_predictor(predictor *p)
{
    const ls_host *host = p->inference->host;
    ls_pool_destroy(p->pool, LS_FOREVER, NULL);
    ls_free(host, p->row_outputs);
    ls_free(host, p->logits);
    ls_free(host, p->labels);
    ls_free(host, p->images);
    ls_free(host, p);
}

static int make_room(predictor *p, ls_error *err)
{
    const ls_inference *i = p->inference;
    const ls_shape *in = &i->model->input;
    const size_t words = i->preprocessing.targets ? (size_t)i->preprocessing.targets : 1;
    p->image_bytes = (size_t)in->c * (size_t)in->h * (size_t)in->w *
                     (i->preprocessing.floats ? sizeof(float) : sizeof(uint8_t));
    p->images = ls_alloc_array(i->host, PASS_ROWS, p->image_bytes);
    p->labels = ls_alloc_array(i->host, PASS_ROWS * words, sizeof *p->labels);
    p->logits = ls_alloc_array(i->host, PASS_ROWS * sizeof *p->logits, (size_t)i->model->classes);
    p->row_outputs = ls_alloc_array(i->host, sizeof *p->row_outputs, (size_t)i->model->classes);
    for (uint32_t row = 0; row < PASS_ROWS; row++)
        p->row[row] = row;
    return p->images && p->labels && p->logits && p->row_outputs
               ? LS_OK
               : ls_fail(err, LS_ENOMEM, "out of memory for predictions");
}

static int open_predictor(predictor **out, const ls_inference *i, ls_error *err)
{
    predictor *p = ls_alloc(i->host, sizeof *p);
    const ls_device_pool_options o = {
        .size = sizeof o,
        .registry = i->registry,
        .devices = i->device,
        .start = start,
        .stop = stop,
        .user = p,
        .host = i->host,
        .caller_works = ls_is_builtin_cpu(ls_inference_backend(i->registry, i->device)),
    };
    if (!p)
        return ls_fail(err, LS_ENOMEM, "out of memory for a predictor");
    p->inference = i;
    p->sizes = o.caller_works ? SIZES : COMMON_SIZES;
    /* The public API requires that the owner with `caller_works` is always the same thread. Here it
     * is the borrower, another thread each time, which is allowed because devices of the built-in
     * CPU back end belong to no thread, and what one borrower does happens before what the next one
     * does: give_back unlocks i->lock and borrow locks it. */
    int status = make_room(p, err);
    if (status == LS_OK)
        status = ls_device_pool_create(&p->pool, &o, err);
    if (status)
        close_predictor(p);
    else
        *out = p;
    return status;
}

static int borrow(predictor **out, ls_inference *i, ls_error *err)
{
    pthread_mutex_lock(&i->lock);
    predictor *p = i->idle;
    if (p)
        i->idle = p->next;
    pthread_mutex_unlock(&i->lock);
    *out = p;
    return p ? LS_OK : open_predictor(out, i, err);
}

static void give_back(ls_inference *i, predictor *p)
{
    pthread_mutex_lock(&i->lock);
    p->next = i->idle;
    i->idle = p;
    pthread_mutex_unlock(&i->lock);
}

int ls_predictor_run(const ls_model *s, const void *rows, ls_row_type type, uint32_t n, int form,
                     void *outputs, ls_error *err)
{
    predictor *p;
    int status = borrow(&p, s->inference, err);
    if (status)
        return status;
    p->model = s;
    p->rows = rows;
    p->type = type;
    p->n = n;
    p->form = form;
    p->outputs = outputs;
    status = ls_pool_run(p->pool, predict, p, LS_FOREVER, err);
    if (status == LS_OK && p->status)
        status = ls_fail(err, p->status, "%s", p->error.text);
    give_back(s->inference, p);
    return status;
}

void ls_predictors_close(ls_inference *i)
{
    while (i->idle) {
        predictor *p = i->idle;
        i->idle = p->next;
        close_predictor(p);
    }
}
