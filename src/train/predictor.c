/* The thread is the library's own, so that whatever a back end keeps per thread (a current device, the
 * width of a team) is never changed on the caller's. */
#include "train/predictor.h"

#include "base/error.h"
#include "base/host.h"
#include "nn/replica.h"

#include <string.h>

/* Rows that are predicted at once; what is left over is padded to the next. */
static const uint32_t sizes[] = {64, 16, 1};
enum { MOST = 64, SIZES = sizeof sizes / sizeof *sizes };

struct ls_predictor {
    ls_predictor_desc desc;
    ls_pool *pool; /* of one worker */
    ls_replica *replica;
    uint8_t *images, *labels; /* [MOST]; the labels stay 0, and mean nothing */
    float *logits;            /* [MOST][classes] */
    size_t image_bytes;
    uint64_t loaded; /* which weights it has; 0: none */
    ls_predictor *next;
    /* What is asked for. */
    const float *canonical;
    uint64_t id;
    const uint8_t *wanted;
    uint32_t n;
    float *scores;
    int status;
    ls_error error;
};

ls_predictor *ls_predictor_next(const ls_predictor *p)
{
    return p->next;
}

void ls_predictor_link(ls_predictor *p, ls_predictor *next)
{
    p->next = next;
}

/* ---- on its thread -------------------------------------------------------------------------- */

static int start(const ls_worker *w, ls_device *device, void **local, void *user, ls_error *err)
{
    (void)w;
    ls_predictor *p = user;
    *local = p;
    ls_replica_desc d = {
        .device = device,
        .model = p->desc.model,
        .normalisation = p->desc.preprocessing,
        .data = {[LS_TEST] = {p->images, p->labels, MOST}},
        .shard_rows = sizes,
        .shard_row_counts = SIZES,
        .host = p->desc.host,
    };
    return ls_replica_create(&p->replica, &d, err);
}

static void stop(const ls_worker *w, ls_device *device, void *local, void *user)
{
    (void)w;
    (void)device;
    (void)user;
    ls_replica_destroy(((ls_predictor *)local)->replica);
}

static uint32_t padded(uint32_t n)
{
    uint32_t size = MOST;
    for (int i = 1; i < SIZES; i++)
        if (n <= sizes[i])
            size = sizes[i];
    return size;
}

static int predict_some(ls_predictor *p, uint32_t done, uint32_t n)
{
    const size_t classes = (size_t)p->desc.model->classes, bytes = p->image_bytes;
    const uint32_t size = padded(n);
    memcpy(p->images, p->wanted + done * bytes, n * bytes);
    memset(p->images + n * bytes, 0, (size - n) * bytes);
    int status = ls_replica_refresh(p->replica, LS_TEST, 0, size, &p->error);
    if (status == LS_OK)
        status = ls_replica_predict(p->replica, size, p->logits, &p->error);
    if (status == LS_OK)
        memcpy(p->scores + done * classes, p->logits, n * classes * sizeof *p->scores);
    return status;
}

static int load(ls_predictor *p)
{
    if (p->loaded == p->id)
        return LS_OK;
    p->loaded = 0;
    int status =
        ls_replica_import(p->replica, ls_replica_weight_arena(p->replica), p->canonical, &p->error);
    if (status == LS_OK)
        p->loaded = p->id;
    return status;
}

/* Its result is in the predictor: the pool would keep an error for ever. */
static int predict(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)err;
    ls_predictor *p = arg;
    p->status = load(p);
    for (uint32_t done = 0; p->status == LS_OK && done < p->n;) {
        const uint32_t left = p->n - done;
        /* 17 to 48 rows are cheaper by sixteens than padded. */
        const uint32_t count = left >= MOST ? MOST : left > 48 ? left : left > 16 ? 16 : left;
        p->status = predict_some(p, done, count);
        done += count;
    }
    return LS_OK;
}

/* ---- on the caller's ------------------------------------------------------------------------ */

int ls_predictor_run(ls_predictor *p, const float *canonical, uint64_t id, const uint8_t *images,
                     uint32_t n, float *scores, ls_error *err)
{
    p->canonical = canonical;
    p->id = id;
    p->wanted = images;
    p->n = n;
    p->scores = scores;
    int status = ls_pool_run(p->pool, predict, p, LS_FOREVER, err);
    if (status == LS_OK && p->status && err)
        *err = p->error;
    return status ? status : p->status;
}

static int open_pool(ls_predictor *p, ls_error *err)
{
    const ls_device_pool_options o = {
        .size = sizeof o,
        .registry = p->desc.registry,
        .devices = p->desc.device,
        .start = start,
        .stop = stop,
        .user = p,
        .host = p->desc.host,
    };
    return ls_device_pool_create(&p->pool, &o, err);
}

int ls_predictor_create(ls_predictor **out, const ls_predictor_desc *desc, ls_error *err)
{
    const ls_shape *in = &desc->model->input;
    ls_predictor *p = ls_alloc(desc->host, sizeof *p);
    if (!p)
        return ls_fail(err, LS_ENOMEM, "out of memory for a predictor");
    p->desc = *desc;
    p->image_bytes = (size_t)in->c * (size_t)in->h * (size_t)in->w;
    p->images = ls_alloc_array(desc->host, MOST, p->image_bytes);
    p->labels = ls_alloc(desc->host, MOST);
    p->logits = ls_alloc_array(desc->host, MOST * sizeof *p->logits, (size_t)desc->model->classes);
    int status = p->images && p->labels && p->logits
                     ? LS_OK
                     : ls_fail(err, LS_ENOMEM, "out of memory for a predictor");
    if (status == LS_OK)
        status = open_pool(p, err);
    if (status)
        ls_predictor_destroy(p);
    else
        *out = p;
    return status;
}

void ls_predictor_destroy(ls_predictor *p)
{
    if (!p)
        return;
    const ls_host *host = p->desc.host;
    ls_pool_destroy(p->pool);
    ls_free(host, p->logits);
    ls_free(host, p->labels);
    ls_free(host, p->images);
    ls_free(host, p);
}
