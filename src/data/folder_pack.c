/* SPDX-License-Identifier: MIT */
/* Packs a folder of images: writes the decoded and scaled images to a safetensors file, the *packed
 * file*, which training uses instead of the images (folder.h). Also decodes a folder into
 * memory. */
#include "data/folder.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"
#include "data/kinds.h"
#include "data/pictures.h"
#include "formats/safetensors.h"
#include "store/durable.h"
#include "json/json.h"
#include "json/writer.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the packed file ------------------------------------------------------------------------- */

/* A packed file that is being written. Its header is written last, because it contains the hash;
 * `header` bytes at the start of the file are left for it. */
typedef struct output {
    ls_folder *k;
    ls_file_writer file;
    ls_sha256 hash;
    size_t header;    /* size of the header in bytes */
    int test;         /* split that is being written: 0 or 1 */
    uint32_t rows[2]; /* number of images written */
    int32_t *label[2];
    ls_buffer name[2]; /* paths of the images written, each followed by a zero byte */
    /* sums of the samples, and of their squares, over the training images */
    uint64_t sum[3], squares[3];
    uint8_t *first; /* owned, [k->row]: the first training image; NULL: there is none yet */
    bool differ;    /* a training image differs from the first one */
} output;

static void write_entry(ls_json_writer *w, const char *name, const ls_folder *k, uint32_t rows,
                        bool labels, uint64_t *at)
{
    const int64_t dim[] = {rows, k->form.channels, k->form.height, k->form.width};
    const uint64_t bytes = labels ? sizeof(int32_t) : (uint64_t)k->row;
    ls_safetensors_put_entry(w, name, labels ? "I32" : "U8", dim, labels ? 1 : 4, rows * bytes, at);
}

/* Ends the JSON array or object in `list`, and writes it to `w` as a text, because metadata of
 * safetensors files must be texts. */
static void put_note(ls_json_writer *w, const char *key, ls_json_writer *list)
{
    ls_json_close(list);
    const char *text = ls_json_writer_text(list, NULL, NULL);
    ls_json_put_string(w, key, text);
    w->out.failed |= !text;
    ls_json_writer_reset(list);
}

static void put_moments(ls_json_writer *w, ls_json_writer *list, const output *o)
{
    const ls_picture_form *form = &o->k->form;
    const double n = (double)o->rows[0] * form->height * form->width;
    for (int which = 0; which < 2; which++) {
        ls_json_open_array(list, NULL);
        for (int c = 0; c < form->channels; c++) {
            const double mean = n > 0 ? (double)o->sum[c] / n : 0;
            const double spread =
                n > 0 ? sqrt(fmax((double)o->squares[c] / n - mean * mean, 0)) : 0;
            ls_json_put_float(list, NULL, (float)((which ? spread : mean) / 255));
        }
        put_note(w, which ? "std" : "mean", list);
    }
}

static void put_classes(ls_json_writer *w, ls_json_writer *list, const ls_folder_names *classes)
{
    ls_json_open_array(list, NULL);
    for (size_t i = 0; i < classes->count; i++)
        ls_json_put_string(list, NULL, classes->name[i]);
    put_note(w, "class_names", list);
}

/* Writes the remarks to the metadata. They are logged whenever training opens the file. */
static void put_remarks(ls_json_writer *w, ls_json_writer *list, const ls_folder_remarks *r)
{
    if (r->count == 0)
        return;
    ls_json_open_array(list, NULL);
    for (int i = 0; i < r->count; i++)
        ls_json_put_string(list, NULL, r->text[i]);
    put_note(w, "remarks", list);
}

static void put_resize(ls_json_writer *w, ls_json_writer *list, const ls_prep_resize *resize)
{
    if (!resize->height)
        return;
    ls_json_open_object(list, NULL);
    ls_prep_write_resize(list, resize);
    put_note(w, LS_PACKED_RESIZE, list);
}

