/* SPDX-License-Identifier: MIT */
/* Rows of the calling program (own_rows.h). */
#include "data/own_rows.h"

#include "base/error.h"
#include "base/host.h"
#include "data/scales.h"

#include <math.h>
#include <string.h>

#define CHUNK 256u /* number of rows requested in one call of the callback */

/* ---- rows in the source's types -------------------------------------------------------------- */

/* Rows and targets in the types of the data source: bytes, floats or doubles; and classes, floats
 * or doubles. */
typedef struct raw_rows {
    const ls_data_source *source;
    void *values, *targets;
    size_t rows;
} raw_rows;

/* Room for rows that were read. NULL: not allocated. */
typedef struct room {
    void *values, *targets;
} room;

static size_t values_of(const ls_data_source *s)
{
    return (size_t)s->channels * (size_t)s->height * (size_t)s->width;
}

static size_t number_bytes(const ls_data_source *s)
{
    return s->row_type == LS_ROW_F64   ? sizeof(double)
           : s->row_type == LS_ROW_F32 ? sizeof(float)
                                       : 1;
}

static size_t row_bytes(const ls_data_source *s)
{
    return values_of(s) * number_bytes(s);
}

/* Returns the type of the numbers of targets. */
static ls_row_type target_type(const ls_data_source *s)
{
    if (s->target_type)
        return s->target_type;
    return s->row_type == LS_ROW_F64 ? LS_ROW_F64 : LS_ROW_F32;
}

static bool has_wide_values(const ls_data_source *s)
{
    return s->row_type == LS_ROW_F64;
}

static bool has_wide_targets(const ls_data_source *s)
{
    return s->target_count > 0 && target_type(s) == LS_ROW_F64;
}

static size_t target_bytes(const ls_data_source *s)
{
    const size_t number = has_wide_targets(s) ? sizeof(double) : sizeof(float);
    return s->target_count ? (size_t)s->target_count * number : sizeof(int32_t);
}

static double number_at(const void *numbers, bool wide, size_t i)
{
    return wide ? ((const double *)numbers)[i] : (double)((const float *)numbers)[i];
}

static double value_at(const void *of, size_t i)
{
    const raw_rows *r = of;
    return number_at(r->values, has_wide_values(r->source), i);
}

static double target_at(const void *of, size_t i)
{
    const raw_rows *r = of;
    return number_at(r->targets, has_wide_targets(r->source), i);
}

static const float *weights_of(const ls_data_source *s, int test)
{
    return test ? s->test_weights : s->train_weights;
}

/* Allocates room for `rows` rows: for their values and targets, or, without `all`, for those of the
 * two that are doubles. The caller frees it with free_room, also after a failure. */
static int take_room(room *out, const ls_data_source *s, size_t rows, bool all, const ls_host *host,
                     ls_error *err)
{
    const bool values = all || has_wide_values(s), targets = all || has_wide_targets(s);
    *out = (room){0};
    if (values)
        out->values = ls_alloc_array(host, rows, row_bytes(s));
    if (targets)
        out->targets = ls_alloc_array(host, rows, target_bytes(s));
    return values == !!out->values && targets == !!out->targets
               ? LS_OK
               : ls_fail(err, LS_ENOMEM, "%.64s: out of memory for %zu rows", s->name, rows);
}

static void free_room(room *r, const ls_host *host)
{
    ls_free(host, r->values);
    ls_free(host, r->targets);
}

