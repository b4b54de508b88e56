/* Packs a folder of images: writes the decoded and scaled images to a safetensors file, the *packed
 * file*, which training uses instead of the images (pack.h). An *assignment* is a text KEY="VALUE"
 * that sets a key of the config. */
#include "cli/pack.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"
#include "checkpoint/run_dir.h"
#include "config/config.h"
#include "nn/safetensors.h"
#include "store/durable.h"
#include "json/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the packed file ------------------------------------------------------------------------- */

/* A packed file that is being written. Its header is written last, because it contains the hash;
 * `header` bytes at the start of the file are left for it. */
typedef struct output {
    cli_packing *k;
    ls_file_writer file;
    ls_sha256 hash;
    size_t header;    /* size of the header in bytes */
    int test;         /* split that is being written: 0 or 1 */
    uint32_t rows[2]; /* number of images written */
    int32_t *label[2];
    /* sums of the samples, and of their squares, over the training images */
    uint64_t sum[3], squares[3];
} output;

static void write_entry(ls_json_writer *w, const char *name, const cli_packing *k, uint32_t rows,
                        bool labels, uint64_t *at)
{
    const int64_t dim[] = {rows, k->p->channels, k->p->size, k->p->size};
    const uint64_t bytes = labels ? sizeof(int32_t) : (uint64_t)k->row;
    ls_safetensors_put_entry(w, name, labels ? "I32" : "U8", dim, labels ? 1 : 4, rows * bytes, at);
}

/* Ends the JSON array in `list`, and writes it to `w` as a text, because metadata of safetensors
 * files must be texts. */
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
    const cli_pack *p = o->k->p;
    const double n = (double)o->rows[0] * p->size * p->size;
    for (int which = 0; which < 2; which++) {
        ls_json_open_array(list, NULL);
        for (int c = 0; c < p->channels; c++) {
            const double mean = n > 0 ? (double)o->sum[c] / n : 0;
            const double spread =
                n > 0 ? sqrt(fmax((double)o->squares[c] / n - mean * mean, 0)) : 0;
            ls_json_put_float(list, NULL, (float)((which ? spread : mean) / 255));
        }
        put_note(w, which ? "std" : "mean", list);
    }
}

static void put_classes(ls_json_writer *w, ls_json_writer *list, const cli_names *classes)
{
    ls_json_open_array(list, NULL);
    for (size_t i = 0; i < classes->count; i++)
        ls_json_put_string(list, NULL, classes->name[i]);
    put_note(w, "class_names", list);
}

/* Writes the remarks to the metadata. They are logged whenever training opens the file. */
static void put_remarks(ls_json_writer *w, ls_json_writer *list, const cli_remarks *r)
{
    if (r->count == 0)
        return;
    ls_json_open_array(list, NULL);
    for (int i = 0; i < r->count; i++)
        ls_json_put_string(list, NULL, r->text[i]);
    put_note(w, "remarks", list);
}

static void write_header(ls_json_writer *w, const cli_packing *k, const output *o, const char *hash)
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
    put_remarks(w, &list, &k->remarks);
    ls_json_writer_fini(&list);
    ls_json_close(w);
    for (int s = 0; s < 2; s++)
        if (k->split[s].count) {
            write_entry(w, tensor[s][0], k, o->rows[s], false, &at);
            write_entry(w, tensor[s][1], k, o->rows[s], true, &at);
        }
    ls_json_close(w);
}

static int put(output *o, const void *bytes, size_t count, ls_error *err)
{
    ls_sha256_update(&o->hash, bytes, count);
    return ls_file_writer_write(&o->file, bytes, count, err);
}

static void show_progress(cli_packing *k, bool last)
{
    const uint64_t now = ls_now_ns();
    const size_t all = k->split[0].count + k->split[1].count;
    if (k->p->quiet || (!last && (!isatty(STDERR_FILENO) || now - k->shown < 200000000u)))
        return;
    k->shown = now;
    const double seconds = (double)(now - k->start) * 1e-9;
    fprintf(stderr, "%s  packing     %zu of %zu images, %.0f/s%s",
            isatty(STDERR_FILENO) ? "\r" : "", k->done, all,
            seconds > 0 ? (double)k->done / seconds : 0, last ? "\n" : "");
}