static void put_white(ls_json_writer *w, int white)
{
    char text[12];
    snprintf(text, sizeof text, "%d", white);
    if (white)
        ls_json_put_string(w, LS_PACKED_WHITE, text);
}

static void write_header(ls_json_writer *w, const ls_folder *k, const output *o, const char *hash)
{
    static const char *const tensor[2][2] = {{"x", "y"}, {"test_x", "test_y"}};
    ls_json_writer list;
    uint64_t at = 0;
    ls_json_writer_init(&list, 0, k->host);
    ls_json_open_object(w, NULL);
    ls_json_open_object(w, "__metadata__");
    ls_json_put_string(w, "sha256", hash);
    put_classes(w, &list, &k->classes);
    put_moments(w, &list, o);
    put_resize(w, &list, &k->form.resize);
    put_white(w, k->form.white);
    put_remarks(w, &list, &k->remarks);
    ls_json_writer_fini(&list);
    ls_json_close(w);
    for (int s = 0; s < 2; s++)
        if (k->split[s].count) {
            write_entry(w, tensor[s][0], k, o->rows[s], false, &at);
            write_entry(w, tensor[s][1], k, o->rows[s], true, &at);
        }
    for (int s = 0; s < 2; s++)
        if (k->split[s].count)
            ls_safetensors_put_entry(w, s ? LS_PACKED_TEST_FILES : LS_PACKED_FILES, "U8",
                                     (const int64_t[]){(int64_t)o->name[s].length}, 1,
                                     o->name[s].length, &at);
    ls_json_close(w);
}

static int put(output *o, const void *bytes, size_t count, ls_error *err)
{
    ls_sha256_update(&o->hash, bytes, count);
    return ls_file_writer_write(&o->file, bytes, count, err);
}

static void report_progress(const ls_folder *k, bool last, bool failed)
{
    const ls_folder_watch *watch = k->p->watch;
    if (watch && watch->progress)
        watch->progress(watch->user, k->done, k->split[0].count + k->split[1].count,
                        (double)(ls_now_ns() - k->start) * 1e-9, last, failed);
}

static void report_image(const ls_folder *k, const char *why)
{
    const ls_folder_watch *watch = k->p->watch;
    if (watch && watch->broken)
        watch->broken(watch->user, why);
    else
        ls_log(k->host, LS_LOG_WARNING, "broken: %s", why);
}

/* Reports the images in a chunk that cannot be read. Unless skip_broken is set, fails at the end of
 * a block of chunks if the block had such an image. */
static int report_broken(ls_folder *k, const ls_folder_chunk *c)
{
    for (size_t i = 0; i < c->broken && i < LS_FOLDER_NAMED && k->broken + i < LS_FOLDER_NAMED; i++)
        report_image(k, c->why[i].text);
    k->broken += c->broken;
    if (k->broken == 0 || k->p->skip_broken || !c->ends_block)
        return LS_OK;
    return ls_fail(k->err, LS_EDATA,
                   "%.300s: %zu %s; mend or remove them, or leave them out: data.skip_broken, of "
                   "`%.200s pack` --skip-broken",
                   k->p->folder, k->broken,
                   ls_plural(k->broken, "image so far is broken", "images so far are broken"),
                   k->p->program ? k->p->program : "lockstep");
}

/* Compares the training images of a chunk with the first one. */
static int compare(output *o, const ls_folder_chunk *c)
{
    const size_t row = o->k->row;
    for (size_t i = 0; !o->test && !o->differ && i < c->count; i++) {
        const uint8_t *image = c->pixels + i * row;
        if (c->failed[i])
            continue;
        if (o->first)
            o->differ = memcmp(o->first, image, row) != 0;
        else if ((o->first = ls_alloc(o->k->host, row)) == NULL)
            return ls_folder_no_memory(o->k);
        else
            memcpy(o->first, image, row);
    }
    return LS_OK;
}

