/* SPDX-License-Identifier: MIT */
/* Decodes images on several threads, and passes them to a callback in the order of the list.
 *
 * The list is divided into chunks of consecutive images. A thread takes the next chunk of the list
 * and decodes it into the chunk's slot of a ring. Then the thread hands chunks on: as long as the
 * next chunk in the order of the list is decoded, it calls the callback for that chunk. Only the
 * thread that has set `handing` hands chunks on; the others take their next chunk. Therefore the
 * callback gets the chunks in order, and is never called by two threads at once.
 *
 * `lock` guards `taken`, `handed`, `handing`, `status` and the chunks' `ready`. The lock is not
 * held while a chunk is decoded, because only the thread that took the chunk accesses its slot
 * then. The lock is not held during the callback either, because only the thread that set `handing`
 * calls the callback.
 *
 * Memory order: a thread decodes a chunk, locks, sets `ready` and unlocks. The thread that hands
 * the chunk on locks later and reads `ready`, so the chunk's content happens before the callback.
 * After the callback the thread that handed on locks, increments `handed` and unlocks. A thread
 * that takes the slot for a later chunk has read this value of `handed`, or a later value, under
 * the lock, so the callback happens before the slot is overwritten.
 *
 * No chunk is forgotten. A thread sets `ready` under the lock and, still under the lock, reads
 * `handing`. If `handing` is false, the thread hands on itself. If `handing` is true, the thread
 * that set `handing` must lock again before it clears `handing`, and in that same critical section
 * it reads `ready` of the next chunk. */
#include "data/folder.h"

#include "base/host.h"
#include "data/image.h"

#include <fcntl.h>
#include <lockstep/pool.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 64 << 10,
    /* limit of the total size of the slots in bytes; there are at least two slots in any case */
    SLOT_BYTES = 256 << 20,
    /* Size of a block in bytes. The packing fails at the end of the first block with an image that
     * cannot be read, so that its message can name several such images. */
    BLOCK_BYTES = 32 << 20
};

/* The state that the decoding threads share. */
struct ls_folder_decoder {
    const ls_folder *k;
    const ls_pictures *pictures; /* the functions that decode */
    const ls_folder_listing *list;
    /* number of images in a chunk, of chunks in the list, and of chunks in a block */
    size_t each, chunks, block;
    ls_folder_take *take;
    void *user;
    bool measures; /* the images are measured (ls_image_measure), not decoded */
    pthread_mutex_t lock;
    pthread_cond_t slot_free;
    size_t taken, handed; /* number of chunks that threads have taken, and that were handed on */
    bool handing;         /* a thread is handing chunks on */
    int status;
    ls_folder_chunk *slot;
    size_t slots;
    int wanted;
};

/* State that a thread reuses from one image to the next. */
typedef struct keeps {
    ls_image_memory image;
    int folder, number; /* the descriptor of the open directory, and its ls_folder_entry.folder */
} keeps;

static void add_moments(ls_folder_chunk *c, const uint8_t *samples, size_t area, int channel)
{
    while (area > 0) { /* at most 65,536 samples at a time, whose squares' sum fits in 32 bits */
        const size_t some = area < 65536 ? area : 65536;
        uint32_t sum = 0, squares = 0;
        for (size_t i = 0; i < some; i++) {
            sum += samples[i];
            squares += (uint32_t)samples[i] * samples[i];
        }
        c->sum[channel] += sum;
        c->squares[channel] += squares;
        samples += some;
        area -= some;
    }
}

/* Returns a descriptor of the directory of an image. Opening files relative to it is faster.
 * Returns AT_FDCWD if the directory cannot be opened. */
