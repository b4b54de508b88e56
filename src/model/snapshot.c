/* Snapshots, and the predictors that compute predictions with the weights of snapshots.
 *
 * A *predictor* has a device, a replica (a copy of the model) and a thread of the library. It
 * serves one caller at a time: a caller *borrows* the predictor from the list of idle predictors,
 * and gives it back after the prediction. The predictor has its own thread because a back end can
 * keep state per thread (such as a current device), and that state must not change on the caller's
 * thread. The built-in CPU back end keeps no such state. With that back end the caller's thread
 * computes the prediction itself, because passing the work to another thread takes longer if few
 * CPUs are free.
 */
#include "model/snapshot.h"
#include "base/error.h"
#include "base/host.h"
#include "base/sized.h"
#include "base/stack.h"
#include "base/thread_state.h"
#include "config/card.h"
#include "device/registry.h"
#include "model/outputs.h"
#include "nn/replica.h"
#include "nn/safetensors.h"
#include "onnx/onnx.h"
#include "pool/pool.h"
#include "store/durable.h"

#include <lockstep/model.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* What a trainer and all snapshots of its model share for predictions (model/snapshot.h). */
struct ls_inference {
    atomic_uint references;
    /* number of snapshots created so far; the id of a snapshot is this number */
    atomic_ullong snapshots;
    ls_model *model;
    ls_registry *own_registry;   /* registry that was created here; NULL: the caller's is used */
    const ls_registry *registry; /* the list of back ends that is used */
    ls_gather preprocessing;     /* normalisation of the input rows (ls_gather) */
    char device[80];             /* device of predictors, such as "cpu:1" or "cuda:0" */
    /* Contents of the model's card, the part of a model file that describes the model and how rows
     * are prepared (config/card.h). Zeroed: the model has none. */
    ls_card card;
    const ls_host *host;
    ls_fork_mark *mark;     /* says whether this process has inherited the object by fork */
    pthread_mutex_t lock;   /* protects `idle` */
    struct predictor *idle; /* list of the predictors that serve no caller at present */
};

struct ls_snapshot {
    atomic_uint references;
    ls_inference *inference;
    uint64_t id, steps; /* number of the snapshot, from 1; number of steps done before it */
    float *canonical;   /* [model->floats] the weights, in canonical layout (nn/model.h) */
};

/* ---- reference counting ------------------------------------------------------------------------
 *
 * Memory order. Only a thread that has a reference adds another reference, so the count cannot
 * reach 0 meanwhile, and an increment needs no order. All changes of the count are
 * read-modify-writes. Each decrement has release order, and heads a release sequence that all later
 * changes continue. The last decrement, which finds 1, also has acquire order. Take any earlier
 * decrement D: the value that the last decrement reads is from the release sequence that D heads,
 * so D synchronizes with the last decrement. Therefore everything that a thread did with the object
 * before it dropped its reference happens before the object is freed.
 */

static void retain(atomic_uint *references)
{
    atomic_fetch_add_explicit(references, 1, memory_order_relaxed);
}

static bool was_last(atomic_uint *references)
{
    return atomic_fetch_sub_explicit(references, 1, memory_order_acq_rel) == 1;
}

/* ---- shared state --------------------------------------------------------------------------- */

int ls_inference_create(ls_inference **out, ls_model *model, const ls_registry *registry,
                        const ls_gather *preprocessing, const ls_host *host, ls_error *err)
{
    ls_inference *i = ls_alloc(host, sizeof *i);
    if (!i || pthread_mutex_init(&i->lock, NULL) != 0) {
        ls_free(host, i);
        ls_model_destroy(model, host);
        return ls_fail(err, LS_ENOMEM, "out of memory for a trainer");
    }
    atomic_init(&i->references, 1);
    atomic_init(&i->snapshots, 0);
    i->model = model;
    i->preprocessing = *preprocessing;
    i->host = host;
    int status = ls_fork_mark_create(&i->mark, err);
    if (status == LS_OK && !registry)
        status = ls_registry_create(&i->own_registry, host, err);
    i->registry = registry ? registry : i->own_registry;
    if (status == LS_OK && model->card)
        status = ls_card_parse(&i->card, "card", model->card, host, err);
    if (status)
        ls_inference_release(i);
    else
        *out = i;
    return status;
}