static int write_chunk(void *user, const ls_folder_chunk *c)
{
    output *o = user;
    ls_folder *k = o->k;
    int status = report_broken(k, c);
    if (status == LS_OK)
        status = compare(o, c);
    for (size_t i = 0, end; status == LS_OK && i < c->count; i = end) {
        for (end = i; end < c->count && !c->failed[end]; end++) {
            const char *path = c->entry[end].path;
            o->label[o->test][o->rows[o->test]++] = c->entry[end].label;
            ls_buffer_add(&o->name[o->test], path, strlen(path) + 1);
        }
        status = put(o, c->pixels + i * k->row, (end - i) * k->row, k->err);
        if (end < c->count)
            end++; /* leave out the image that cannot be read */
    }
    k->done += c->count;
    k->turned += c->turned;
    k->laid += c->laid;
    for (int ch = 0; !o->test && ch < 3; ch++) {
        o->sum[ch] += c->sum[ch];
        o->squares[ch] += c->squares[ch];
    }
    report_progress(k, false, false);
    return status;
}

static int fail_equal(const ls_folder *k, uint32_t rows)
{
    return ls_fail(
        k->err, LS_EDATA,
        "%.300s: expected images that differ, but all %u training images are equal at %d×%d "
        "pixels%s, so there is nothing to learn from them",
        k->p->folder, (unsigned)rows, k->form.width, k->form.height,
        k->laid ? " (transparent pixels were laid on white)" : "");
}

int ls_folder_check_differ(ls_folder *k)
{
    const ls_folder_listing *list = &k->split[0];
    const size_t row = (size_t)k->form.channels * (size_t)k->form.height * (size_t)k->form.width;
    const ls_pictures *pictures = NULL;
    ls_image_memory kept = {0};
    uint8_t *pixels = ls_alloc_array(k->host, 2 * row, 1);
    uint32_t rows = 0;
    bool differ = false;
    int status =
        pixels ? ls_pictures_find(&pictures, k->p->pictures, k->err) : ls_folder_no_memory(k);
    for (size_t i = 0; status == LS_OK && !differ && i < list->count; i++) {
        ls_error broken;
        if (pictures->fit(pixels + (rows ? row : 0), &k->form, AT_FDCWD, list->entry[i].path, &kept,
                          k->host, &broken) != LS_OK)
            continue; /* packing reports such images */
        /* what a sample of 16 bits becomes is not known before all images were looked at */
        differ = kept.largest > 0 || (rows && memcmp(pixels, pixels + row, row) != 0);
        k->laid += kept.laid;
        rows++;
    }
    if (status == LS_OK && rows > 1 && !differ)
        status = fail_equal(k, rows);
    if (pictures)
        pictures->memory_free(&kept, k->host);
    ls_free(k->host, pixels);
    return status;
}

/* Writes the images of a split. While one thread hashes and writes a chunk, the others decode. */
static int write_images(output *o, ls_folder_decoder *w)
{
    const ls_folder *k = o->k;
    int status = ls_folder_decoder_run(w, &k->split[o->test], write_chunk, o);
    if (status == LS_OK && o->rows[o->test] == 0)
        status = ls_fail(k->err, LS_EDATA, "%.300s: no image of it can be read", k->p->folder);
    if (status == LS_OK && !o->test && o->rows[0] > 1 && !o->differ)
        status = fail_equal(k, o->rows[0]);
    return status;
}

static int write_tensors(output *o)
{
    ls_folder *k = o->k;
    ls_folder_decoder *w;
    int status = ls_folder_decoder_create(&w, k);
    if (status == LS_OK)
        status = ls_folder_decoder_measure(w, &k->split[0], &k->form.white);
    for (int s = 0; status == LS_OK && s < 2 && k->split[s].count; s++) {
        o->test = s;
        o->label[s] = ls_alloc_array(k->host, k->split[s].count, sizeof **o->label);
        status = o->label[s] ? write_images(o, w) : ls_folder_no_memory(k);
        if (status == LS_OK)
            status = put(o, o->label[s], o->rows[s] * sizeof **o->label, k->err);
    }
    ls_folder_decoder_destroy(w);
    /* the hash tells the rows, whatever the files are called */
    for (int s = 0; status == LS_OK && s < 2 && k->split[s].count; s++) {
        status = ls_buffer_status(&o->name[s], k->err);
        if (status == LS_OK)
            status = ls_file_writer_write(&o->file, o->name[s].text, o->name[s].length, k->err);
    }
    return status;
}

