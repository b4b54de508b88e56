/* SPDX-License-Identifier: MIT */
#include "store/store_fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void must(int rc, const ls_error *err)
{
    if (rc != LS_OK)
        fail_msg("status %d: %s", rc, err->text);
}

void refused(int rc, int want, const ls_error *err, const char *words)
{
    if (rc != want || !strstr(err->text, words))
        fail_msg("expected status %d and \"%s\", found %d: %s", want, words, rc, err->text);
    assert_int_equal(err->status, want);
}

int exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

char *read_whole(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *bytes = malloc(1 << 20);
    assert_non_null(bytes);
    size_t n = fread(bytes, 1, (1 << 20) - 1, f);
    fclose(f);
    bytes[n] = '\0';
    if (size)
        *size = n;
    return bytes;
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

void assert_names(const char *directory, const char *want)
{
    char name[32][256];
    char found[32 * 256] = "";
    size_t count = 0;
    DIR *stream = opendir(directory);
    assert_non_null(stream);
    for (const struct dirent *e; (e = readdir(stream)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            assert_true(count < 32);
            strcpy(name[count++], e->d_name);
        }
    closedir(stream);
    qsort(name, count, sizeof name[0], compare);
    for (size_t i = 0; i < count; i++) {
        strcat(found, i ? " " : "");
        strcat(found, name[i]);
    }
    assert_string_equal(found, want);
}

void flip(const char *path, long offset)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_not_equal(c, EOF);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    assert_int_not_equal(fputc(c ^ 1, f), EOF);
    assert_int_equal(fclose(f), 0);
}

static void *count_alloc(void *user, size_t bytes, size_t align)
{
    counting *c = user;
    void *memory = NULL;
    if (++c->allocations == c->fail_at || posix_memalign(&memory, align, bytes) != 0)
        return NULL;
    c->live++;
    return memory;
}

static void count_free(void *user, void *memory)
{
    ((counting *)user)->live--;
    free(memory);
}

void counting_init(counting *c)
{
    memset(c, 0, sizeof *c);
    c->host = (ls_host){sizeof c->host, count_alloc, count_free, NULL, c};
}