bool ls_inference_is_inherited(const ls_inference *i)
{
    return ls_fork_mark_is_inherited(i->mark);
}

const ls_registry *ls_inference_registry(const ls_inference *i)
{
    return i->registry;
}

/* Returns the back end of a device; NULL: no back end has that name. `device` is written as in the
 * config's key `devices`, such as "cuda:0", or as an open device is called, such as "cuda(0)". */
static const ls_backend *backend_of(const ls_registry *registry, const char *device)
{
    return ls_registry_find(registry, device, strcspn(device, ":("));
}

/* Writes i->device in the form of the config's key `devices`. With a *counted* back end the number
 * in that form is how many devices are used (plugin.h), so "cpu(3)" becomes "cpu:1". With another
 * back end the number is the device's index, so "cuda(3)" becomes "cuda:3". */
void ls_inference_use_kind_of(ls_inference *i, const char *device)
{
    const int name = (int)strcspn(device, "(");
    const ls_backend *b = backend_of(i->registry, device);
    int number = 0;
    sscanf(device + name, "(%d", &number);
    snprintf(i->device, sizeof i->device, "%.*s:%d", name, device, b && b->counted ? 1 : number);
}

/* Sets the device of predictors, in the form of the config's key `devices`, such as "cuda:3". Must
 * be called before the first snapshot is created. */
static int predict_on(ls_inference *i, const char *device, ls_error *err)
{
    const int n = snprintf(i->device, sizeof i->device, "%s", device);
    return (size_t)n < sizeof i->device
               ? LS_OK
               : ls_fail(err, LS_EINVAL, "device \"%.60s…\": expected one, such as \"cuda:0\"",
                         device);
}

/* ---- predictors ----------------------------------------------------------------------------- */

/* Numbers of rows for which a predictor has plans (prepared ops for that number of rows). Other
 * numbers of rows are padded to the smallest number in the array that is larger. Predictors of the
 * CPU back end use the whole array: each number up to eight has a plan of its own, so the time of a
 * prediction of few rows is in proportion to their number. Other predictors use the first
 * COMMON_SIZES entries. */
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
    uint32_t row[PASS_ROWS]; /* row indices: 0 … PASS_ROWS − 1 */
    /* number of entries of the array `sizes` for which this predictor has plans */
    int sizes;
    size_t image_bytes;
    uint64_t loaded; /* id of the snapshot whose weights are loaded; 0: none */
    /* The current request and its result. */
    const ls_snapshot *snapshot;
    const char *rows; /* [n] input rows of the caller */
    uint32_t n;       /* number of rows */
    float *scores;    /* [n][classes] outputs */
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
    if (p->loaded == p->snapshot->id)
        return LS_OK;
    p->loaded = 0;
    int status = ls_replica_import(p->replica, ls_replica_weight_arena(p->replica),
                                   p->snapshot->canonical, err);
    if (status == LS_OK)
        p->loaded = p->snapshot->id;
    return status;
}

/* Converts n rows from the form of the caller's data to the input of the network. ls_prep_ready
 * converts one row. If ls_prep_acts returns false, no row needs a conversion. */
static int prepare(predictor *p, const char *images, uint32_t n, ls_error *err)
{
    const ls_prep *prep = p->inference->card.prep;
    const size_t floats = p->image_bytes / sizeof(float);
    int status = LS_OK;
    if (!prep || !ls_prep_acts(prep)) {
        memcpy(p->images, images, n * p->image_bytes);
        return LS_OK;
    }
    for (uint32_t i = 0; status == LS_OK && i < n; i++)
        status = ls_prep_ready(prep, (const float *)(const void *)images + i * floats,
                               (float *)(void *)p->images + i * floats, floats, err);
    return status;
}