/* Adds remarks about the images themselves. */
static void remark_images(ls_folder *k)
{
    if (k->broken)
        ls_folder_remark(
            k, "%zu %s left out", k->broken,
            ls_plural(k->broken, "image is broken and was", "images are broken and were"));
    if (k->turned)
        ls_folder_remark(
            k, "%zu %s EXIF orientation says", k->turned,
            ls_plural(k->turned, "image was turned as its", "images were turned as their"));
    if (k->laid)
        ls_folder_remark(k, "%zu %s on white", k->laid,
                         ls_plural(k->laid, "image has transparent pixels and was laid",
                                   "images have transparent pixels and were laid"));
}

/* Returns the header, padded with spaces to `padded` bytes. `padded` 0: returns a header of the
 * greatest length that it can have, so that the caller learns how many bytes to leave for it. */
static int make_header(char **out, size_t *length, const ls_folder *k, const output *o,
                       const char *hash, size_t padded)
{
    ls_json_writer w;
    size_t n;
    ls_json_writer_init(&w, 0, k->host);
    write_header(&w, k, o, hash);
    const char *text = ls_json_writer_text(&w, &n, k->err);
    *out = NULL;
    if (text) {
        *length = padded ? padded : 8 + (n + 1024 + 7) / 8 * 8;
        *out = ls_alloc(k->host, *length);
    }
    if (*out) {
        memset(*out, ' ', *length);
        for (int i = 0; i < 8; i++)
            (*out)[i] = (char)((*length - 8) >> (8 * i));
        memcpy(*out + 8, text, n);
    }
    ls_json_writer_fini(&w);
    return *out ? LS_OK : ls_folder_no_memory(k);
}

static int write_file(output *o, const char *to)
{
    ls_folder *k = o->k;
    char hash[LS_SHA256_HEX] = "", *header;
    memset(hash, '0', sizeof hash - 1);
    int status = make_header(&header, &o->header, k, o, hash, 0);
    ls_sha256_init(&o->hash);
    if (status == LS_OK)
        status = ls_replace_begin(&o->file, to, k->host, k->err);
    if (status == LS_OK)
        status = ls_file_writer_write(&o->file, header, o->header, k->err);
    ls_free(k->host, header);
    if (status == LS_OK)
        status = write_tensors(o);
    if (status == LS_OK && k->form.white)
        ls_folder_remark(k,
                         "the samples of 16-bit images were scaled: %d, the largest of the "
                         "training images, became white",
                         k->form.white);
    if (status == LS_OK)
        remark_images(k);
    ls_sha256_final_hex(&o->hash, hash);
    if (status == LS_OK)
        status = make_header(&header, &o->header, k, o, hash, o->header);
    if (status == LS_OK) {
        status = ls_file_writer_overwrite(&o->file, 0, header, o->header, k->err);
        ls_free(k->host, header);
    }
    if (status == LS_OK)
        status = ls_replace_commit(&o->file, k->err);
    ls_file_writer_abandon(&o->file);
    for (int s = 0; s < 2; s++) {
        ls_free(k->host, o->label[s]);
        ls_buffer_fini(&o->name[s]);
    }
    ls_free(k->host, o->first);
    return status;
}

static int pack_listed(ls_folder *k, const char *to)
{
    output o = {.k = k};
    ls_buffer_init(&o.name[0], k->host);
    ls_buffer_init(&o.name[1], k->host);
    k->start = ls_now_ns();
    const int status = write_file(&o, to);
    if (status == LS_OK || k->done)
        report_progress(k, status == LS_OK, status != LS_OK);
    return status;
}