/* Prints the names of the images in a chunk that cannot be read. Unless skip_broken is set, fails
 * at the end of a block of chunks if the block had such an image. */
static int report_broken(cli_packing *k, const cli_chunk *c)
{
    for (size_t i = 0; i < c->broken && i < CLI_NAMED && k->broken + i < CLI_NAMED; i++)
        cli_say("broken: %s", c->why[i].text);
    k->broken += c->broken;
    if (k->broken == 0 || k->p->skip_broken || !c->ends_block)
        return LS_OK;
    return ls_fail(k->err, LS_EDATA,
                   "%.300s: %zu %s; mend or remove them, or leave them out: data.skip_broken, of "
                   "`%.200s pack` --skip-broken",
                   k->p->folder, k->broken,
                   ls_plural(k->broken, "image so far is broken", "images so far are broken"),
                   cli_program());
}

static int write_chunk(void *user, const cli_chunk *c)
{
    output *o = user;
    cli_packing *k = o->k;
    int status = report_broken(k, c);
    for (size_t i = 0, end; status == LS_OK && i < c->count; i = end) {
        for (end = i; end < c->count && !c->failed[end]; end++)
            o->label[o->test][o->rows[o->test]++] = c->entry[end].label;
        status = put(o, c->pixels + i * k->row, (end - i) * k->row, k->err);
        if (end < c->count)
            end++; /* leave out the image that cannot be read */
    }
    k->done += c->count;
    k->turned += c->turned;
    for (int ch = 0; !o->test && ch < 3; ch++) {
        o->sum[ch] += c->sum[ch];
        o->squares[ch] += c->squares[ch];
    }
    show_progress(k, false);
    return status;
}

/* Writes the images of a split. While one thread hashes and writes a chunk, the others decode. */
static int write_images(output *o, cli_decoder *w)
{
    const cli_packing *k = o->k;
    int status = cli_decoder_run(w, &k->split[o->test], write_chunk, o);
    if (status == LS_OK && o->rows[o->test] == 0)
        status = ls_fail(k->err, LS_EDATA, "%.300s: no image of it can be read", k->p->folder);
    return status;
}

static int write_tensors(output *o)
{
    cli_packing *k = o->k;
    cli_decoder *w;
    int status = cli_decoder_create(&w, k);
    for (int s = 0; status == LS_OK && s < 2 && k->split[s].count; s++) {
        o->test = s;
        o->label[s] = ls_alloc_array(k->host, k->split[s].count, sizeof **o->label);
        status = o->label[s] ? write_images(o, w) : cli_pack_no_memory(k);
        if (status == LS_OK)
            status = put(o, o->label[s], o->rows[s] * sizeof **o->label, k->err);
    }
    cli_decoder_destroy(w);
    return status;
}

/* Adds remarks about the images themselves. */
static void remark_images(cli_packing *k)
{
    if (k->broken)
        cli_pack_remark(
            k, "%zu %s left out", k->broken,
            ls_plural(k->broken, "image is broken and was", "images are broken and were"));
    if (k->turned)
        cli_pack_remark(
            k, "%zu %s EXIF orientation says", k->turned,
            ls_plural(k->turned, "image was turned as its", "images were turned as their"));
}

/* Returns the header, padded with spaces to `padded` bytes. `padded` 0: returns a header of the
 * greatest length that it can have, so that the caller learns how many bytes to leave for it. */
static int make_header(char **out, size_t *length, const cli_packing *k, const output *o,
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
    return *out ? LS_OK : cli_pack_no_memory(k);
}

static int write_file(output *o, const char *to)
{
    cli_packing *k = o->k;
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
    for (int s = 0; s < 2; s++)
        ls_free(k->host, o->label[s]);
    return status;
}

static int pack_listed(cli_packing *k, const char *to)
{
    output o = {.k = k};
    k->start = ls_now_ns();
    int status = write_file(&o, to);
    if (status && k->done && isatty(STDERR_FILENO) && !k->p->quiet)
        fputc('\n', stderr);
    if (status)
        return status;
    show_progress(k, true);
    return LS_OK;
}

