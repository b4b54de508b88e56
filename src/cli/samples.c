/* SPDX-License-Identifier: MIT */
/* Predicts some rows of the test set, and writes them as a JSON line for the page of a run
 * (samples.h). */
#include "cli/samples.h"

#include "base/error.h"
#include "base/host.h"
#include "cli/cli.h"
#include "cli/verbs.h"
#include "model/predictions.h"
#include "json/writer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* CANDIDATES: number of rows that are predicted; fewer if they take more than CANDIDATE_BYTES,
 * because large rows take long. SIDE: largest side of a picture on the page; of larger ones, only
 * every n-th pixel is shown. VALUES: largest number of outputs that are shown for a model that
 * predicts values. */
enum { CANDIDATES = 512, CANDIDATE_BYTES = 4 << 20, SIDE = 64, VALUES = 4 };

/* The candidates: rows of the data, with their predictions. */
typedef struct samples {
    const ls_trained *t;
    const ls_dataset_info *data;
    ls_trained_rows rows;
    ls_predictions predicted;
} samples;

/* ---- which rows ------------------------------------------------------------------------------ */

static bool is_of_classes(const samples *s)
{
    return !s->predicted.values;
}

static bool is_right(samples *s, uint32_t i)
{
    const ls_predicted r = ls_predictions_at(&s->predicted, i);
    return is_of_classes(s) && r.best == r.label;
}

/* Returns the size of a row in bytes. */
static size_t row_bytes(const ls_dataset_info *d)
{
    return (size_t)d->channels * (size_t)d->height * (size_t)d->width *
           (d->row_type == LS_ROW_F32 ? sizeof(float) : 1);
}

/* Returns the number of candidates, the rows that are predicted and from which `count` are
 * chosen. */
static uint32_t candidates(const ls_dataset_info *d, int count)
{
    size_t rows = CANDIDATE_BYTES / row_bytes(d);
    rows = rows < (size_t)count * 2 ? (size_t)count * 2 : rows;
    rows = rows < CANDIDATES ? rows : CANDIDATES;
    return rows < d->rows ? (uint32_t)rows : d->rows;
}

static int predict(samples *s, int count, const ls_registry *registry, ls_error *err)
{
    const uint32_t all = s->data->rows;
    if (all == 0)
        return ls_fail(err, LS_EDATA, "the run's data has no test rows");
    int status = ls_trained_rows_of_data(&s->rows, false, 0, all, candidates(s->data, count), err);
    return status ? status : ls_predictions_make(&s->predicted, &s->rows, registry, NULL, err);
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* How a row becomes a picture. */
typedef struct frame {
    int channels, height, width; /* shape of the picture */
    /* the picture has every step-th pixel of the row, in both directions */
    int step;
} frame;

/* Returns how the data's rows become pictures. A height of 0 means that the rows are not
 * pictures. */
static frame frame_of(const ls_dataset_info *info)
{
    const int larger = info->height > info->width ? info->height : info->width;
    const int step = (larger + SIDE - 1) / SIDE;
    if (info->height < 2 || info->width < 2)
        return (frame){0};
    return (frame){info->channels == 3 ? 3 : 1, (info->height + step - 1) / step,
                   (info->width + step - 1) / step, step};
}

/* Returns value number `at` of row `i`. */
static float value_at(const samples *s, uint32_t i, size_t at)
{
    const uint8_t *row = s->rows.images + (size_t)i * row_bytes(s->data);
    float value = row[at];
    if (s->data->row_type == LS_ROW_F32)
        memcpy(&value, row + at * sizeof value, sizeof value);
    return value;
}

/* Writes the pixels of row `i` as bytes. Floats are scaled so that the row's smallest value becomes
 * 0 and its largest 255. */
static void fill_picture(uint8_t *out, const samples *s, uint32_t i, const frame *f)
{
    const ls_dataset_info *info = s->data;
    const bool floats = info->row_type == LS_ROW_F32;
    const size_t plane = (size_t)info->height * (size_t)info->width;
    float lo = 0, hi = 255;
    for (size_t at = 0; floats && at < plane * (size_t)f->channels; at++) {
        const float v = value_at(s, i, at);
        lo = at == 0 || v < lo ? v : lo;
        hi = at == 0 || v > hi ? v : hi;
    }
    for (int c = 0; c < f->channels; c++)
        for (int y = 0; y < f->height; y++)
            for (int x = 0; x < f->width; x++) {
                const size_t at =
                    (size_t)c * plane + (size_t)(y * f->step * info->width) + (size_t)(x * f->step);
                const float v = value_at(s, i, at);
                *out++ = hi > lo ? (uint8_t)((v - lo) / (hi - lo) * 255 + 0.5f) : 0;
            }
}

static void put_base64(ls_json_writer *w, const char *key, const uint8_t *bytes, size_t count)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    ls_buffer text;
    ls_buffer_init(&text, NULL);
    for (size_t i = 0; i < count; i += 3) {
        const unsigned b = i + 1 < count ? bytes[i + 1] : 0, c = i + 2 < count ? bytes[i + 2] : 0;
        const unsigned n = (unsigned)bytes[i] << 16 | b << 8 | c;
        const char four[4] = {digit[n >> 18], digit[n >> 12 & 63],
                              i + 1 < count ? digit[n >> 6 & 63] : '=',
                              i + 2 < count ? digit[n & 63] : '='};
        ls_buffer_add(&text, four, sizeof four);
    }
    ls_json_put_string(w, key, text.text);
    ls_buffer_fini(&text);
}