ls_picture_form ls_form_of_keys(const ls_data_keys *k)
{
    ls_picture_form f = {k->channels, k->image_size, k->image_size, k->resize, 0};
    const int *side = k->crop[0] ? k->crop : &k->resize.height;
    if (k->resize.height) {
        f.height = side[0];
        f.width = side[1] ? side[1] : side[0];
    }
    return f;
}

ls_picture_form ls_form_of_input(const ls_input_format *f)
{
    return (ls_picture_form){f->channels, f->height, f->width, f->prep->resize, f->prep->white};
}

static ls_folder begin(const ls_folder_desc *p, const ls_host *host, ls_error *err)
{
    return (ls_folder){.p = p,
                       .host = host,
                       .err = err,
                       .form = p->form,
                       .row = (size_t)p->form.channels * (size_t)p->form.height *
                              (size_t)p->form.width};
}

int ls_folder_pack(const char *to, const ls_folder_desc *p, const ls_host *host, ls_error *err)
{
    ls_folder k = begin(p, host, err);
    char target[LS_PATH_BYTES];
    int status = ls_follow_links(target, to, err);
    if (status == LS_OK)
        status = ls_folder_list(&k);
    if (status == LS_OK)
        status = pack_listed(&k, target);
    for (int i = 0; status == LS_OK && i < k.remarks.count; i++)
        ls_log(host, LS_LOG_INFO, "%s", k.remarks.text[i]);
    ls_folder_fini(&k);
    return status;
}

/* ---- into the cache -------------------------------------------------------------------------- */

/* version of the conversion from images to rows, and of the packed file; change it when they change
 */
#define RULE "6"
/* the same, for images that are resized (ls_picture_resize_to) */
#define RESIZE_RULE "2"

static void name_cached(char out[96], ls_folder *k)
{
    char hex[LS_SHA256_HEX], what[128];
    const ls_picture_form *f = &k->form;
    int n =
        snprintf(what, sizeof what, "%d|%d|%d|" RULE, f->height, f->channels, k->p->skip_broken);
    if (f->resize.height || f->width != f->height)
        n += snprintf(what + n, sizeof what - (size_t)n, "|%d|%d|%d|%d|" RESIZE_RULE, f->width,
                      f->resize.height, f->resize.width, f->resize.interpolation);
    ls_sha256_update(&k->state, what, (size_t)n);
    ls_sha256_final_hex(&k->state, hex);
    snprintf(out, 96, "data-%.32s.safetensors", hex);
}

/* Restricts the classes to those of the model. */
static int fix_classes(ls_folder *k, const ls_input_format *format)
{
    const size_t n = (size_t)format->classes;
    k->classes.name = ls_alloc_array(k->host, n + 1, sizeof *k->classes.name);
    if (!k->classes.name)
        return ls_folder_no_memory(k);
    for (size_t i = 0; i < n; i++)
        k->classes.name[i] = format->class_name[i];
    k->classes.count = k->classes.capacity = n;
    k->fixed = true;
    return LS_OK;
}

int ls_folder_pack_cached(char path[LS_FOLDER_PATH], const char *cache, uint64_t most,
                          const ls_folder_desc *p, const ls_input_format *format,
                          const ls_host *host, ls_error *err)
{
    char name[96];
    int made;
    ls_folder k = begin(p, host, err);
    k.wants_state = true;
    int status = format && format->class_name ? fix_classes(&k, format) : LS_OK;
    if (status == LS_OK)
        status = ls_folder_list(&k);
    if (status == LS_OK) {
        name_cached(name, &k);
        snprintf(path, LS_FOLDER_PATH, "%s/%s", cache, name);
        if (access(path, R_OK) != 0)
            status = ls_make_directory(cache, &made, err);
        if (status == LS_OK && access(path, R_OK) != 0)
            status = pack_listed(&k, path);
    }
    if (status == LS_OK)
        ls_folder_cache_bound(cache, name, most, p->watch, host);
    ls_folder_fini(&k);
    return status;
}