static int predict_some(predictor *p, const char *images, uint32_t n, float *scores, ls_error *err)
{
    const size_t classes = (size_t)p->inference->model->classes, bytes = p->image_bytes;
    const uint32_t size = padded(p, n);
    int status = prepare(p, images, n, err);
    memset(p->images + n * bytes, 0, (size - n) * bytes);
    if (status == LS_OK)
        status = ls_replica_refresh(p->replica, LS_TEST, 0, size, err);
    if (status == LS_OK)
        status = ls_replica_predict(p->replica, p->row, size, p->logits, err);
    if (status == LS_OK) {
        memcpy(scores, p->logits, n * classes * sizeof *scores);
        ls_prep_unscale(p->inference->card.prep, scores, n * classes);
    }
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
        p->status =
            predict_some(p, p->rows + done * p->image_bytes, count,
                         p->scores + done * (size_t)p->inference->model->classes, &p->error);
        done += count;
    }
    return LS_OK;
}

static void close_predictor(predictor *p)
{
    const ls_host *host = p->inference->host;
    ls_pool_destroy(p->pool);
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
    for (uint32_t row = 0; row < PASS_ROWS; row++)
        p->row[row] = row;
    return p->images && p->labels && p->logits
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
        .caller_works = ls_is_builtin_cpu(backend_of(i->registry, i->device)),
    };
    if (!p)
        return ls_fail(err, LS_ENOMEM, "out of memory for a predictor");
    p->inference = i;
    p->sizes = o.caller_works ? SIZES : COMMON_SIZES;
    /* With `caller_works` the owner of the pool runs its jobs. The public API requires that this
     * owner is always the same thread. Here the thread that has borrowed the predictor acts as the
     * owner, which can be another thread each time. This is allowed inside the library for two
     * reasons. Devices of the built-in CPU back end belong to no thread. And everything that one
     * borrower does happens before everything that the next borrower does: the first borrower
     * unlocks i->lock in give_back, and the next borrower locks i->lock in borrow. */
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

void ls_inference_release(ls_inference *i)
{
    if (!i || !was_last(&i->references))
        return;
    const ls_host *host = i->host;
    while (i->idle) {
        predictor *p = i->idle;
        i->idle = p->next;
        close_predictor(p);
    }
    pthread_mutex_destroy(&i->lock);
    ls_fork_mark_destroy(i->mark);
    ls_card_fini(&i->card);
    ls_model_destroy(i->model, host);
    ls_registry_destroy(i->own_registry);
    ls_free(host, i);
}

/* ---- snapshots ------------------------------------------------------------------------------ */

int ls_snapshot_create(ls_snapshot **out, ls_inference *inference, const float *canonical,
                       uint64_t steps, ls_error *err)
{
    const ls_host *host = inference->host;
    ls_snapshot *s = ls_alloc(host, sizeof *s);
    if (s)
        s->canonical = ls_alloc_array(host, inference->model->floats, sizeof *s->canonical);
    if (!s || !s->canonical) {
        ls_free(host, s);
        return ls_fail(err, LS_ENOMEM, "out of memory for a snapshot of %zu weights",
                       inference->model->floats);
    }
    memcpy(s->canonical, canonical, inference->model->floats * sizeof *canonical);
    retain(&inference->references);
    atomic_init(&s->references, 1);
    s->inference = inference;
    s->id = atomic_fetch_add_explicit(&inference->snapshots, 1, memory_order_relaxed) + 1;
    s->steps = steps;
    *out = s;
    return LS_OK;
}

ls_snapshot *ls_snapshot_retain(ls_snapshot *s)
{
    if (s)
        retain(&s->references);
    return s;
}

void ls_snapshot_release(ls_snapshot *s)
{
    if (!s || !was_last(&s->references))
        return;
    ls_inference *inference = s->inference;
    ls_free(inference->host, s->canonical);
    ls_free(inference->host, s);
    ls_inference_release(inference);
}

void ls_snapshot_describe(const ls_snapshot *s, ls_snapshot_info *out)
{
    if (!s && out)
        *out = (ls_snapshot_info){0};
    if (!s || !out)
        return;
    const ls_model *model = s->inference->model;
    *out = (ls_snapshot_info){.steps = s->steps,
                              .channels = model->input.c,
                              .height = model->input.h,
                              .width = model->input.w,
                              .classes = model->classes,
                              .parameters = model->parameters,
                              .floats = s->inference->preprocessing.floats,
                              .targets = s->inference->preprocessing.targets};
}

static int check_capacity(size_t capacity, size_t needed, ls_error *err)
{
    return capacity >= needed
               ? LS_OK
               : ls_fail(err, LS_EINVAL, "room for %zu floats, %zu are needed", capacity, needed);
}

