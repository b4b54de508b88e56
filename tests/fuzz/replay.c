/* SPDX-License-Identifier: MIT */
/* A plain driver for a fuzz target, for builds without libFuzzer: runs the target on every file of
 * a corpus and on deterministic mutations of it.
 *
 *     fuzz_json_replay [-n MUTANTS] [-s SEED] [-k FILE] CORPUS...
 *
 * CORPUS is a file or a folder of files. -n: number of mutants of each file (default 0). -k: file
 * in which to keep an input on which the target aborts. Exit codes: 0, 1 (the target aborted), 64
 * (usage), 66 (no corpus). The inputs depend only on the corpus, MUTANTS and SEED. */
#include "base/rng.h"
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_FILES = 1000, MOST_BYTES = 1 << 16, ROOM = MOST_BYTES + 256, MOST_EDITS = 4 };

typedef struct seed_file {
    char path[512];
    uint8_t *data;
    size_t size;
} seed_file;

/* State that the handler of an abort reports. */
static struct {
    const char *keep;
    const char *path;
    const uint8_t *data;
    size_t size;
    unsigned long executions;
} now;

/* Only what a signal handler may call. */
static void put(int fd, const void *bytes, size_t count)
{
    if (write(fd, bytes, count) != (ssize_t)count)
        _exit(2);
}

static void put_text(const char *text)
{
    size_t n = 0;
    while (text[n])
        n++;
    put(STDERR_FILENO, text, n);
}

static void put_number(unsigned long value)
{
    char digits[24];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    put(STDERR_FILENO, digits + at, sizeof digits - at);
}

static void report_abort(int signal)
{
    (void)signal;
    put_text(now.path);
    put_text(": found after ");
    put_number(now.executions);
    put_text(" executions\n");
    if (now.keep) {
        int fd = open(now.keep, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        put(fd, now.data, now.size);
    }
    _exit(1);
}

/* The target gets memory of exactly that size, so that a sanitizer sees a byte too many. */
static void run_once(const char *path, const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size > 0 ? size : 1);
    fuzz_check(exact != NULL, "there is memory for an input");
    memcpy(exact, data, size);
    now.path = path;
    now.data = exact;
    now.size = size;
    now.executions++;
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

/* ---- the corpus ---- */

static seed_file *files;
static int file_count;

static void add_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(MOST_BYTES);
    if (!f || !data || file_count == MOST_FILES || strlen(path) >= sizeof files->path) {
        fprintf(stderr, "replay: %s: cannot be read\n", path);
        exit(66);
    }
    seed_file *s = &files[file_count++];
    snprintf(s->path, sizeof s->path, "%s", path);
    s->data = data;
    s->size = fread(data, 1, MOST_BYTES, f);
    fclose(f);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* In the order of the names, which is the same everywhere. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void add_path(const char *path)
{
    struct stat st;
    struct dirent **entries;
    char name[512];
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        add_file(path);
        return;
    }
    int n = scandir(path, &entries, is_visible, by_name);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        add_file(name);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

/* ---- mutations ---- */

typedef struct source {
    uint64_t seed;
    uint32_t file;
    uint64_t index;
    uint32_t word[4];
    int left;
} source;

static uint32_t draw(source *s, size_t below)
{
    if (s->left == 0) {
        ls_rng_words(s->word, s->seed, 1, s->file, s->index++);
        s->left = 4;
    }
    return below > 0 ? s->word[--s->left] % (uint32_t)below : 0;
}

static void remove_bytes(uint8_t *data, size_t *size, size_t at, size_t count)
{
    memmove(data + at, data + at + count, *size - at - count);
    *size -= count;
}

static void insert_bytes(uint8_t *data, size_t *size, size_t at, const uint8_t *from, size_t count)
{
    if (*size + count > MOST_BYTES)
        return;
    memmove(data + at + count, data + at, *size - at);
    memcpy(data + at, from, count);
    *size += count;
}

/* Headers stand at the beginning, so half of the changes do. */
static size_t draw_position(source *s, size_t size)
{
    size_t near = 64;
    return draw(s, size > near && draw(s, 2) ? near : size);
}

/* One small change, or the end of the input cut off. */
static void mutate(uint8_t *data, size_t *size, source *s)
{
    static const uint8_t telling[] = {0,   1,   0x7F, 0x80, 0xFF, '"', '{', '}', '[', ']',
                                      ':', ',', '-',  '.',  'e',  '0', '9', '$', '\n'};
    uint8_t piece[64];
    size_t at = draw_position(s, *size);
    size_t count = 1 + draw(s, sizeof piece);
    if (*size == 0 || draw(s, 8) == 0) {
        piece[0] = telling[draw(s, sizeof telling)];
        insert_bytes(data, size, at, piece, 1);
        return;
    }
    if (count > *size - at)
        count = *size - at;
    switch (draw(s, 7)) {
    case 0: data[at] ^= (uint8_t)(1u << draw(s, 8)); break;
    case 1: data[at] = telling[draw(s, sizeof telling)]; break;
    case 2: data[at] = (uint8_t)(data[at] + draw(s, 3) - 1); break;
    case 3: remove_bytes(data, size, at, count); break;
    case 4: *size = at; break;
    case 5: /* repeat a piece directly after itself */
        memcpy(piece, data + at, count);
        insert_bytes(data, size, at + count, piece, count);
        break;
    default: { /* a piece of another file of the corpus */
        const seed_file *other = &files[draw(s, (size_t)file_count)];
        size_t from = draw(s, other->size);
        if (count > other->size - from)
            count = other->size - from;
        insert_bytes(data, size, at, other->data + from, count);
    }
    }
}

static void run_mutant(int file, source *s)
{
    static uint8_t data[ROOM];
    size_t size = files[file].size;
    memcpy(data, files[file].data, size);
    for (uint32_t edits = 1 + draw(s, MOST_EDITS); edits > 0; edits--)
        mutate(data, &size, s);
    run_once(files[file].path, data, size);
}

/* All files as they are, then one mutant of each in turn. */
static void run_all(unsigned long mutants, uint64_t seed)
{
    static source sources[MOST_FILES];
    for (int i = 0; i < file_count; i++) {
        sources[i] = (source){.seed = seed, .file = (uint32_t)i};
        run_once(files[i].path, files[i].data, files[i].size);
    }
    for (unsigned long m = 0; m < mutants; m++)
        for (int i = 0; i < file_count; i++)
            run_mutant(i, &sources[i]);
}

int main(int argc, char **argv)
{
    unsigned long mutants = 0;
    uint64_t seed = 1;
    int option;
    while ((option = getopt(argc, argv, "n:s:k:")) != -1) {
        switch (option) {
        case 'n': mutants = strtoul(optarg, NULL, 10); break;
        case 's': seed = strtoull(optarg, NULL, 10); break;
        case 'k': now.keep = optarg; break;
        default: return 64;
        }
    }
    files = calloc(MOST_FILES, sizeof *files);
    fuzz_check(files != NULL, "there is memory for the corpus");
    for (int i = optind; i < argc; i++)
        add_path(argv[i]);
    if (file_count == 0) {
        fprintf(stderr, "replay: no corpus\n");
        return 66;
    }
    signal(SIGABRT, report_abort);
    run_all(mutants, seed);
    printf("%lu executions of %d files\n", now.executions, file_count);
    for (int i = 0; i < file_count; i++)
        free(files[i].data);
    free(files);
    return 0;
}