/* ---- the line -------------------------------------------------------------------------------- */

static void put_values(ls_json_writer *w, const char *key, const double *value, int count)
{
    char text[160] = "";
    for (int k = 0; k < count && k < VALUES; k++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%.*g", k ? ", " : "", cli_digits(value[k], 4),
                 value[k]);
    }
    if (count > VALUES)
        strncat(text, ", …", sizeof text - strlen(text) - 1);
    ls_json_put_string(w, key, text);
}

static void put_sample(ls_json_writer *w, samples *s, uint32_t i, const frame *f, uint8_t *picture)
{
    const ls_predictions *p = &s->predicted;
    const ls_predicted r = ls_predictions_at(&s->predicted, i);
    ls_json_open_object(w, NULL);
    ls_json_put_uint(w, "row", r.number);
    if (r.file)
        ls_json_put_string(w, "file", r.file);
    if (r.line)
        ls_json_put_uint(w, "line", r.line);
    if (is_of_classes(s)) {
        ls_json_put_string(w, "true", p->name[r.label]);
        ls_json_put_string(w, "predicted", p->name[r.best]);
        ls_json_put_bool(w, "right", r.best == r.label);
        ls_json_put_double(w, "probability", r.probability);
    } else {
        put_values(w, "true", r.target, p->targets);
        put_values(w, "predicted", r.output, p->outputs);
    }
    if (f->height) {
        fill_picture(picture, s, i, f);
        put_base64(w, "pixels", picture, (size_t)(f->channels * f->height * f->width));
    }
    ls_json_close(w);
}

/* Writes a text about the chosen rows: "8 right and 8 wrong ones of 512 test rows, of which 430 are
 * right". */
static void put_text(ls_json_writer *w, const samples *s, uint32_t right, uint32_t wrong,
                     uint32_t all_right)
{
    char text[160];
    const char *split = s->data->split;
    if (is_of_classes(s))
        snprintf(text, sizeof text,
                 "%u right and %u wrong ones of %u %s rows, of which %u are right", (unsigned)right,
                 (unsigned)wrong, (unsigned)s->rows.rows, split, (unsigned)all_right);
    else
        snprintf(text, sizeof text, "%u of %u %s rows", (unsigned)(right + wrong),
                 (unsigned)s->rows.rows, split);
    ls_json_put_string(w, "text", text);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void put_samples(ls_json_writer *w, samples *s, uint32_t count, uint8_t *picture,
                        const frame *f)
{
    uint32_t all_right = 0;
    for (uint32_t i = 0; i < s->rows.rows; i++)
        all_right += is_right(s, i);
    const uint32_t all_wrong = s->rows.rows - all_right;
    uint32_t wrong = least(all_wrong, is_of_classes(s) ? count / 2 : count);
    uint32_t right = least(all_right, count - wrong);
    wrong = least(all_wrong, count - right);
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "type", "samples");
    put_text(w, s, right, wrong, all_right);
    ls_json_put_int(w, "channels", f->channels);
    ls_json_put_int(w, "height", f->height);
    ls_json_put_int(w, "width", f->width);
    ls_json_open_array(w, "rows");
    /* the first pass writes the rows that are predicted right */
    for (int pass = 0; pass < 2; pass++) {
        uint32_t left = pass == 0 ? right : wrong;
        for (uint32_t i = 0; i < s->rows.rows && left > 0; i++)
            if (is_right(s, i) == (pass == 0)) {
                put_sample(w, s, i, f, picture);
                left--;
            }
    }
    ls_json_close(w);
    ls_json_close(w);
}

static int write_line(ls_buffer *out, samples *s, int count, ls_error *err)
{
    size_t length;
    ls_json_writer w;
    const frame f = frame_of(s->data);
    uint8_t *picture = ls_alloc(s->t->host, (size_t)(3 * SIDE * SIDE));
    if (!picture)
        return ls_fail(err, LS_ENOMEM, "out of memory for pictures");
    ls_json_writer_init(&w, 0, s->t->host);
    put_samples(&w, s, (uint32_t)count, picture, &f);
    const char *text = ls_json_writer_text(&w, &length, err);
    if (text) {
        ls_buffer_add(out, text, length);
        ls_buffer_put(out, "\n");
    }
    ls_json_writer_fini(&w);
    ls_free(s->t->host, picture);
    return text ? ls_buffer_status(out, err) : LS_ENOMEM;
}

int cli_samples_write(ls_buffer *out, const char *run_dir, int count, const cli_list *set,
                      const ls_registry *registry, ls_error *err)
{
    ls_trained t;
    cli_directories places;
    const ls_host host = {.size = sizeof host};
    const ls_trained_options o = {.path = run_dir,
                                  .needs_data = true,
                                  .trainer = cli_options(&places, NULL, set, NULL, true, &host)};
    int status = ls_trained_open(&t, &o, err);
    if (status)
        return status;
    samples s = {.t = &t, .data = ls_trained_data(&t, false), .rows.t = &t};
    s.predicted.rows = &s.rows;
    status = predict(&s, count, registry, err);
    if (status == LS_OK)
        status = write_line(out, &s, count, err);
    ls_predictions_free(&s.predicted);
    ls_trained_rows_close(&s.rows);
    ls_trained_close(&t);
    return status;
}