int ls_snapshot_predict(ls_snapshot *s, const void *images, uint32_t n, float *scores,
                        size_t capacity, ls_error *err)
{
    /* sets Lockstep's floating-point mode until the function returns (base/thread_state.h) */
    LS_OWN_ARITHMETIC;
    predictor *p;
    if (!s || (n > 0 && (!images || !scores)))
        return ls_fail(err, LS_EINVAL, "ls_snapshot_predict: no snapshot, images or scores");
    if (ls_inference_is_inherited(s->inference))
        return ls_fail(
            err, LS_EINVAL,
            "ls_snapshot_predict: the snapshot belongs to another process, of which this "
            "one was forked: open the model here");
    int status = check_capacity(capacity, (size_t)n * (size_t)s->inference->model->classes, err);
    if (status == LS_OK)
        status = ls_stack_check(LS_PREDICT_STACK_BYTES, "ls_snapshot_predict", err);
    if (status == LS_OK)
        status = borrow(&p, s->inference, err);
    if (status)
        return status;
    p->snapshot = s;
    p->rows = images;
    p->n = n;
    p->scores = scores;
    status = ls_pool_run(p->pool, predict, p, LS_FOREVER, err);
    if (status == LS_OK && p->status)
        status = ls_fail(err, p->status, "%s", p->error.text);
    give_back(s->inference, p);
    return status;
}

int ls_snapshot_save(const ls_snapshot *s, const char *path, ls_error *err)
{
    if (!s || !path)
        return ls_fail(err, LS_EINVAL, "ls_snapshot_save: no snapshot, or no path");
    char target[LS_PATH_BYTES];
    int status = ls_follow_links(target, path, err);
    return status ? status
                  : ls_safetensors_save(target, s->inference->model, s->canonical,
                                        s->inference->host, err);
}

int ls_model_export(const ls_snapshot *s, const char *path, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    char target[LS_PATH_BYTES];
    if (!s || !path)
        return ls_fail(err, LS_EINVAL, "ls_model_export: no model, or no path");
    int status = ls_follow_links(target, path, err);
    if (status)
        return status;
    const ls_inference *i = s->inference;
    const ls_config *c = &i->card.config;
    const ls_onnx_desc d = {
        .model = i->model,
        .weights = s->canonical,
        .normalisation = i->preprocessing,
        .prep = i->card.prep,
        .name = i->model->name[0] ? i->model->name
                : c->name         ? c->name
                                  : "run",
        .loss = c->loss,
    };
    ls_c_locale locale = ls_c_locale_enter();
    status = ls_onnx_save(target, &d, i->host, err);
    ls_c_locale_leave(locale);
    return status;
}

/* ---- from a file ----------------------------------------------------------------------------- */

static int open_model(ls_snapshot **out, const char *path, const ls_model_options *o, ls_error *err)
{
    ls_card card;
    ls_model *model;
    float *weights = NULL;
    ls_inference *inference = NULL;
    ls_snapshot *s = NULL;
    int status = ls_card_read(&card, path, o->host, err);
    if (status)
        return status;
    status = ls_card_load(&model, &weights, &card, path, err);
    if (status == LS_OK)
        status = ls_inference_create(&inference, model, o->registry, &card.config.preprocessing,
                                     o->host, err);
    if (status == LS_OK)
        status = predict_on(inference, o->device ? o->device : "cpu:1", err);
    if (status == LS_OK)
        status = ls_snapshot_create(&s, inference, weights, 0, err);
    /* a prediction of no rows opens the device, so errors of opening are returned here */
    if (status == LS_OK)
        status = ls_snapshot_predict(s, NULL, 0, NULL, 0, err);
    ls_inference_release(inference);
    ls_free(o->host, weights);
    ls_card_fini(&card);
    if (status)
        ls_snapshot_release(s);
    else
        *out = s;
    return status;
}

