/* SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700 /* nftw */
#include "data/scratch.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

void scratch_begin(scratch *s)
{
    const char *parent = getenv("TMPDIR");
    memset(s, 0, sizeof *s);
    snprintf(s->directory, sizeof s->directory, "%s/lockstep-test-XXXXXX",
             parent ? parent : "/tmp");
    assert_non_null(mkdtemp(s->directory));
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

void scratch_end(scratch *s)
{
    assert_int_equal(nftw(s->directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}

const char *scratch_path(scratch *s, const char *name)
{
    char *path = s->path[s->next++ % 16];
    size_t n = strlen(s->directory);
    assert_true(n + 1 + strlen(name) < sizeof s->path[0]);
    memcpy(path, s->directory, n);
    path[n] = '/';
    strcpy(path + n + 1, name);
    return path;
}

void scratch_directory(scratch *s, const char *name)
{
    assert_int_equal(mkdir(scratch_path(s, name), 0777), 0);
}

void scratch_file(scratch *s, const char *name, const void *bytes, size_t count)
{
    FILE *f = fopen(scratch_path(s, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

void scratch_gzip(scratch *s, const char *name, const void *bytes, size_t count)
{
    gzFile f = gzopen(scratch_path(s, name), "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, bytes, (unsigned)count), count);
    assert_int_equal(gzclose(f), Z_OK);
}

void scratch_loop(scratch *s, const char *name)
{
    const char *path = scratch_path(s, name);
    assert_int_equal(symlink(path, path), 0);
}

void scratch_limit(unsigned long bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes && bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

int scratch_setup(void **state)
{
    scratch *s = malloc(sizeof *s);
    assert_non_null(s);
    scratch_begin(s);
    *state = s;
    return 0;
}

int scratch_teardown(void **state)
{
    scratch_end(*state);
    free(*state);
    return 0;
}