static int folder_of(keeps *k, const ls_folder_entry *e)
{
    char name[4096];
    const char *slash = strrchr(e->path, '/');
    if (k->number == e->folder)
        return k->folder;
    if (k->folder >= 0)
        close(k->folder);
    k->number = e->folder;
    k->folder = -1;
    if (slash - e->path < (ptrdiff_t)sizeof name) {
        snprintf(name, sizeof name, "%.*s", (int)(slash - e->path), e->path);
        k->folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    return k->folder = k->folder < 0 ? AT_FDCWD : k->folder;
}

/* Decodes image `i` of a chunk, or only measures it. */
static int decode_image(const ls_folder_decoder *w, const ls_folder_chunk *c, size_t i, keeps *kept,
                        ls_error *why)
{
    const ls_folder_entry *e = &c->entry[i];
    const int folder = e->is_plain ? folder_of(kept, e) : AT_FDCWD;
    if (w->measures)
        return w->pictures->measure(folder, e->path, &kept->image, w->k->host, why);
    return w->pictures->fit(c->pixels + i * w->k->row, &w->k->form, folder, e->path, &kept->image,
                            w->k->host, why);
}

static void decode_chunk(const ls_folder_decoder *w, size_t number, keeps *kept)
{
    const ls_picture_form *form = &w->k->form;
    const size_t area = (size_t)form->height * (size_t)form->width, first = number * w->each;
    const size_t left = w->list->count - first;
    ls_folder_chunk *c = &w->slot[number % w->slots];
    c->entry = w->list->entry + first;
    c->count = left < w->each ? left : w->each;
    c->broken = c->turned = c->laid = 0;
    c->largest = 0;
    c->ends_block = number + 1 == w->chunks || (number + 1) % (w->block ? w->block : 1) == 0;
    memset(c->failed, 0, c->count);
    memset(c->sum, 0, sizeof c->sum);
    memset(c->squares, 0, sizeof c->squares);
    for (size_t i = 0; i < c->count; i++) {
        ls_error why = {0};
        const int status = decode_image(w, c, i, kept, &why);
        for (int ch = 0; status == LS_OK && !w->measures && ch < form->channels; ch++)
            add_moments(c, c->pixels + i * w->k->row + (size_t)ch * area, area, ch);
        c->failed[i] = status != LS_OK;
        if (status == LS_OK && kept->image.turned)
            c->turned++;
        if (status == LS_OK && kept->image.laid)
            c->laid++;
        if (status == LS_OK && kept->image.largest > c->largest)
            c->largest = kept->image.largest;
        if (status && c->broken++ < LS_FOLDER_NAMED)
            c->why[c->broken - 1] = why;
    }
}

/* Waits for a free slot and takes the next chunk. Returns its number, or w->chunks if no chunk is
 * left. The caller holds the lock. */
static size_t take_chunk(ls_folder_decoder *w)
{
    while (w->status == LS_OK && w->taken < w->chunks && w->taken >= w->handed + w->slots)
        pthread_cond_wait(&w->slot_free, &w->lock);
    return w->status || w->taken == w->chunks ? w->chunks : w->taken++;
}

/* Hands decoded chunks on, in order, unless another thread does. The caller holds the lock, which
 * is released during each callback. */
static void hand_on(ls_folder_decoder *w)
{
    ls_folder_chunk *c = &w->slot[w->handed % w->slots];
    if (w->handing)
        return;
    for (w->handing = true; w->status == LS_OK && c->ready; c = &w->slot[w->handed % w->slots]) {
        pthread_mutex_unlock(&w->lock);
        const int status = w->take(w->user, c);
        pthread_mutex_lock(&w->lock);
        w->status = status;
        w->handed++;
        c->ready = false;
        pthread_cond_broadcast(&w->slot_free);
    }
    w->handing = false;
}

static void *decode_some(void *user)
{
    ls_folder_decoder *w = user;
    keeps kept = {.folder = AT_FDCWD, .number = 0};
    pthread_mutex_lock(&w->lock);
    for (size_t number; (number = take_chunk(w)) < w->chunks;) {
        pthread_mutex_unlock(&w->lock);
        decode_chunk(w, number, &kept);
        pthread_mutex_lock(&w->lock);
        w->slot[number % w->slots].ready = true;
        hand_on(w);
    }
    pthread_mutex_unlock(&w->lock);
    if (kept.folder >= 0)
        close(kept.folder);
    w->pictures->memory_free(&kept.image, w->k->host);
    return NULL;
}

int ls_folder_decoder_run(ls_folder_decoder *w, const ls_folder_listing *list, ls_folder_take *take,
                          void *user)
{
    pthread_t thread[LS_FOLDER_THREADS];
    int threads = 1; /* the caller's thread */
    w->list = list;
    w->take = take;
    w->user = user;
    w->chunks = (list->count + w->each - 1) / w->each;
    w->block = BLOCK_BYTES / (w->each * w->k->row);
    w->taken = w->handed = 0;
    while (threads < w->wanted && (size_t)threads < w->chunks &&
           pthread_create(&thread[threads], NULL, decode_some, w) == 0)
        threads++;
    decode_some(w);
    while (--threads > 0)
        pthread_join(thread[threads], NULL);
    return w->status;
}

static int keep_largest(void *user, const ls_folder_chunk *c)
{
    int *largest = user;
    *largest = c->largest > *largest ? c->largest : *largest;
    return LS_OK;
}

int ls_folder_decoder_measure(ls_folder_decoder *w, const ls_folder_listing *list, int *largest)
{
    *largest = 0;
    w->measures = true;
    const int status = ls_folder_decoder_run(w, list, keep_largest, largest);
    w->measures = false;
    return status;
}

void ls_folder_decoder_destroy(ls_folder_decoder *w)
{
    if (!w)
        return;
    for (size_t i = 0; w->slot && i < w->slots; i++) {
        ls_free(w->k->host, w->slot[i].failed);
        ls_free(w->k->host, w->slot[i].pixels);
    }
    ls_free(w->k->host, w->slot);
    pthread_cond_destroy(&w->slot_free);
    pthread_mutex_destroy(&w->lock);
    ls_free(w->k->host, w);
}

static bool has_slots(ls_folder_decoder *w)
{
    const ls_folder *k = w->k;
    w->slot = ls_alloc_array(k->host, w->slots, sizeof *w->slot);
    for (size_t i = 0; w->slot && i < w->slots; i++) {
        w->slot[i].pixels = ls_alloc_array(k->host, w->each, k->row);
        w->slot[i].failed = ls_alloc(k->host, w->each);
        if (!w->slot[i].pixels || !w->slot[i].failed)
            return false;
    }
    return w->slot;
}

/* Chooses the number of slots: four for each thread, but not more than memory or the number of
 * chunks allows. */
static void set_sizes(ls_folder_decoder *w, size_t threads)
{
    const ls_folder_listing *split = w->k->split;
    const size_t images = split[0].count > split[1].count ? split[0].count : split[1].count;
    w->each = CHUNK_BYTES / w->k->row > 0 ? CHUNK_BYTES / w->k->row : 1;
    const size_t chunks = (images + w->each - 1) / w->each;
    const size_t fit = SLOT_BYTES / (w->each * w->k->row), most = fit > 2 ? fit : 2;
    w->slots = 4 * threads < most ? 4 * threads : most;
    w->slots = w->slots < chunks ? w->slots : chunks;
    w->wanted = (int)(threads < w->slots ? threads : w->slots);
}

int ls_folder_decoder_create(ls_folder_decoder **out, ls_folder *k)
{
    const int wanted = k->p->threads ? k->p->threads : ls_allowed_cpus();
    ls_folder_decoder *w = *out = ls_alloc(k->host, sizeof *w);
    if (!w)
        return ls_folder_no_memory(k);
    w->k = k;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->slot_free, NULL);
    const int status = ls_pictures_find(&w->pictures, k->p->pictures, k->err);
    if (status)
        return status;
    set_sizes(w, wanted > LS_FOLDER_THREADS ? LS_FOLDER_THREADS : (size_t)wanted);
    return has_slots(w) ? LS_OK : ls_folder_no_memory(k);
}
