#include "cli/pack.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "data/image.h"
#include "hash/hash.h"
#include "store/durable.h"
#include "train/config.h"
#include "json/json.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 32 << 20, MOST_THREADS = 256, NAMED = 20 /* broken images */ };

/* ---- what is in the folders ------------------------------------------------------------------- */

typedef struct names {
    char **name;
    size_t count, room;
} names;

typedef struct entry {
    char *path;
    int32_t label;
} entry;

typedef struct listing {
    entry *entry;
    size_t count, room;
    size_t others; /* files that are no images by their names */
} listing;

typedef struct packing {
    const cli_pack *p;
    const ls_host *host;
    ls_error *err;
    names classes;
    listing split[2];
    ls_sha256 state; /* of names, sizes and times */
    size_t row;      /* bytes of an image */
    uint64_t start, shown;
    size_t done, broken;
} packing;

static bool grow(const ls_host *host, void **list, size_t count, size_t *room, size_t each)
{
    if (count < *room)
        return true;
    const size_t more = *room ? 2 * *room : 64;
    void *bigger = ls_alloc_array(host, more, each);
    if (!bigger)
        return false;
    if (count)
        memcpy(bigger, *list, count * each);
    ls_free(host, *list);
    *list = bigger;
    *room = more;
    return true;
}

static int no_memory(const packing *k)
{
    return ls_fail(k->err, LS_ENOMEM, "%.300s: out of memory", k->p->folder);
}