static cli_packing begin(const cli_pack *p, const ls_host *host, ls_error *err)
{
    return (cli_packing){.p = p,
                         .host = host,
                         .err = err,
                         .row = (size_t)p->channels * (size_t)p->size * (size_t)p->size};
}

/* Packs a folder into the file `to`: tensors x (U8, [rows][channels][size][size]) and y (I32),
 * test_x and test_y of test images, and metadata: class_names, mean and std of each channel of the
 * training images, sha256 of all tensors. Names broken images on stderr; they are a failure unless
 * skip_broken is set. */
static int pack_folder(const char *to, const cli_pack *p, ls_error *err)
{
    cli_packing k = begin(p, NULL, err);
    char target[LS_PATH_BYTES];
    int status = ls_follow_links(target, to, err);
    if (status == LS_OK)
        status = cli_pack_list(&k);
    if (status == LS_OK)
        status = pack_listed(&k, target);
    for (int i = 0; status == LS_OK && i < k.remarks.count; i++)
        cli_say("%s", k.remarks.text[i]);
    cli_pack_forget(&k);
    return status;
}

/* ---- into the cache -------------------------------------------------------------------------- */

/* version of the conversion from images to rows; change it when the conversion changes */
#define RULE "3"

static void name_cached(char out[96], cli_packing *k)
{
    char hex[LS_SHA256_HEX], what[64];
    const int n = snprintf(what, sizeof what, "%d|%d|%d|" RULE, k->p->size, k->p->channels,
                           k->p->skip_broken);
    ls_sha256_update(&k->state, what, (size_t)n);
    ls_sha256_final_hex(&k->state, hex);
    snprintf(out, 96, "data-%.32s.safetensors", hex);
}

static int fix_classes(cli_packing *k, const ls_input_format *format);

/* Packs a folder into the cache, unless the cache has a packed file of its present state, and
 * stores the path of the packed file. `format` NULL: the classes are the subfolders of the training
 * images. */
static int pack_cached(char path[4096], const char *cache, const cli_pack *p,
                       const ls_input_format *format, const ls_host *host, ls_error *err)
{
    char name[96];
    int made;
    cli_packing k = begin(p, host, err);
    k.wants_state = true;
    int status = format && format->class_name ? fix_classes(&k, format) : LS_OK;
    if (status == LS_OK)
        status = cli_pack_list(&k);
    if (status == LS_OK) {
        name_cached(name, &k);
        snprintf(path, 4096, "%s/%s", cache, name);
        if (access(path, R_OK) != 0)
            status = ls_make_directory(cache, &made, err);
        if (status == LS_OK && access(path, R_OK) != 0)
            status = pack_listed(&k, path);
    }
    if (status == LS_OK)
        cli_cache_bound(cache, name, cli_cache_bytes());
    cli_pack_forget(&k);
    return status;
}

/* Returns whether the path `packed` is below the cache directory. */
static bool is_own(const char *packed, const char *cache)
{
    return packed && cache && strncmp(packed, cache, strlen(cache)) == 0;
}

/* Restricts the classes to those of the model. */
static int fix_classes(cli_packing *k, const ls_input_format *format)
{
    const size_t n = (size_t)format->classes;
    k->classes.name = ls_alloc_array(k->host, n + 1, sizeof *k->classes.name);
    if (!k->classes.name)
        return cli_pack_no_memory(k);
    for (size_t i = 0; i < n; i++)
        k->classes.name[i] = format->class_name[i];
    k->classes.count = k->classes.capacity = n;
    k->fixed = true;
    return LS_OK;
}