/* Returns rows that are read to `own`, and what has no room there to `values` and `targets`. */
static raw_rows rows_in(const room *own, const ls_data_source *s, void *values, void *targets,
                        size_t rows)
{
    return (raw_rows){s, own->values ? own->values : values, own->targets ? own->targets : targets,
                      rows};
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Returns the name of a split for messages. */
static const char *rows_of(int test)
{
    return test ? "test" : "training";
}

static int check_labels(const ls_data_source *source, int test, const uint32_t *rows,
                        uint32_t count, const int32_t *labels, ls_error *err)
{
    for (uint32_t i = 0; i < count; i++)
        if (labels[i] < 0 || labels[i] >= source->classes)
            return ls_fail(err, LS_EDATA,
                           "%.64s: row %u of the %s rows has label %d; the labels of %d classes "
                           "are 0 … %d",
                           source->name, (unsigned)rows[i], rows_of(test), labels[i],
                           source->classes, source->classes - 1);
    return LS_OK;
}

static int check_numbers(const ls_data_source *source, int test, const uint32_t *rows,
                         uint32_t count, const void *numbers, bool wide, size_t each,
                         const char *what, ls_error *err)
{
    for (size_t i = 0; i < count * each; i++)
        if (!isfinite((float)number_at(numbers, wide, i)))
            return ls_fail(err, LS_EDATA,
                           "%.64s: row %u of the %s rows: %s %zu is %g; expected finite numbers%s",
                           source->name, (unsigned)rows[i / each], rows_of(test), what, i % each,
                           number_at(numbers, wide, i),
                           isfinite(number_at(numbers, wide, i)) ? " that a float holds" : "");
    return LS_OK;
}

static int check_weights(const ls_data_source *source, int test, size_t rows, ls_error *err)
{
    const float *weights = weights_of(source, test);
    for (size_t i = 0; weights && i < rows; i++)
        if (!ls_is_row_weight((double)weights[i]))
            return ls_fail(
                err, LS_EDATA,
                "%.64s: row %zu of the %s rows has the weight %g; expected " LS_ROW_WEIGHT,
                source->name, i, rows_of(test), (double)weights[i]);
    return LS_OK;
}

/* Calls the source's callback to read rows, and checks the rows. */
static int ask(const ls_data_source *source, int test, const uint32_t *rows, uint32_t count,
               void *images, void *targets, ls_error *err)
{
    ls_error why = {0};
    int status = source->read(source->user, test, rows, count, images, targets, &why);
    status = ls_callback_result(&why, status, &why, "its callback `read`");
    if (status)
        return ls_fail(err, status, "%.64s: reading rows %u … failed: %.380s", source->name,
                       (unsigned)rows[0], why.text);
    if (source->row_type != LS_ROW_U8)
        status = check_numbers(source, test, rows, count, images, has_wide_values(source),
                               values_of(source), "value", err);
    if (status)
        return status;
    return source->target_count
               ? check_numbers(source, test, rows, count, targets, has_wide_targets(source),
                               (size_t)source->target_count, "target", err)
               : check_labels(source, test, rows, count, targets, err);
}

/* Reads the first rows of a split. */
static int ask_first(raw_rows *out, int test, ls_error *err)
{
    const ls_data_source *s = out->source;
    uint32_t rows[CHUNK];
    int status = LS_OK;
    for (size_t done = 0; status == LS_OK && done < out->rows;) {
        const size_t left = out->rows - done;
        const uint32_t count = left < CHUNK ? (uint32_t)left : CHUNK;
        for (uint32_t i = 0; i < count; i++)
            rows[i] = (uint32_t)done + i;
        status = ask(s, test, rows, count, (char *)out->values + done * row_bytes(s),
                     (char *)out->targets + done * target_bytes(s), err);
        done += count;
    }
    return status;
}

/* ---- scaling --------------------------------------------------------------------------------- */

static int fail_large(const ls_data_source *s, size_t row, const char *what, size_t i, double v,
                      ls_error *err)
{
    return ls_fail(err, LS_EDATA,
                   "%.64s: row %zu: %s %zu is %g; expected a number that a float holds once it is "
                   "scaled",
                   s->name, row, what, i, v);
}

/* Converts the values of rows to the floats or bytes that the network reads. `out` may be
 * rows->values, unless these are doubles. The same holds for the targets. */
static int scale_values(const raw_rows *rows, const ls_prep *prep, void *out, ls_error *err)
{
    const ls_data_source *s = rows->source;
    const size_t each = values_of(s), all = rows->rows * each;
    float *ready = out;
    if (s->row_type == LS_ROW_U8 || (s->row_type == LS_ROW_F32 && !(prep && prep->scales))) {
        memmove(out, rows->values, rows->rows * row_bytes(s));
        return LS_OK;
    }
    for (size_t i = 0; i < all; i++) {
        const double v = value_at(rows, i);
        if (!ls_prep_value(prep, v, i % each, each, &ready[i]))
            return fail_large(s, i / each, "value", i % each, v, err);
    }
    return LS_OK;
}

/* Converts the targets of rows in the same way. */
static int scale_targets(const raw_rows *rows, const ls_prep *prep, void *out, ls_error *err)
{
    const ls_data_source *s = rows->source;
    const size_t each = (size_t)s->target_count, all = rows->rows * each;
    float *ready = out;
    if (each == 0) {
        memmove(out, rows->targets, rows->rows * target_bytes(s));
        return LS_OK;
    }
    for (size_t i = 0; i < all; i++) {
        const double v = target_at(rows, i);
        ready[i] = ls_prep_target(prep, i, v);
        if (!isfinite(ready[i]))
            return fail_large(s, i / each, "target", i % each, v, err);
    }
    return LS_OK;
}

static int scale_rows(const raw_rows *rows, const ls_prep *prep, void *out, void *out_targets,
                      ls_error *err)
{
    int status = scale_values(rows, prep, out, err);
    return status ? status : scale_targets(rows, prep, out_targets, err);
}

/* Creates the preparation of the rows. *out stays NULL if the config asks for no scale. */
static int create_prep(ls_prep **out, const ls_dataset_info *info, const ls_opening *o)
{
    const ls_data_keys *k = &o->spec->keys;
    int status = ls_scale_check(info, o);
    *out = NULL;
    if (status || !(ls_scales_values(k) || (info->targets > 0 && ls_scales_targets(k))))
        return status;
    status = ls_prep_create(out, LS_PREP_ARRAY, o->host, o->err);
    if (status == LS_OK)
        (*out)->divisor = info->row_type == LS_ROW_U8 ? 255 : 1;
    return status;
}

/* Sets the scales in `prep` by the config, or by `rows`. */
static int find_scales(ls_prep *prep, const raw_rows *rows, const ls_opening *o)
{
    const ls_data_source *s = rows->source;
    const ls_measured_numbers values = {value_at, rows, rows->rows, values_of(s), s->channels},
                              targets = {target_at, rows, rows->rows, (size_t)s->target_count,
                                         s->target_count};
    int status = ls_scale_values(prep, &values, o);
    return status == LS_OK && s->target_count ? ls_scale_targets(prep, &targets, o) : status;
}

/* ---- resident rows --------------------------------------------------------------------------- */

/* Creates a split and reads its rows: doubles, and all of them if `keeps` is set, to *own, and the
 * others to the split itself. The caller frees *own with free_room. */
static int open_split(ls_resident **out, const ls_dataset_info *info, raw_rows *raw, room *own,
                      bool keeps, int test, const ls_opening *o)
{
    const ls_data_source *s = o->kind->detail;
    int status = ls_resident_create(out, info, o);
    if (status == LS_OK && info->weighted)
        status = ls_resident_take_weights(*out, weights_of(s, test), o->err);
    if (status == LS_OK)
        status = take_room(own, s, info->rows, keeps, o->host, o->err);
    if (status)
        return status;
    *raw = rows_in(own, s, (*out)->images, (*out)->labels, info->rows);
    return ask_first(raw, test, o->err);
}

/* Opens resident training rows, and their scales. */
static int open_resident(ls_dataset **out, ls_prep **prep, const ls_dataset_info *info,
                         const ls_opening *o)
{
    ls_resident *r = NULL;
    raw_rows raw;
    room own = {0};
    int status = open_split(&r, info, &raw, &own, false, 0, o);
    if (r)
        *out = &r->base;
    if (status == LS_OK)
        status = create_prep(&r->prep, info, o);
    if (status == LS_OK && r->prep)
        status = find_scales(r->prep, &raw, o);
    if (status == LS_OK) {
        r->base.info.prep = *prep = r->prep;
        status = scale_rows(&raw, r->prep, r->images, r->labels, o->err);
    }
    free_room(&own, o->host);
    return status;
}

/* ---- streamed rows --------------------------------------------------------------------------- */

/* The training split of a streamed source. Its rows are read when they are needed. */
typedef struct streamed {
    ls_dataset base;
    const ls_data_source *source;
    const ls_host *host;
    ls_prep *prep;        /* base.info.prep; NULL: nothing is scaled */
    room room;            /* [CHUNK] values and targets that were read, if they are doubles */
    bool learns;          /* the scales are learnt */
    bool values, targets; /* which scales are learnt */
    long most;            /* number of rows from which the scales are learnt */
    double *before;       /* [2 · (scales + targets)] the scales before the last change */
    long rows_before;     /* prep->scale_rows before the last change */
    /* Test rows, which are scaled again when the scales have changed. */
    ls_resident *test; /* NULL: the scales do not change */
    room test_rows;
    bool test_is_old;
} streamed;

static int streamed_read(const ls_dataset *ds, const uint32_t *rows, uint32_t count, void *images,
                         void *targets, ls_error *err)
{
    const streamed *s = (const streamed *)ds;
    const size_t each = ls_dataset_image_bytes(ds), target = ls_dataset_target_bytes(ds);
    int status = LS_OK;
    for (uint32_t done = 0; status == LS_OK && done < count;) {
        const bool chunks = s->room.values || s->room.targets;
        const uint32_t n = !chunks || count - done < CHUNK ? count - done : CHUNK;
        char *out = (char *)images + done * each, *out_targets = (char *)targets + done * target;
        const raw_rows raw = rows_in(&s->room, s->source, out, out_targets, n);
        status = ask(s->source, 0, rows + done, n, raw.values, raw.targets, err);
        if (status == LS_OK)
            status = scale_rows(&raw, s->prep, out, out_targets, err);
        done += n;
    }
    return status;
}

static void streamed_close(ls_dataset *ds)
{
    streamed *s = (streamed *)ds;
    free_room(&s->room, s->host);
    free_room(&s->test_rows, s->host);
    ls_free(s->host, s->before);
    ls_prep_free(s->prep);
    ls_free(s->host, s);
}

static const ls_dataset_ops streamed_ops = {
    .size = sizeof(ls_dataset_ops), .read = streamed_read, .close = streamed_close};

/* Sets the scales: those of the config, those of the first rows, or, if the source has no rows,
 * none until the first step. */
static int find_streamed_scales(streamed *s, const ls_opening *o)
{
    const ls_data_keys *k = &o->spec->keys;
    room read = {0};
    s->values = k->standardize;
    s->targets =
        s->base.info.targets > 0 && k->standardize_target && !k->target_mean && !k->target_std;
    s->learns = s->values || s->targets;
    s->most = k->scale_rows;
    const size_t rows = s->base.info.rows < (size_t)s->most ? s->base.info.rows : (size_t)s->most;
    int status = LS_OK;
    if (s->learns && rows > 0)
        status = take_room(&read, s->source, rows, true, o->host, o->err);
    raw_rows first = rows_in(&read, s->source, NULL, NULL, s->learns ? rows : 0);
    if (status == LS_OK && first.rows > 0)
        status = ask_first(&first, 0, o->err);
    if (status == LS_OK)
        status = find_scales(s->prep, &first, o);
    s->prep->scale_rows = (long)first.rows;
    free_room(&read, o->host);
    if (status || first.rows > 0)
        return status;
    s->prep->wide = s->prep->scales && has_wide_values(s->source);
    s->prep->target_wide = s->prep->targets && has_wide_targets(s->source);
    return LS_OK;
}

static int open_streamed(ls_dataset **out, ls_prep **prep, const ls_dataset_info *info,
                         const ls_data_source *source, const ls_opening *o)
{
    streamed *s = ls_alloc(o->host, sizeof *s);
    if (!s)
        return ls_fail(o->err, LS_ENOMEM, "%.64s: out of memory", source->name);
    s->base = (ls_dataset){.ops = &streamed_ops, .info = *info};
    s->source = source;
    s->host = o->host;
    *out = &s->base;
    int status =
        source->train_rows > 0 ? take_room(&s->room, source, CHUNK, false, o->host, o->err) : LS_OK;
    if (status == LS_OK)
        status = create_prep(&s->prep, info, o);
    if (status || !s->prep)
        return status;
    s->base.info.prep = *prep = s->prep;
    status = find_streamed_scales(s, o);
    if (status == LS_OK) {
        const size_t numbers = 2 * (size_t)(s->prep->scales + s->prep->targets);
        s->before = ls_alloc_array(o->host, numbers, sizeof *s->before);
        status =
            s->before ? LS_OK : ls_fail(o->err, LS_ENOMEM, "%.64s: out of memory", source->name);
    }
    return status;
}

static streamed *streamed_of(const ls_dataset *ds)
{
    return ds->ops == &streamed_ops ? (streamed *)(uintptr_t)ds : NULL;
}

/* Returns whether the scales change while the program passes rows to ls_trainer_step. */
static bool observes(const streamed *s)
{
    return s && s->learns && s->base.info.rows == 0;
}

/* ---- test rows ------------------------------------------------------------------------------- */

/* Opens the test rows and scales them by the training rows' scales. Rows whose scales change are
 * kept as they were read. */
static int open_test(ls_dataset *split[2], const ls_dataset_info *info, const ls_prep *prep,
                     const ls_opening *o)
{
    ls_resident *r = NULL;
    raw_rows raw;
    room own = {0};
    streamed *s = streamed_of(split[0]);
    const bool keeps = observes(s) && info->rows > 0;
    int status = open_split(&r, info, &raw, &own, keeps, 1, o);
    if (r)
        split[1] = &r->base;
    if (status == LS_OK)
        status = scale_rows(&raw, prep, r->images, r->labels, o->err);
    if (status == LS_OK && keeps) {
        s->test = r;
        s->test_rows = own;
        return LS_OK;
    }
    free_room(&own, o->host);
    return status;
}

int ls_own_rows_scale_test(ls_dataset *train, bool *changed, ls_error *err)
{
    streamed *s = streamed_of(train);
    *changed = s && s->test && s->test_is_old;
    if (!*changed)
        return LS_OK;
    const raw_rows raw = rows_in(&s->test_rows, s->source, NULL, NULL, s->test->base.info.rows);
    int status = scale_rows(&raw, s->prep, s->test->images, s->test->labels, err);
    s->test_is_old = status != LS_OK;
    return status;
}

/* ---- the source ------------------------------------------------------------------------------ */

static int check(const ls_data_source *s, const ls_opening *o)
{
    ls_error *err = o->err;
    /* limit of channels, height and width, so that no product of them overflows */
    const int most = 1 << 14;
    if (s->channels < 1 || s->height < 1 || s->width < 1 || s->channels > most ||
        s->height > most || s->width > most)
        return ls_fail(err, LS_EINVAL, "%.64s: rows of %d×%d×%d; sides must be 1 … %d", s->name,
                       s->channels, s->height, s->width, most);
    if (s->target_count < 0 || s->target_count > most ||
        (s->target_count ? s->classes != 0 : s->classes < 2))
        return ls_fail(
            err, LS_EINVAL,
            "%.64s: %d classes and %d targets; expected 2 or more classes and no targets, "
            "or no class and 1 … %d targets",
            s->name, s->classes, s->target_count, most);
    if (!ls_row_type_name(s->row_type))
        return ls_fail(err, LS_EINVAL,
                       "%.64s: ls_data_source.row_type is %d%s; set it to LS_ROW_U8, LS_ROW_F32 or "
                       "LS_ROW_F64",
                       s->name, (int)s->row_type, s->row_type == 0 ? ", which is no type" : "");
    const bool known =
        !s->target_type || s->target_type == LS_ROW_F32 || s->target_type == LS_ROW_F64;
    if (!known || (s->target_type && s->target_count == 0))
        return ls_fail(err, LS_EINVAL, "%.64s: ls_data_source.target_type is %d; %s", s->name,
                       (int)s->target_type,
                       known ? "leave it 0: the targets are classes (int32_t)"
                             : "set it to LS_ROW_F32 or LS_ROW_F64");
    if (s->train_rows == 0 && !s->streamed)
        return ls_fail(err, LS_EINVAL,
                       "%.64s: train_rows is 0; set it, or `streamed` to train by "
                       "ls_trainer_step alone",
                       s->name);
    if (!s->read && (s->train_rows > 0 || s->test_rows > 0))
        return ls_fail(err, LS_EINVAL, "%.64s: it has rows, but no `read` callback", s->name);
    if (!s->weighted && (s->train_weights || s->test_weights))
        return ls_fail(err, LS_EINVAL, "%.64s: it has weights of rows; set `weighted` as well",
                       s->name);
    int status = check_weights(s, 0, s->train_rows, err);
    if (status == LS_OK)
        status = check_weights(s, 1, s->test_rows, err);
    return status ? status : ls_dataset_check_limit(o, s->train_rows, s->name);
}

int ls_own_rows_open(ls_dataset *split[2], const ls_opening *o)
{
    const ls_data_source *source = o->kind->detail;
    ls_prep *prep = NULL;
    ls_dataset_info info = {
        .name = source->name,
        .split = "train",
        .source = "the caller's callback",
        .channels = source->channels,
        .height = source->height,
        .width = source->width,
        .classes = source->classes,
        .targets = source->target_count,
        .row_type = source->row_type == LS_ROW_U8 ? LS_ROW_U8 : LS_ROW_F32,
        .weighted = source->weighted,
        .rows = o->spec->limit > 0 ? o->spec->limit : source->train_rows,
    };
    int status = check(source, o);
    if (status == LS_OK)
        status = source->streamed ? open_streamed(&split[0], &prep, &info, source, o)
                                  : open_resident(&split[0], &prep, &info, o);
    info.split = "test";
    info.rows = source->test_rows;
    return status ? status : open_test(split, &info, prep, o);
}

/* ---- rows of ls_trainer_step ----------------------------------------------------------------- */

int ls_own_rows_take(const ls_dataset *train, const void *rows, const void *targets, uint32_t n,
                     void *out, void *out_targets, ls_error *err)
{
    const streamed *s = streamed_of(train);
    const raw_rows raw = {s->source, (void *)(uintptr_t)rows, (void *)(uintptr_t)targets, n};
    return scale_rows(&raw, s->prep, out, out_targets, err);
}

bool ls_own_rows_learn(const ls_dataset *train)
{
    const streamed *s = streamed_of(train);
    return s && s->learns;
}

const float *ls_own_rows_weights(const ls_dataset *train)
{
    const streamed *s = streamed_of(train);
    return s ? s->source->train_weights : NULL;
}

ls_row_type ls_own_rows_type(const ls_dataset *train)
{
    return streamed_of(train)->source->row_type;
}

ls_row_type ls_own_rows_target_type(const ls_dataset *train)
{
    return target_type(streamed_of(train)->source);
}

/* Copies the scales to s->before, or back. */
static void copy_scales(streamed *s, bool back)
{
    ls_prep *p = s->prep;
    double *const part[] = {p->mean, p->deviation, p->target_mean, p->target_deviation};
    const int count[] = {p->scales, p->scales, p->targets, p->targets};
    double *at = s->before;
    for (int i = 0; i < 4; i++) {
        const size_t bytes = (size_t)count[i] * sizeof *at;
        if (bytes)
            memcpy(back ? part[i] : at, back ? at : part[i], bytes);
        at += count[i];
    }
    if (back)
        p->scale_rows = s->rows_before;
    s->rows_before = p->scale_rows;
}

/* Adds numbers to means and deviations that were computed from `rows` rows. A deviation of 0 is
 * that of equal numbers. */
static void add_numbers(double *mean, double *deviation, const ls_measured_numbers *n, double rows)
{
    const size_t width = n->each / (size_t)n->scales;
    const double old = rows * (double)width, more = (double)(n->rows * width), all = old + more;
    for (int g = 0; g < n->scales; g++) {
        double middle, spread;
        ls_scale_measure_one(n, g, &middle, &spread);
        const double moved = middle - (rows > 0 ? mean[g] : middle);
        double squares = spread * spread * more + moved * moved * (old * more / all);
        if (rows > 0)
            squares += deviation[g] * deviation[g] * old;
        mean[g] = rows > 0 ? mean[g] + moved * (more / all) : middle;
        deviation[g] = sqrt(squares / all);
    }
}

bool ls_own_rows_observe(ls_dataset *train, const void *rows, const void *targets, uint32_t n)
{
    streamed *s = streamed_of(train);
    if (!observes(s) || s->prep->scale_rows >= s->most)
        return false;
    copy_scales(s, false);
    ls_prep *p = s->prep;
    const long left = s->most - p->scale_rows;
    const raw_rows raw = {s->source, (void *)(uintptr_t)rows, (void *)(uintptr_t)targets,
                          (long)n < left ? n : (size_t)left};
    const ls_measured_numbers values = {value_at, &raw, raw.rows, values_of(s->source),
                                        s->source->channels},
                              wanted = {target_at, &raw, raw.rows, (size_t)s->source->target_count,
                                        s->source->target_count};
    if (s->values)
        add_numbers(p->mean, p->deviation, &values, (double)p->scale_rows);
    if (s->targets)
        add_numbers(p->target_mean, p->target_deviation, &wanted, (double)p->scale_rows);
    p->scale_rows += (long)raw.rows;
    s->test_is_old = true;
    return true;
}

void ls_own_rows_undo(ls_dataset *train)
{
    streamed *s = streamed_of(train);
    copy_scales(s, true);
    s->test_is_old = true;
}

bool ls_own_rows_know(const ls_dataset *train)
{
    return !observes(streamed_of(train)) || train->info.prep->scale_rows > 0;
}

/* Returns whether `prep` has other scales, of those that `s` learns, than before the first step. */
static bool has_scales(const ls_prep *prep, const streamed *s)
{
    bool has = false;
    for (int i = 0; s->values && i < prep->scales; i++)
        has |= !isinf(prep->deviation[i]);
    for (int i = 0; s->targets && i < prep->targets; i++)
        has |= prep->target_mean[i] != 0 || prep->target_deviation[i] != 1;
    return has;
}

int ls_own_rows_adopt(ls_dataset *train, const ls_prep *prep, const char *path, ls_error *err)
{
    streamed *s = streamed_of(train);
    ls_prep *p = s && s->learns ? s->prep : NULL;
    if (!p)
        return LS_OK;
    if (!prep || prep->scales != p->scales || prep->targets != p->targets)
        return ls_fail(
            err, LS_EDATA,
            "%.300s: its rows were scaled in another way: expected scales of %d channels and %d "
            "targets, found %d and %d; set data.standardize, data.standardize_target as in its run",
            path, p->scales, p->targets, prep ? prep->scales : 0, prep ? prep->targets : 0);
    copy_scales(s, false);
    if (s->values) {
        memcpy(p->mean, prep->mean, (size_t)p->scales * sizeof *p->mean);
        memcpy(p->deviation, prep->deviation, (size_t)p->scales * sizeof *p->mean);
        p->wide = prep->wide;
    }
    if (s->targets) {
        memcpy(p->target_mean, prep->target_mean, (size_t)p->targets * sizeof *p->mean);
        memcpy(p->target_deviation, prep->target_deviation, (size_t)p->targets * sizeof *p->mean);
        p->target_wide = prep->target_wide;
    }
    const bool final = observes(s) && prep->scale_rows == 0 && has_scales(prep, s);
    p->scale_rows = final ? s->most : prep->scale_rows;
    s->test_is_old = true;
    return LS_OK;
}
