/* Saves bundles with known contents, and says what is left of them: the subject of store_faults.py.
 *
 *     save_driver save DIRECTORY GENERATION same|numbered
 *         saves one bundle, called "only" or "step-GENERATION", keeps the newest two, and replaces
 *         the file "note". Prints "saved" once the bundle is committed and "done" at the end; exit
 *         status 1 and a message if anything failed.
 *     save_driver check DIRECTORY
 *         prints "GENERATION BROKEN NOTE HIDDEN": of the newest whole bundle (0: none), the number
 *         of broken ones, the note's generation (0: none, −1: damaged), and the number of names
 *         in the directory that should not be there. Bundles whose contents verify, but are not
 *         what a save writes, are counted as broken.
 *     save_driver recover DIRECTORY GENERATION same|numbered
 *         check, save, check: four numbers, "1" or "0" for the save, four numbers.
 */
#include "store/bundle.h"

#include "base/host.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHTS = 20000, PIECES = 3, PATH = 4096 };

/* One generation differs from another in every file. */
static void fill(char *out, size_t count, int generation)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (char)(i * 31 + (size_t)generation * 7 + (i >> 8));
}

static int print_text(char out[64], int generation)
{
    return snprintf(out, 64, "{\"generation\": %d}\n", generation);
}

static const char *note_path(char out[PATH], const char *directory)
{
    snprintf(out, PATH, "%s/note", directory);
    return out;
}

/* ---- saving --------------------------------------------------------------------------------- */

static int save_weights(ls_bundle *b, int generation, ls_error *err)
{
    static char bytes[WEIGHTS];
    ls_file_writer *w;
    size_t piece = WEIGHTS / PIECES + 1;
    fill(bytes, sizeof bytes, generation);
    int rc = ls_bundle_open_file(&w, b, "weights.bin", err);
    for (size_t at = 0; at < WEIGHTS && rc == LS_OK; at += piece)
        rc = ls_file_writer_write(w, bytes + at, WEIGHTS - at < piece ? WEIGHTS - at : piece, err);
    return rc;
}

static int save_bundle(const char *directory, int generation, const char *naming, ls_error *err)
{
    char name[64] = "only";
    char text[64];
    ls_bundle *b;
    int length = print_text(text, generation);
    if (strcmp(naming, "numbered") == 0)
        snprintf(name, sizeof name, "step-%d", generation);
    int rc = ls_bundle_begin(&b, directory, name, NULL, err);
    if (rc == LS_OK)
        rc = ls_bundle_put(b, "state.json", text, (size_t)length, err);
    if (rc == LS_OK)
        rc = save_weights(b, generation, err);
    if (rc == LS_OK)
        rc = ls_bundle_commit(b, err);
    ls_bundle_destroy(b);
    return rc;
}

static int save(const char *directory, int generation, const char *naming, int talk, ls_error *err)
{
    char text[64], path[PATH];
    int length = print_text(text, generation);
    int rc = save_bundle(directory, generation, naming, err);
    if (rc == LS_OK && talk) {
        puts("saved");
        fflush(stdout);
    }
    if (rc == LS_OK)
        rc = ls_bundle_prune(directory, 2, NULL, err);
    if (rc == LS_OK)
        rc = ls_replace_file(note_path(path, directory), text, (size_t)length, NULL, err);
    if (rc == LS_OK && talk)
        puts("done");
    return rc;
}

/* ---- checking ------------------------------------------------------------------------------- */

/* The generation whose contents the bundle has, or −1. */
static int generation_of(const ls_bundle_reader *r)
{
    static char want[WEIGHTS];
    char text[64];
    char *state, *weights = NULL;
    size_t n, m = 0;
    int generation = -1;
    if (ls_bundle_files(r) != 2 || ls_bundle_read(&state, &n, r, "state.json", 1000, NULL) != LS_OK)
        return -1;
    if (sscanf(state, "{\"generation\": %d}", &generation) == 1 &&
        ls_bundle_read(&weights, &m, r, "weights.bin", 1 << 20, NULL) == LS_OK) {
        fill(want, sizeof want, generation);
        if ((size_t)print_text(text, generation) != n || memcmp(text, state, n) != 0 ||
            m != WEIGHTS || memcmp(weights, want, m) != 0)
            generation = -1;
    }
    ls_free(NULL, state);
    ls_free(NULL, weights);
    return generation;
}

static void count_broken(void *context, const char *name, const ls_error *why)
{
    ++*(int *)context;
    fprintf(stderr, "%s: %s\n", name, why->text);
}

static int note_generation(const char *directory)
{
    char path[PATH], text[64], want[64];
    int generation = -1;
    FILE *f = fopen(note_path(path, directory), "rb");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    if (sscanf(text, "{\"generation\": %d}", &generation) != 1 ||
        (size_t)print_text(want, generation) != n || memcmp(text, want, n) != 0)
        return -1;
    return generation;
}

/* Names that are neither the note nor a bundle's. */
static int count_hidden(const char *directory)
{
    int count = 0;
    DIR *stream = opendir(directory);
    if (!stream)
        return -1;
    for (const struct dirent *e; (e = readdir(stream)) != NULL;) {
        const char *name = e->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, "note") != 0 &&
            strcmp(name, "only") != 0 &&
            !(strncmp(name, "step-", 5) == 0 && strspn(name + 5, "0123456789") == strlen(name + 5)))
            count++;
    }
    closedir(stream);
    return count;
}

static void check(const char *directory)
{
    ls_bundle_names names;
    int newest = 0;
    int broken = 0;
    if (ls_bundle_list(&names, directory, NULL, NULL) != LS_OK)
        broken = 1;
    for (size_t i = names.count; i > 0; i--) {
        char path[PATH];
        ls_bundle_reader *r;
        ls_error why = {0};
        snprintf(path, sizeof path, "%s/%s", directory, names.name[i - 1]);
        int rc = ls_bundle_open(&r, path, NULL, &why);
        int generation = rc == LS_OK ? generation_of(r) : -1;
        if (generation < 0)
            count_broken(&broken, names.name[i - 1], &why);
        else if (newest == 0)
            newest = generation;
        ls_bundle_close(r);
    }
    ls_bundle_names_fini(&names);
    printf("%d %d %d %d\n", newest, broken, note_generation(directory), count_hidden(directory));
}

int main(int argc, char **argv)
{
    ls_error err = {0};
    if (argc == 3 && strcmp(argv[1], "check") == 0) {
        check(argv[2]);
        return 0;
    }
    if (argc != 5)
        return 2;
    if (strcmp(argv[1], "recover") == 0) {
        check(argv[2]);
        int rc = save(argv[2], atoi(argv[3]), argv[4], 0, &err);
        printf("%d\n", rc == LS_OK);
        if (rc != LS_OK)
            fprintf(stderr, "%s\n", err.text);
        check(argv[2]);
        return 0;
    }
    if (save(argv[2], atoi(argv[3]), argv[4], 1, &err) == LS_OK)
        return 0;
    fprintf(stderr, "%s\n", err.text);
    return 1;
}