int cli_pack_again(char **packed, const ls_config *c, const ls_input_format *format,
                   bool other_folder, const char *cache, const ls_host *host, ls_error *err)
{
    char path[4096];
    const char *file = c->data_keys.packed;
    *packed = NULL;
    const cli_pack p = {.folder = c->data_path,
                        .test_folder = c->data_keys.test_path,
                        .size = c->data_keys.image_size,
                        .channels = c->data_keys.channels,
                        .skip_broken = c->data_keys.skip_broken,
                        .quiet = true};
    if (file && !is_own(file, cache))
        return LS_OK;
    if (c->data_path && cli_is_folder(c->data_path) && cache) {
        int status = pack_cached(path, cache, &p, format, host, err);
        return status ? status : ls_path_copy(packed, path, host, err);
    }
    if (file && !other_folder && access(file, R_OK) == 0)
        return LS_OK;
    return ls_fail(
        err, LS_ENOENT,
        "%.300s: the folder of the run's images is not there%s%.300s%s; name where it is "
        "now: --set data.path=FOLDER",
        c->data_path ? c->data_path : "",
        file && !other_folder ? ", nor are they in the cache (" : "",
        file && !other_folder ? file : "", file && !other_folder ? ")" : "");
}

int cli_pack_data(char text[CLI_ASSIGNMENT_BYTES], cli_list *set, ls_trainer_options *o, bool quiet,
                  ls_error *err)
{
    ls_config c = {0};
    char path[4096];
    if ((!o->config_path && !o->config_text) || ls_config_read(&c, o, NULL) != LS_OK)
        return LS_OK;
    int status = LS_OK;
    /* If the config is that of an earlier run, its packed file in the cache can belong to an older
     * state of the folder. */
    const char *packed = c.data_keys.packed;
    const bool own = is_own(packed, o->cache_dir);
    if (strcmp(c.data_name, "folder") == 0 && c.data_path && (!packed || own)) {
        const cli_pack p = {.folder = c.data_path,
                            .test_folder = c.data_keys.test_path,
                            .size = c.data_keys.image_size,
                            .channels = c.data_keys.channels,
                            .skip_broken = c.data_keys.skip_broken,
                            .quiet = quiet};
        if (c.data_keys.channels == 2)
            status = ls_config_fail(err, &c, "data.channels", LS_ECONFIG,
                                    "data.channels: expected 3 for colours or 1 for grey, found 2");
        else if (!o->cache_dir)
            status =
                ls_fail(err, LS_ENOENT,
                        "there is no place for a cache: set XDG_CACHE_HOME or HOME, or pack %.200s "
                        "with `%.200s pack`",
                        c.data_path, cli_program());
        else
            status = pack_cached(path, o->cache_dir, &p, NULL, o->host, err);
        if (status == LS_OK && cli_assignment(text, CLI_ASSIGNMENT_BYTES, "data.packed", path)) {
            set->item[set->count++] = text;
            o->set = set->item;
            o->set_count = set->count;
        }
    }
    ls_config_fini(&c);
    return status;
}

char *cli_beside_run(const char *path, const char *config, const ls_host *host)
{
    static const char *const up[] = {"../..", "..", "../../.."};
    char beside[LS_PATH_BYTES], way[LS_PATH_BYTES];
    const char *slash = config ? strrchr(config, '/') : NULL;
    struct stat run, st;
    if (!path || *path == '/' || !slash || access(path, F_OK) == 0)
        return NULL;
    snprintf(way, sizeof way, "%.*s", (int)(slash - config), config);
    if (stat(way, &run) != 0)
        return NULL;
    for (size_t i = 0; i < sizeof up / sizeof *up; i++) {
        snprintf(way, sizeof way, "%.*s/%s", (int)(slash - config), config, up[i]);
        if (stat(ls_path_join(beside, way, path), &st) == 0 &&
            (st.st_dev != run.st_dev || st.st_ino != run.st_ino)) /* not the run's own directory */
            return ls_strdup(host, beside);
    }
    return NULL;
}

/* Appends the assignment of `path` to the key `key` to the options, unless `path` is NULL. Returns
 * whether it was appended. */
static bool set_path(char text[CLI_ASSIGNMENT_BYTES], cli_list *set, ls_trainer_options *o,
                     const char *key, const char *path)
{
    if (!path || !cli_assignment(text, CLI_ASSIGNMENT_BYTES, key, path))
        return false;
    set->item[set->count++] = text;
    o->set = set->item;
    o->set_count = set->count;
    return true;
}