/* ---- into memory ----------------------------------------------------------------------------- */

/* The rows and labels into which decoded images are stored, and the number of rows so far. */
typedef struct memory {
    ls_folder *k;
    uint8_t *values;
    int32_t *labels;
    size_t rows;
    ls_buffer name; /* paths of the images, each followed by a zero byte */
} memory;

static int keep_chunk(void *user, const ls_folder_chunk *c)
{
    memory *m = user;
    const size_t row = m->k->row;
    for (size_t i = 0; i < c->count; i++)
        if (!c->failed[i]) {
            m->labels[m->rows] = c->entry[i].label;
            ls_buffer_add(&m->name, c->entry[i].path, strlen(c->entry[i].path) + 1);
            memcpy(m->values + m->rows++ * row, c->pixels + i * row, row);
        }
    m->k->turned += c->turned;
    m->k->laid += c->laid;
    return report_broken(m->k, c);
}

static int decode_listed(ls_dataset **out, ls_folder *k, const ls_input_format *format, bool train)
{
    memory m = {.k = k};
    ls_buffer_init(&m.name, k->host);
    ls_folder_decoder *w = NULL;
    const ls_folder_listing *l = &k->split[k->split[1].count && !train ? 1 : 0];
    ls_input_format rows = *format;
    rows.split = train ? "train" : "test";
    if (l->count > UINT32_MAX - 1)
        return ls_folder_no_memory(k);
    int status = ls_new_rows_reserve(out, &rows, k->p->folder, (uint32_t)l->count, &m.values,
                                     &m.labels, k->err);
    if (status == LS_OK)
        status = ls_folder_decoder_create(&w, k);
    if (status == LS_OK)
        status = ls_folder_decoder_run(w, l, keep_chunk, &m);
    if (status == LS_OK && k->broken && !k->p->skip_broken)
        status = ls_fail(k->err, LS_EDATA,
                         "%.300s: %zu %s broken; mend or remove them, or leave them out: "
                         "data.skip_broken",
                         k->p->folder, k->broken, ls_plural(k->broken, "image is", "images are"));
    if (status == LS_OK && m.rows == 0)
        status = ls_fail(k->err, LS_EDATA, "%.300s: no image of it can be read", k->p->folder);
    if (status == LS_OK)
        (*out)->info.rows = (uint32_t)m.rows;
    if (status == LS_OK)
        status = ls_buffer_status(&m.name, k->err);
    if (status == LS_OK)
        status = ls_resident_name_files((ls_resident *)*out, m.name.text, m.name.length,
                                        k->p->folder, k->err);
    ls_buffer_fini(&m.name);
    remark_images(k);
    ls_folder_decoder_destroy(w);
    return status;
}

int ls_folder_read(ls_dataset **out, const ls_input_format *format, const ls_folder_desc *desc,
                   bool train, const ls_host *host, ls_error *err)
{
    const char *folder = desc->folder;
    ls_folder_desc p = *desc;
    p.form = ls_form_of_input(format);
    ls_folder k = begin(&p, host, err);
    *out = NULL;
    if (format->floats || (format->channels != 1 && format->channels != 3) || !format->class_name ||
        format->classes < 2)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "%.300s: a folder of images is for models of images whose classes have names", folder);
    int status = fix_classes(&k, format);
    if (status == LS_OK)
        status = ls_folder_list(&k);
    if (status == LS_OK)
        status = decode_listed(out, &k, format, train);
    for (int i = 0; status == LS_OK && i < k.remarks.count; i++)
        ls_log(host, LS_LOG_INFO, "%.300s: %s", folder, k.remarks.text[i]);
    ls_folder_fini(&k);
    if (status) {
        ls_dataset_close(*out);
        *out = NULL;
    }
    return status;
}