static void free_names(names *n, const ls_host *host)
{
    for (size_t i = 0; i < n->count; i++)
        ls_free(host, n->name[i]);
    ls_free(host, n->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What is in a directory, hidden names left out, sorted by bytes: the same on every machine. */
static int list_names(names *out, const packing *k, const char *path)
{
    char why[LS_REASON];
    const struct dirent *e;
    *out = (names){0};
    DIR *d = opendir(path);
    if (!d)
        return ls_fail(k->err, errno == ENOENT ? LS_ENOENT : LS_EIO, "%.300s: cannot be read: %s",
                       path, ls_reason(why, errno));
    int status = LS_OK;
    while (status == LS_OK && (e = readdir(d)))
        if (e->d_name[0] != '.') {
            void *list = out->name;
            if (!grow(k->host, &list, out->count, &out->room, sizeof *out->name))
                status = no_memory(k);
            out->name = list;
            if (status == LS_OK && !(out->name[out->count++] = ls_strdup(k->host, e->d_name)))
                status = no_memory(k);
        }
    closedir(d);
    if (status == LS_OK && out->count)
        qsort(out->name, out->count, sizeof *out->name, by_name);
    return status;
}

static char *join(const ls_host *host, const char *a, const char *b)
{
    const size_t n = strlen(a) + strlen(b) + 2;
    char *path = ls_alloc(host, n);
    if (path)
        snprintf(path, n, "%s/%s", a, b);
    return path;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_image(const char *name)
{
    static const char *const end[] = {".jpg", ".jpeg", ".png", ".pgm", ".ppm", ".pnm"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof end / sizeof *end; i++)
        if (strcasecmp(dot, end[i]) == 0)
            return true;
    return false;
}

static int add_file(packing *k, int test, char *path, int32_t label)
{
    struct stat st;
    char text[96];
    listing *l = &k->split[test];
    void *list = l->entry;
    const bool there = grow(k->host, &list, l->count, &l->room, sizeof *l->entry);
    l->entry = list;
    if (!there) {
        ls_free(k->host, path);
        return no_memory(k);
    }
    l->entry[l->count++] = (entry){path, label};
    memset(&st, 0, sizeof st);
    if (stat(path, &st) != 0)
        st.st_size = -1; /* reading it says why */
    const int n =
        snprintf(text, sizeof text, "|%d|%lld|%lld.%09ld\n", (int)label, (long long)st.st_size,
                 (long long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec);
    ls_sha256_update(&k->state, path, strlen(path));
    ls_sha256_update(&k->state, text, (size_t)n);
    return LS_OK;
}

static int list_class(packing *k, int test, const char *folder, int32_t label)
{
    names files;
    int status = list_names(&files, k, folder);
    for (size_t i = 0; status == LS_OK && i < files.count; i++) {
        if (!is_image(files.name[i])) {
            k->split[test].others++;
            continue;
        }
        char *path = join(k->host, folder, files.name[i]);
        status = path ? add_file(k, test, path, label) : no_memory(k);
    }
    free_names(&files, k->host);
    return status;
}

/* The class of a sub-folder's name; of the training images each is a new one. */
static int find_class(packing *k, int test, const char *folder, char **name, int32_t *label)
{
    for (size_t i = 0; test && i < k->classes.count; i++)
        if (strcmp(k->classes.name[i], *name) == 0) {
            *label = (int32_t)i;
            return LS_OK;
        }
    if (test)
        return ls_fail(
            k->err, LS_EDATA,
            "%.300s/%.100s: expected sub-folders of the same names as the training images'", folder,
            *name);
    void *list = k->classes.name;
    const bool there =
        grow(k->host, &list, k->classes.count, &k->classes.room, sizeof *k->classes.name);
    k->classes.name = list;
    if (!there)
        return no_memory(k);
    *label = (int32_t)k->classes.count;
    k->classes.name[k->classes.count++] = *name;
    *name = NULL;
    return LS_OK;
}

static int list_split(packing *k, int test, const char *folder)
{
    names all;
    int status = list_names(&all, k, folder);
    for (size_t i = 0; status == LS_OK && i < all.count; i++) {
        char *path = join(k->host, folder, all.name[i]);
        int32_t label = 0;
        if (!path)
            status = no_memory(k);
        else if (!is_folder(path))
            k->split[test].others++;
        else if ((status = find_class(k, test, folder, &all.name[i], &label)) == LS_OK)
            status = list_class(k, test, path, label);
        ls_free(k->host, path);
    }
    free_names(&all, k->host);
    if (status == LS_OK && k->split[test].count == 0)
        status =
            ls_fail(k->err, LS_EDATA,
                    "%.300s: expected a sub-folder for each class with images (jpg, png, pgm, ppm) "
                    "in it, found none",
                    folder);
    if (status == LS_OK && k->classes.count < 2)
        status = ls_fail(k->err, LS_EDATA, "%.300s: expected at least two sub-folders, one a class",
                         folder);
    return status;
}

static int list_all(packing *k)
{
    char *inner[3] = {join(k->host, k->p->folder, "train"), join(k->host, k->p->folder, "test"),
                      join(k->host, k->p->folder, "val")};
    const bool complete = inner[0] && inner[1] && inner[2];
    int status = complete ? LS_OK : no_memory(k);
    ls_sha256_init(&k->state);
    if (status == LS_OK) {
        const char *test = k->p->test_folder, *train = k->p->folder;
        const char *beside = is_folder(inner[1]) ? inner[1] : is_folder(inner[2]) ? inner[2] : NULL;
        if (!test && is_folder(inner[0]) && beside) {
            train = inner[0];
            test = beside;
        }
        status = list_split(k, 0, train);
        if (status == LS_OK && test)
            status = list_split(k, 1, test);
    }
    for (int i = 0; i < 3; i++)
        ls_free(k->host, inner[i]);
    return status;
}

static void forget(packing *k)
{
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < k->split[s].count; i++)
            ls_free(k->host, k->split[s].entry[i].path);
        ls_free(k->host, k->split[s].entry);
    }
    free_names(&k->classes, k->host);
}

/* ---- decoding, on all cores ------------------------------------------------------------------- */

/* Images that are decoded while those before them are written. */
typedef struct block {
    const packing *k;
    const entry *entry;
    size_t count;
    uint8_t *pixels;
    char *failed; /* [count] */
    atomic_size_t next;
    pthread_mutex_t lock;
    uint64_t sum[3], squares[3]; /* of the samples of each channel */
    ls_error why[NAMED];
    size_t broken;
    pthread_t thread[MOST_THREADS];
    int threads;
} block;

static void note_broken(block *b, size_t i, const ls_error *why)
{
    b->failed[i] = 1;
    pthread_mutex_lock(&b->lock);
    if (b->broken < NAMED)
        b->why[b->broken] = *why;
    b->broken++;
    pthread_mutex_unlock(&b->lock);
}

static void *decode_some(void *user)
{
    block *b = user;
    const cli_pack *p = b->k->p;
    const size_t area = (size_t)p->size * (size_t)p->size;
    uint64_t sum[3] = {0}, squares[3] = {0};
    for (size_t i; (i = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed)) < b->count;) {
        uint8_t *to = b->pixels + i * b->k->row;
        ls_error why = {0};
        if (ls_image_fit(to, p->channels, p->size, p->size, b->entry[i].path, b->k->host, &why)) {
            note_broken(b, i, &why);
            continue;
        }
        for (int c = 0; c < p->channels; c++)
            for (size_t at = 0; at < area; at++) {
                const uint32_t v = to[(size_t)c * area + at];
                sum[c] += v;
                squares[c] += v * v;
            }
    }
    pthread_mutex_lock(&b->lock);
    for (int c = 0; c < 3; c++) {
        b->sum[c] += sum[c];
        b->squares[c] += squares[c];
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

static int begin_block(block *b, const packing *k, const entry *from, size_t count, int threads)
{
    b->k = k;
    b->entry = from;
    b->count = count;
    b->broken = 0;
    b->threads = 0;
    memset(b->failed, 0, count);
    atomic_init(&b->next, 0);
    for (int t = 0; t < threads && (size_t)t < count; t++) {
        if (pthread_create(&b->thread[t], NULL, decode_some, b))
            break;
        b->threads++;
    }
    if (b->threads == 0)
        decode_some(b);
    return LS_OK;
}

static void end_block(block *b)
{
    for (int t = 0; t < b->threads; t++)
        pthread_join(b->thread[t], NULL);
    b->threads = 0;
}

/* ---- the file ----------------------------------------------------------------------------------- */

/* A file under way: the header, whose room is kept free, comes last. */
typedef struct output {
    ls_file_writer file;
    ls_sha256 hash;
    size_t header;    /* bytes of it */
    uint32_t rows[2]; /* kept */
    int32_t *label[2];
    uint64_t sum[3], squares[3]; /* of training images */
} output;

static void write_entry(ls_json_writer *w, const char *name, const packing *k, uint32_t rows,
                        bool labels, uint64_t *at)
{
    const int64_t dim[] = {rows, k->p->channels, k->p->size, k->p->size};
    ls_json_open_object(w, name);
    ls_json_put_string(w, "dtype", labels ? "I32" : "U8");
    ls_json_open_array(w, "shape");
    for (int i = 0; i < (labels ? 1 : 4); i++)
        ls_json_put_int(w, NULL, dim[i]);
    ls_json_close(w);
    ls_json_open_array(w, "data_offsets");
    ls_json_put_uint(w, NULL, *at);
    *at += rows * (labels ? sizeof(int32_t) : (uint64_t)k->row);
    ls_json_put_uint(w, NULL, *at);
    ls_json_close(w);
    ls_json_close(w);
}

/* A list as a text: metadata of safetensors files are texts. */
static int put_note(ls_json_writer *w, const char *key, const ls_json_writer *note, ls_error *err)
{
    size_t length;
    const char *text = ls_json_writer_text((ls_json_writer *)(uintptr_t)note, &length, err);
    if (text)
        ls_json_put_string(w, key, text);
    return text ? LS_OK : LS_ENOMEM;
}

static int put_moments(ls_json_writer *w, const packing *k, const output *o)
{
    const double n = (double)o->rows[0] * k->p->size * k->p->size;
    int status = LS_OK;
    for (int which = 0; status == LS_OK && which < 2; which++) {
        ls_json_writer list;
        ls_json_writer_init(&list, 0, k->host);
        ls_json_open_array(&list, NULL);
        for (int c = 0; c < k->p->channels; c++) {
            const double mean = n > 0 ? (double)o->sum[c] / n : 0;
            const double spread =
                n > 0 ? sqrt(fmax((double)o->squares[c] / n - mean * mean, 0)) : 0;
            ls_json_put_float(&list, NULL, (float)((which ? spread : mean) / 255));
        }
        ls_json_close(&list);
        status = put_note(w, which ? "std" : "mean", &list, k->err);
        ls_json_writer_fini(&list);
    }
    return status;
}

static int put_classes(ls_json_writer *w, const packing *k)
{
    ls_json_writer list;
    ls_json_writer_init(&list, 0, k->host);
    ls_json_open_array(&list, NULL);
    for (size_t i = 0; i < k->classes.count; i++)
        ls_json_put_string(&list, NULL, k->classes.name[i]);
    ls_json_close(&list);
    int status = put_note(w, "class_names", &list, k->err);
    ls_json_writer_fini(&list);
    return status;
}

static int write_header(ls_json_writer *w, const packing *k, const output *o, const char *hash)
{
    static const char *const tensor[2][2] = {{"x", "y"}, {"test_x", "test_y"}};
    uint64_t at = 0;
    ls_json_open_object(w, NULL);
    ls_json_open_object(w, "__metadata__");
    ls_json_put_string(w, "sha256", hash);
    int status = put_classes(w, k);
    if (status == LS_OK)
        status = put_moments(w, k, o);
    ls_json_close(w);
    for (int s = 0; s < 2; s++)
        if (k->split[s].count) {
            write_entry(w, tensor[s][0], k, o->rows[s], false, &at);
            write_entry(w, tensor[s][1], k, o->rows[s], true, &at);
        }
    ls_json_close(w);
    return status;
}

static int put(output *o, const void *bytes, size_t count, ls_error *err)
{
    ls_sha256_update(&o->hash, bytes, count);
    return ls_file_writer_write(&o->file, bytes, count, err);
}

static void show_progress(packing *k, bool last)
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

/* Names the images of a block that are broken; without skip_broken they end the packing. */
static int tell_broken(packing *k, const block *b)
{
    for (size_t i = 0; i < b->broken && i < NAMED && k->broken + i < NAMED; i++)
        fprintf(stderr, "trainer: broken: %s\n", b->why[i].text);
    k->broken += b->broken;
    if (b->broken == 0 || k->p->skip_broken)
        return LS_OK;
    return ls_fail(k->err, LS_EDATA,
                   "%.300s: %zu images so far are broken; mend or remove them, or pack it with "
                   "--skip-broken",
                   k->p->folder, k->broken);
}

static int write_block(packing *k, output *o, int test, block *b)
{
    int status = tell_broken(k, b);
    for (size_t i = 0, end; status == LS_OK && i < b->count; i = end) {
        for (end = i; end < b->count && !b->failed[end]; end++)
            o->label[test][o->rows[test]++] = b->entry[end].label;
        status = put(o, b->pixels + i * k->row, (end - i) * k->row, k->err);
        end += end < b->count;
    }
    k->done += b->count;
    for (int c = 0; !test && c < 3; c++) {
        o->sum[c] += b->sum[c];
        o->squares[c] += b->squares[c];
    }
    memset(b->sum, 0, sizeof b->sum);
    memset(b->squares, 0, sizeof b->squares);
    show_progress(k, false);
    return status;
}

/* A block is decoded while the one before it is hashed and written. */
static int write_images(packing *k, output *o, int test, block *pair[2], int threads)
{
    const listing *l = &k->split[test];
    const size_t most = BLOCK_BYTES / k->row > 0 ? BLOCK_BYTES / k->row : 1;
    int status = LS_OK, turn = 0;
    for (size_t at = 0, count = 0; at < l->count || count; turn ^= 1) {
        const size_t left = l->count - at, next = left < most ? left : most;
        if (next && status == LS_OK)
            begin_block(pair[turn], k, l->entry + at, next, threads);
        if (count && status == LS_OK)
            status = write_block(k, o, test, pair[turn ^ 1]);
        end_block(pair[turn]);
        count = status == LS_OK ? next : 0;
        at = status == LS_OK ? at + next : l->count;
    }
    if (status == LS_OK && o->rows[test] == 0)
        status = ls_fail(k->err, LS_EDATA, "%.300s: no image of it can be read", k->p->folder);
    return status;
}

static block *new_block(const packing *k)
{
    const size_t most = BLOCK_BYTES / k->row > 0 ? BLOCK_BYTES / k->row : 1;
    block *b = ls_alloc(k->host, sizeof *b);
    if (!b)
        return NULL;
    pthread_mutex_init(&b->lock, NULL);
    b->pixels = ls_alloc_array(k->host, most, k->row);
    b->failed = ls_alloc(k->host, most);
    return b;
}

static void free_block(block *b, const ls_host *host)
{
    if (!b)
        return;
    pthread_mutex_destroy(&b->lock);
    ls_free(host, b->failed);
    ls_free(host, b->pixels);
    ls_free(host, b);
}

static int write_tensors(packing *k, output *o)
{
    block *pair[2] = {new_block(k), new_block(k)};
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = k->p->threads ? k->p->threads : (int)(cpus > 0 ? cpus : 1);
    int status = LS_OK;
    threads = threads > MOST_THREADS ? MOST_THREADS : threads;
    for (int i = 0; i < 2; i++)
        if (!pair[i] || !pair[i]->pixels || !pair[i]->failed)
            status = no_memory(k);
    for (int s = 0; status == LS_OK && s < 2 && k->split[s].count; s++) {
        o->label[s] = ls_alloc_array(k->host, k->split[s].count, sizeof **o->label);
        status = o->label[s] ? write_images(k, o, s, pair, threads) : no_memory(k);
        if (status == LS_OK)
            status = put(o, o->label[s], o->rows[s] * sizeof **o->label, k->err);
    }
    for (int i = 0; i < 2; i++)
        free_block(pair[i], k->host);
    return status;
}

/* The header in `room` bytes, with spaces behind it; 0: only how long it is, at most. */
static int make_header(char **out, size_t *length, const packing *k, const output *o,
                       const char *hash, size_t room)
{
    ls_json_writer w;
    size_t n;
    ls_json_writer_init(&w, 0, k->host);
    int status = write_header(&w, k, o, hash);
    const char *text = status ? NULL : ls_json_writer_text(&w, &n, k->err);
    *out = NULL;
    if (text) {
        *length = room ? room : 8 + (n + 256 + 7) / 8 * 8;
        *out = ls_alloc(k->host, *length);
    }
    if (*out) {
        memset(*out, ' ', *length);
        for (int i = 0; i < 8; i++)
            (*out)[i] = (char)((*length - 8) >> (8 * i));
        memcpy(*out + 8, text, n);
    }
    ls_json_writer_fini(&w);
    return *out ? LS_OK : no_memory(k);
}

static int write_file(packing *k, output *o, const char *to)
{
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
        status = write_tensors(k, o);
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

static int pack_listed(packing *k, const char *to)
{
    output o = {.header = 0};
    k->start = ls_now_ns();
    int status = write_file(k, &o, to);
    if (status && k->done && isatty(STDERR_FILENO) && !k->p->quiet)
        fputc('\n', stderr);
    if (status)
        return status;
    show_progress(k, true);
    if (k->broken)
        fprintf(stderr, "trainer: %zu images are broken and were left out\n", k->broken);
    if (k->split[0].others + k->split[1].others)
        fprintf(stderr, "trainer: %zu files are no jpg, png, pgm or ppm and were left out\n",
                k->split[0].others + k->split[1].others);
    return LS_OK;
}

static packing begin(const cli_pack *p, const ls_host *host, ls_error *err)
{
    return (packing){.p = p,
                     .host = host,
                     .err = err,
                     .row = (size_t)p->channels * (size_t)p->size * (size_t)p->size};
}

int cli_pack_folder(const char *to, const cli_pack *p, const ls_host *host, ls_error *err)
{
    packing k = begin(p, host, err);
    int status = list_all(&k);
    if (status == LS_OK)
        status = pack_listed(&k, to);
    forget(&k);
    return status;
}

/* ---- into the cache ------------------------------------------------------------------------------ */

static void name_cached(char out[96], packing *k)
{
    char hex[LS_SHA256_HEX], what[64];
    const int n = snprintf(what, sizeof what, "%d|%d", k->p->size, k->p->channels);
    ls_sha256_update(&k->state, what, (size_t)n);
    ls_sha256_final_hex(&k->state, hex);
    snprintf(out, 96, "data-%.32s.safetensors", hex);
}

static int pack_cached(char path[4096], const char *cache, const cli_pack *p, const ls_host *host,
                       ls_error *err)
{
    char name[96];
    int made;
    packing k = begin(p, host, err);
    int status = list_all(&k);
    if (status == LS_OK) {
        name_cached(name, &k);
        snprintf(path, 4096, "%s/%s", cache, name);
        if (access(path, R_OK) != 0)
            status = ls_make_directory(cache, &made, host, err);
        if (status == LS_OK && access(path, R_OK) != 0)
            status = pack_listed(&k, path);
    }
    forget(&k);
    return status;
}

int cli_pack_data(char room[CLI_PACKED_ROOM], cli_list *set, ls_trainer_options *o, bool quiet,
                  ls_error *err)
{
    ls_config c = {0};
    char path[4096];
    if ((!o->config_path && !o->config_text) || ls_config_read(&c, o, NULL) != LS_OK)
        return LS_OK;
    int status = LS_OK;
    /* A file of the cache's own, in the config of a run that was, may be of an older state of the folder. */
    const char *packed = c.data_keys.packed;
    const bool own =
        packed && o->cache_dir && strncmp(packed, o->cache_dir, strlen(o->cache_dir)) == 0;
    if (strcmp(c.data_name, "folder") == 0 && c.data_path && (!packed || own)) {
        const cli_pack p = {.folder = c.data_path,
                            .test_folder = c.data_keys.test_path,
                            .size = c.data_keys.size,
                            .channels = c.data_keys.channels == 1 ? 1 : 3,
                            .quiet = quiet};
        if (!o->cache_dir)
            status =
                ls_fail(err, LS_ENOENT,
                        "there is no place for a cache: set XDG_CACHE_HOME or HOME, or pack %.200s "
                        "with `trainer pack`",
                        c.data_path);
        else
            status = pack_cached(path, o->cache_dir, &p, o->host, err);
        if (status == LS_OK && cli_assignment(room, CLI_PACKED_ROOM, "data.packed", path)) {
            set->item[set->count++] = room;
            o->set = set->item;
            o->set_count = set->count;
        }
    }
    ls_config_fini(&c);
    return status;
}

/* ---- the verb -------------------------------------------------------------------------------------- */

static const char pack_help[] =
    "usage: trainer pack FOLDER --to FILE.safetensors [options]\n"
    "\n"
    "Reads a folder of images, a sub-folder for each class, once: JPEG, PNG, PGM and PPM of any size\n"
    "become rows of one file, which data.name safetensors trains on. Where FOLDER has train and test\n"
    "(or val) in it, these are the training and the test images.\n"
    "\n"
    "  --to FILE        where to\n"
    "  --test FOLDER    test images\n"
    "  --size N         height and width: scaled until the shorter side fits, cut to the middle (32)\n"
    "  --channels N     3 colours, or 1 grey (3)\n"
    "  --threads N      (one for each CPU)\n"
    "  --skip-broken    leave out images that cannot be read, and say how many\n"
    "  --quiet          no progress\n"
    "  --help           this text\n";

static bool read_count(const char *text, int fallback, int most, int *out)
{
    char *end = NULL;
    const long n = text ? strtol(text, &end, 10) : fallback;
    *out = (int)n;
    return !text || (end != text && *end == '\0' && n >= 1 && n <= most);
}

int cli_pack_verb(int argc, char **argv)
{
    const char *to = NULL, *size = NULL, *channels = NULL, *threads = NULL;
    cli_pack p = {0};
    bool help = false;
    ls_error err;
    const cli_option options[] = {
        cli_text("to", &to),           cli_text("test", &p.test_folder),
        cli_text("size", &size),       cli_text("channels", &channels),
        cli_text("threads", &threads), cli_flag("skip-broken", &p.skip_broken),
        cli_flag("quiet", &p.quiet),   cli_help(&help)};
    int code = cli_read_options("pack", options, sizeof options / sizeof *options, argc, argv);
    if (code)
        return code;
    if (help) {
        fputs(pack_help, stdout);
        return cli_flush();
    }
    code = cli_read_operand(&p.folder, "pack", "folder", "which folder?", argc, argv);
    if (code)
        return code;
    if (!to)
        return cli_usage("pack", "--to FILE is missing", "");
    if (!read_count(size, 32, 4096, &p.size))
        return cli_usage("pack", "--size: expected 1 to 4096, found ", size);
    if (!read_count(channels, 3, 3, &p.channels) || p.channels == 2)
        return cli_usage("pack", "--channels: expected 1 or 3, found ", channels);
    if (!read_count(threads, 0, MOST_THREADS, &p.threads) && threads)
        return cli_usage("pack", "--threads: expected 1 to 256, found ", threads);
    const int status = cli_pack_folder(to, &p, NULL, &err);
    return status ? cli_fail(status, err.text) : cli_flush();
}