/* Packs the folder again if its packed file in the cache no longer exists. */
static int pack_for_resume(cli_data_texts *texts, cli_list *set, ls_trainer_options *o,
                           const ls_config *c, bool quiet, ls_error *err)
{
    char path[4096];
    const char *packed = c->data_keys.packed;
    if (!packed || access(packed, R_OK) == 0)
        return LS_OK;
    const cli_pack p = {.folder = c->data_path,
                        .test_folder = c->data_keys.test_path,
                        .size = c->data_keys.image_size,
                        .channels = c->data_keys.channels,
                        .skip_broken = c->data_keys.skip_broken,
                        .quiet = quiet};
    if (!c->data_path || !cli_is_folder(c->data_path) || !o->cache_dir)
        return ls_fail(
            err, LS_ENOENT,
            "%.300s: the packed images of the run are gone, and %.300s, from which they can be "
            "packed again, is not there; name where the folder is now: --set data.path=FOLDER",
            packed, c->data_path ? c->data_path : "their folder");
    int status = pack_cached(path, o->cache_dir, &p, NULL, o->host, err);
    if (status == LS_OK)
        set_path(texts->packed, set, o, "data.packed", path);
    return status;
}

int cli_find_run_data(cli_data_texts *texts, cli_list *set, ls_trainer_options *o, bool quiet,
                      ls_error *err)
{
    ls_config c = {0};
    char config[LS_PATH_BYTES], *latest = NULL;
    const char *run = o->resume;
    if (!run || o->config_path || o->config_text)
        return LS_OK;
    if (strcmp(run, "latest") == 0 && ls_resume_latest(&latest, NULL, NULL, NULL) == LS_OK)
        run = latest;
    ls_path_join(config, run, "config.json");
    int status = LS_OK;
    if (ls_config_read_of_run(&c, config, o, NULL) == LS_OK) {
        const char *const was[2] = {c.data_path, c.data_keys.test_path};
        char *found[2];
        for (int i = 0; i < 2; i++) {
            found[i] = cli_beside_run(was[i], config, o->host);
            set_path(texts->path[i], set, o, i ? "data.test_path" : "data.path", found[i]);
        }
        c.data_path = found[0] ? found[0] : was[0];
        c.data_keys.test_path = found[1] ? found[1] : was[1];
        if (strcmp(c.data_name, "folder") == 0)
            status = pack_for_resume(texts, set, o, &c, quiet, err);
        for (int i = 0; i < 2; i++)
            ls_free(o->host, found[i]);
        ls_config_fini(&c);
    }
    ls_free(NULL, latest);
    return status;
}

/* ---- into memory ----------------------------------------------------------------------------- */

/* The rows and labels into which decoded images are stored, and the number of rows so far. */
typedef struct memory {
    cli_packing *k;
    uint8_t *values;
    int32_t *labels;
    size_t rows;
} memory;

static int keep_chunk(void *user, const cli_chunk *c)
{
    memory *m = user;
    const size_t row = m->k->row;
    for (size_t i = 0; i < c->count; i++)
        if (!c->failed[i]) {
            m->labels[m->rows] = c->entry[i].label;
            memcpy(m->values + m->rows++ * row, c->pixels + i * row, row);
        }
    m->k->turned += c->turned;
    return report_broken(m->k, c);
}

static int decode_listed(ls_dataset **out, cli_packing *k, const ls_input_format *format,
                         bool train)
{
    memory m = {.k = k};
    cli_decoder *w = NULL;
    const cli_listing *l = &k->split[k->split[1].count && !train ? 1 : 0];
    ls_input_format rows = *format;
    rows.split = train ? "train" : "test";
    if (l->count > UINT32_MAX - 1)
        return cli_pack_no_memory(k);
    int status = ls_new_rows_reserve(out, &rows, k->p->folder, (uint32_t)l->count, &m.values,
                                     &m.labels, k->err);
    if (status == LS_OK)
        status = cli_decoder_create(&w, k);
    if (status == LS_OK)
        status = cli_decoder_run(w, l, keep_chunk, &m);
    if (status == LS_OK && k->broken && !k->p->skip_broken)
        status = ls_fail(k->err, LS_EDATA,
                         "%.300s: %zu %s broken; mend or remove them, or leave them out: "
                         "data.skip_broken",
                         k->p->folder, k->broken, ls_plural(k->broken, "image is", "images are"));
    if (status == LS_OK && m.rows == 0)
        status = ls_fail(k->err, LS_EDATA, "%.300s: no image of it can be read", k->p->folder);
    if (status == LS_OK)
        (*out)->info.rows = (uint32_t)m.rows;
    remark_images(k);
    cli_decoder_destroy(w);
    return status;
}

