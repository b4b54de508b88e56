/* Threads take chunks of the list in turns and decode them into a ring of these, from which the caller writes them
 * in their order. */
#include "cli/pack.h"

#include "base/host.h"
#include "data/image.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 256 << 10,
    SLOT_BYTES = 256 << 20, /* of all slots, but that there are two */
    BLOCK_BYTES = 32 << 20, /* that are looked through for broken images before these end it */
    MOST_THREADS = CLI_PACK_THREADS
};

struct cli_crew {
    const cli_packing *k;
    const cli_listing *list;
    size_t each, chunks, block; /* images of a chunk; chunks of the list, and of a block */
    pthread_mutex_t lock;
    pthread_cond_t ready, room;
    size_t taken, written; /* chunks */
    bool ended;
    cli_chunk *slot;
    size_t slots;
    int wanted, threads;
    pthread_t thread[MOST_THREADS];
};

static void add_moments(cli_chunk *c, const uint8_t *samples, size_t area, int channel)
{
    while (area > 0) { /* 65,536 squares fit into 32 bits */
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

static void decode_chunk(const cli_crew *w, size_t number, ls_image_memory *kept)
{
    const cli_pack *p = w->k->p;
    const size_t area = (size_t)p->size * (size_t)p->size, first = number * w->each;
    const size_t left = w->list->count - first;
    cli_chunk *c = &w->slot[number % w->slots];
    c->entry = w->list->entry + first;
    c->count = left < w->each ? left : w->each;
    c->broken = 0;
    c->ends_block = number + 1 == w->chunks || (number + 1) % (w->block ? w->block : 1) == 0;
    memset(c->failed, 0, c->count);
    memset(c->sum, 0, sizeof c->sum);
    memset(c->squares, 0, sizeof c->squares);
    for (size_t i = 0; i < c->count; i++) {
        uint8_t *to = c->pixels + i * w->k->row;
        ls_error why = {0};
        const int status = ls_image_fit(to, p->channels, p->size, p->size, c->entry[i].path, kept,
                                        w->k->host, &why);
        for (int ch = 0; status == LS_OK && ch < p->channels; ch++)
            add_moments(c, to + (size_t)ch * area, area, ch);
        c->failed[i] = status != LS_OK;
        if (status && c->broken++ < CLI_NAMED)
            c->why[c->broken - 1] = why;
    }
}

/* → the next chunk that is to be decoded, once there is room for it; none: `chunks`. Holding the lock. */
static size_t take_chunk(cli_crew *w)
{
    while (!w->ended && w->taken < w->chunks && w->taken >= w->written + w->slots)
        pthread_cond_wait(&w->room, &w->lock);
    return w->ended || w->taken == w->chunks ? w->chunks : w->taken++;
}

static void *decode_some(void *user)
{
    cli_crew *w = user;
    ls_image_memory kept = {0};
    pthread_mutex_lock(&w->lock);
    for (size_t number; (number = take_chunk(w)) < w->chunks;) {
        pthread_mutex_unlock(&w->lock);
        decode_chunk(w, number, &kept);
        pthread_mutex_lock(&w->lock);
        w->slot[number % w->slots].ready = true;
        if (number == w->written)
            pthread_cond_signal(&w->ready);
    }
    pthread_mutex_unlock(&w->lock);
    ls_image_memory_free(&kept, w->k->host);
    return NULL;
}

/* The chunk that is to be written next. Without a thread the caller decodes it. */
cli_chunk *cli_crew_await(cli_crew *w)
{
    cli_chunk *c = &w->slot[w->written % w->slots];
    if (w->written == w->chunks)
        return NULL;
    if (w->threads == 0) {
        ls_image_memory kept = {0};
        decode_chunk(w, w->written, &kept);
        ls_image_memory_free(&kept, w->k->host);
        return c;
    }
    pthread_mutex_lock(&w->lock);
    while (!c->ready)
        pthread_cond_wait(&w->ready, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return c;
}

void cli_crew_give_back(cli_crew *w, cli_chunk *c)
{
    pthread_mutex_lock(&w->lock);
    c->ready = false;
    w->written++;
    pthread_cond_signal(&w->room);
    pthread_mutex_unlock(&w->lock);
}

void cli_crew_begin(cli_crew *w, const cli_listing *list)
{
    w->list = list;
    w->chunks = (list->count + w->each - 1) / w->each;
    w->block = BLOCK_BYTES / (w->each * w->k->row);
    w->taken = w->written = 0;
    w->ended = false;
    for (w->threads = 0; w->threads < w->wanted && (size_t)w->threads < w->chunks; w->threads++)
        if (pthread_create(&w->thread[w->threads], NULL, decode_some, w))
            break;
}

void cli_crew_end(cli_crew *w)
{
    pthread_mutex_lock(&w->lock);
    w->ended = true;
    pthread_cond_broadcast(&w->room);
    pthread_mutex_unlock(&w->lock);
    for (int t = 0; t < w->threads; t++)
        pthread_join(w->thread[t], NULL);
    for (size_t i = 0; i < w->slots; i++)
        w->slot[i].ready = false;
}

void cli_crew_free(cli_crew *w)
{
    if (!w)
        return;
    for (size_t i = 0; w->slot && i < w->slots; i++) {
        ls_free(w->k->host, w->slot[i].failed);
        ls_free(w->k->host, w->slot[i].pixels);
    }
    ls_free(w->k->host, w->slot);
    pthread_cond_destroy(&w->room);
    pthread_cond_destroy(&w->ready);
    pthread_mutex_destroy(&w->lock);
    ls_free(w->k->host, w);
}

static bool has_slots(cli_crew *w)
{
    const cli_packing *k = w->k;
    w->slot = ls_alloc_array(k->host, w->slots, sizeof *w->slot);
    for (size_t i = 0; w->slot && i < w->slots; i++) {
        w->slot[i].pixels = ls_alloc_array(k->host, w->each, k->row);
        w->slot[i].failed = ls_alloc(k->host, w->each);
        if (!w->slot[i].pixels || !w->slot[i].failed)
            return false;
    }
    return w->slot;
}

/* Four chunks to a thread, as far as memory and images go; and no threads without one. */
static void set_sizes(cli_crew *w, size_t threads)
{
    const cli_listing *split = w->k->split;
    const size_t images = split[0].count > split[1].count ? split[0].count : split[1].count;
    w->each = CHUNK_BYTES / w->k->row > 0 ? CHUNK_BYTES / w->k->row : 1;
    const size_t chunks = (images + w->each - 1) / w->each;
    const size_t fit = SLOT_BYTES / (w->each * w->k->row), most = fit > 2 ? fit : 2;
    w->slots = 4 * threads < most ? 4 * threads : most;
    w->slots = w->slots < chunks ? w->slots : chunks;
    w->wanted = (int)(threads < w->slots ? threads : w->slots);
}

int cli_crew_make(cli_crew **out, cli_packing *k)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const int wanted = k->p->threads ? k->p->threads : (int)(cpus > 0 ? cpus : 1);
    cli_crew *w = *out = ls_alloc(k->host, sizeof *w);
    if (!w)
        return cli_pack_no_memory(k);
    w->k = k;
    set_sizes(w, wanted > MOST_THREADS ? MOST_THREADS : (size_t)wanted);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->ready, NULL);
    pthread_cond_init(&w->room, NULL);
    return has_slots(w) ? LS_OK : cli_pack_no_memory(k);
}