int ls_model_open(ls_snapshot **out, const char *path, const ls_model_options *options,
                  ls_error *err)
{
    LS_OWN_ARITHMETIC;
    ls_model_options o = {.size = sizeof o};
    /* "no room" in the message: `out` is NULL */
    if (!out || !path)
        return ls_fail(err, LS_EINVAL, "ls_model_open: no path, or no room for the model");
    *out = NULL;
    int status = options ? ls_sized_take(&o, sizeof o, options, "ls_model_options", err) : LS_OK;
    return status ? status : open_model(out, path, &o, err);
}

int ls_model_run(ls_snapshot *model, const void *rows, uint32_t n, ls_output form, float *outputs,
                 size_t capacity, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    if (form != LS_OUTPUT_PROBABILITIES && form != LS_OUTPUT_LOGITS)
        return ls_fail(err, LS_EINVAL, "ls_model_run: form %d; expected probabilities or logits",
                       (int)form);
    int status = ls_snapshot_predict(model, rows, n, outputs, capacity, err);
    const ls_loss *loss = status ? NULL : model->inference->card.config.loss;
    if (status || form == LS_OUTPUT_LOGITS || !loss)
        return status;
    const size_t classes = (size_t)model->inference->model->classes;
    /* bits: each output becomes a probability of its own; vectors: the outputs are no classes, so
     * they have no softmax (nn/loss.h) */
    for (size_t i = 0; i < n * classes && loss->bits; i++)
        outputs[i] = (float)ls_output_value(loss, outputs[i]);
    for (size_t i = 0; i < n && !loss->vectors; i++)
        ls_softmax(outputs + i * classes, outputs + i * classes, (int)classes);
    return LS_OK;
}

int ls_model_predict(ls_snapshot *model, const void *rows, uint32_t n, float *outputs,
                     size_t capacity, ls_error *err)
{
    return ls_model_run(model, rows, n, LS_OUTPUT_PROBABILITIES, outputs, capacity, err);
}

const char *ls_model_card(const ls_snapshot *model)
{
    return model ? model->inference->model->card : NULL;
}

/* Fails if the row has no field for one of the columns of the table on which the model was trained.
 * `seen`: whether each column has a field. */
static int check_columns(const ls_prep *prep, const bool *seen, ls_error *err)
{
    for (int i = 0; i < prep->columns; i++)
        if (!seen[i])
            return ls_fail(err, LS_EDATA, "ls_model_row: column \"%.60s\" is missing",
                           prep->column[i].name);
    return LS_OK;
}

static int put_fields(const ls_prep *prep, const ls_field *fields, size_t count, bool *seen,
                      float *row, ls_error *err)
{
    int status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        const int column = fields[i].column ? ls_prep_find(prep, fields[i].column) : -1;
        if (column < 0)
            continue;
        if (seen[column])
            return ls_fail(err, LS_EINVAL, "ls_model_row: column \"%.60s\" is there twice",
                           fields[i].column);
        seen[column] = true;
        status = ls_prep_put(prep, column, fields[i].text, fields[i].number, row, "", err);
    }
    return status ? status : check_columns(prep, seen, err);
}

int ls_model_row(const ls_snapshot *model, const ls_field *fields, size_t count, float *row,
                 size_t capacity, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    if (!model || !row || (count > 0 && !fields))
        return ls_fail(err, LS_EINVAL, "ls_model_row: no model, fields or row");
    const ls_inference *i = model->inference;
    const ls_prep *prep = i->card.prep;
    /* a model that was not trained on a table: its rows have no columns with names */
    if (!prep || prep->kind != LS_PREP_TABLE)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "ls_model_row: the model's rows have no columns of names; pass whole rows "
                       "to ls_model_run");
    const ls_shape *in = &i->model->input;
    int status = check_capacity(capacity, (size_t)in->c * (size_t)in->h * (size_t)in->w, err);
    if (status)
        return status;
    bool *seen = ls_alloc_array(i->host, (size_t)prep->columns, sizeof *seen);
    if (!seen)
        return ls_fail(err, LS_ENOMEM, "out of memory for a row");
    ls_c_locale locale = ls_c_locale_enter();
    status = put_fields(prep, fields, count, seen, row, err);
    ls_c_locale_leave(locale);
    ls_free(i->host, seen);
    return status;
}

const char *ls_model_class_name(const ls_snapshot *model, int label)
{
    return !model || label < 0 ? NULL : ls_card_class_name(&model->inference->card, label);
}