int cli_read_folder(ls_dataset **out, const ls_input_format *format, const char *folder, bool train,
                    bool skip_broken, const ls_host *host, ls_error *err)
{
    const cli_pack p = {.folder = folder,
                        .size = format->height,
                        .channels = format->channels,
                        .skip_broken = skip_broken,
                        .quiet = true};
    cli_packing k = begin(&p, host, err);
    *out = NULL;
    if (format->floats || format->height != format->width ||
        (format->channels != 1 && format->channels != 3) || !format->class_name ||
        format->classes < 2)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "%.300s: a folder of images is for models of square images whose classes have names",
            folder);
    int status = fix_classes(&k, format);
    if (status == LS_OK)
        status = cli_pack_list(&k);
    if (status == LS_OK)
        status = decode_listed(out, &k, format, train);
    for (int i = 0; status == LS_OK && i < k.remarks.count; i++)
        ls_log(host, LS_LOG_INFO, "%.300s: %s", folder, k.remarks.text[i]);
    cli_pack_forget(&k);
    if (status) {
        ls_dataset_close(*out);
        *out = NULL;
    }
    return status;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static const char pack_help[] =
    "usage: {} pack FOLDER --to FILE.safetensors [options]\n"
    "\n"
    "Reads a folder of images, a sub-folder for each class, once: JPEG, PNG, BMP, WebP, PGM\n"
    "and PPM of any size become rows of one file, which data.name safetensors trains on. If\n"
    "FOLDER contains train and test (or val, valid, validation), these are the training and\n"
    "the test images.\n"
    "\n"
    "  --to FILE        the file to write\n"
    "  --test FOLDER    folder of the test images\n"
    "  --size N         height and width in pixels: images are scaled until the shorter side\n"
    "                   fits, and cropped to the middle (32)\n"
    "  --channels N     3 for colours, 1 for grey (3)\n"
    "  --threads N      number of threads (one for each CPU)\n"
    "  --skip-broken    leaves out images that cannot be read, and reports their number\n"
    "  --quiet          no progress\n"
    "  --help           this text\n";

int cli_pack_verb(int argc, char **argv, const ls_registry *registry)
{
    const char *to = NULL;
    cli_pack p = {.size = 32, .channels = 3};
    ls_error err;
    (void)registry;
    const cli_option options[] = {
        {CLI_TEXT, "to", .value = &to},
        {CLI_TEXT, "test", .value = &p.test_folder},
        {CLI_WHOLE, "size", .whole = &p.size, .least = 1, .greatest = 4096},
        {CLI_WHOLE, "channels", .whole = &p.channels, .least = 1, .greatest = 3},
        {CLI_WHOLE, "threads", .whole = &p.threads, .least = 1, .greatest = CLI_PACK_THREADS},
        {CLI_FLAG, "skip-broken", .flag = &p.skip_broken},
        {CLI_FLAG, "quiet", .flag = &p.quiet},
        {CLI_HELP, "help", 'h', .text = pack_help},
        {CLI_OPERAND, "folder", .value = &p.folder, .text = "which folder?"},
        {0}};
    const int code = cli_read_options("pack", options, argc, argv);
    if (code)
        return code;
    if (!to)
        return cli_usage("pack", "--to FILE is missing", "");
    if (p.channels == 2)
        return cli_usage("pack", "--channels: expected 1 or 3, found ", "2");
    const int status = pack_folder(to, &p, &err);
    return status ? cli_fail(status, err.text) : cli_flush();
}
