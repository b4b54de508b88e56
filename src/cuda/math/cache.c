/* SPDX-License-Identifier: MIT */
/* Choices of engines (math_lib.h), in memory and on disk.
 *
 * The list in memory contains either the choices that this device has made, which the library sends
 * to other machines, or the choices that it has received from another machine.
 *
 * On disk each choice is a file, named by a hash of its key. The file's first line is the key, the
 * second line is a hash of the rest, and the rest is the choice. A file is either complete or
 * absent. All workers and all later runs use the first choice that was made. If cuDNN no longer
 * accepts it, the next choice replaces it. */
#include "base/plain_file.h"
#include "cuda/math/inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 512, MOST_BYTES = 1 << 20 };

/* Returns the FNV-1a hash of a text. */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

static int path_of(char *out, const ls_math *math, const char *key)
{
    int length = snprintf(out, PATH_BYTES, "%s/%016llx.plan", math->desc.cache_dir,
                          (unsigned long long)hash_of(key));
    return length > 0 && length < PATH_BYTES - 32;
}

/* ---- in memory ------------------------------------------------------------------------------ */

const char *ls_math_chosen(const ls_math *math, const char *key)
{
    const ls_math_choice *c = math->choices;
    while (c && strcmp(c->key, key) != 0)
        c = c->next;
    return c ? c->text : NULL;
}

static int cache_add(ls_math *math, const char *key, size_t key_bytes, const char *text,
                     size_t text_bytes, ls_error *err)
{
    ls_math_choice *c = ls_alloc(math->desc.host, sizeof *c + key_bytes + text_bytes + 2);
    if (!c)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a plan", math->desc.device);
    memcpy(c->key, key, key_bytes); /* the memory after it is zeroed */
    memcpy(c->key + key_bytes + 1, text, text_bytes);
    c->text = c->key + key_bytes + 1;
    c->next = math->choices;
    math->choices = c;
    return LS_OK;
}

int ls_math_note(ls_math *math, const char *key, const char *text, ls_error *err)
{
    return !text || ls_math_chosen(math, key)
               ? LS_OK
               : cache_add(math, key, strlen(key), text, strlen(text), err);
}

void ls_math_forget(ls_math *math)
{
    while (math->choices) {
        ls_math_choice *c = math->choices;
        math->choices = c->next;
        ls_free(math->desc.host, c);
    }
}

/* Writes each choice as a line with the lengths of key and text, followed by key and text. */
size_t ls_math_choices(const ls_math *math, char *out, size_t size)
{
    size_t used = 0;
    for (const ls_math_choice *c = math->choices; c; c = c->next) {
        const size_t left = used < size ? size - used : 0;
        used += (size_t)snprintf(left ? out + used : NULL, left, "%zu %zu\n%s%s", strlen(c->key),
                                 strlen(c->text), c->key, c->text);
    }
    if (!math->choices && size > 0)
        out[0] = '\0';
    return used;
}

int ls_math_choose(ls_math *math, const char *text, ls_error *err)
{
    math->given = true;
    for (size_t left = strlen(text); left > 0;) {
        size_t key = 0, value = 0;
        int head = 0;
        if (sscanf(text, "%5zu %7zu%*1[\n]%n", &key, &value, &head) != 2 || head == 0 ||
            key + value > left - (size_t)head)
            return ls_fail(err, LS_EDATA, "%s: damaged plans of another host", math->desc.device);
        int status = cache_add(math, text + head, key, text + head + key, value, err);
        if (status)
            return status;
        text += (size_t)head + key + value;
        left -= (size_t)head + key + value;
    }
    return LS_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Returns the text of the file, or NULL. The text is terminated, because the memory is zeroed and
 * larger than the largest file. */
static void *read_file(const ls_math *math, const char *path)
{
    size_t room = MOST_BYTES, count;
    void *text = ls_alloc(math->desc.host, room);
    if (text && ls_read_plain_file_into(&text, &room, &count, AT_FDCWD, path, "a plan", LS_EDATA,
                                        MOST_BYTES - 1, math->desc.host, NULL) == LS_OK)
        return text;
    ls_free(math->desc.host, text);
    return NULL;
}

/* Returns where the choice begins in a file's text. Returns NULL if the file is damaged or has
 * another key. */
static char *choice_in(char *text, const char *key)
{
    const size_t length = strlen(key);
    unsigned long long hash = 0;
    if (strncmp(text, key, length) != 0 || text[length] != '\n' ||
        sscanf(text + length + 1, "%16llx", &hash) != 1)
        return NULL;
    char *choice = strchr(text + length + 1, '\n');
    return choice && hash_of(choice + 1) == hash ? choice + 1 : NULL;
}

char *ls_math_cache_get(const ls_math *math, const char *key)
{
    char path[PATH_BYTES];
    if (!math->desc.cache_dir || !path_of(path, math, key))
        return NULL;
    char *text = read_file(math, path);
    char *choice = text ? choice_in(text, key) : NULL;
    if (!choice) {
        ls_free(math->desc.host, text);
        return NULL;
    }
    memmove(text, choice, strlen(choice) + 1);
    return text;
}

/* ---- writing -------------------------------------------------------------------------------- */

static int write_file(const char *path, const char *key, const char *text)
{
    FILE *file = fopen(path, "wxe");
    if (!file)
        return 0;
    int good = fprintf(file, "%s\n%016llx\n%s", key, (unsigned long long)hash_of(text), text) > 0 &&
               fflush(file) == 0 && fsync(fileno(file)) == 0;
    return fclose(file) == 0 && good;
}

/* Creates the directory and its parent, for example ~/.cache/lockstep and ~/.cache. Failures are
 * ignored, because the caller then fails to write the file and logs that. */
static void make_directory(const char *path)
{
    char above[PATH_BYTES];
    int length = snprintf(above, sizeof above, "%s", path);
    char *slash = length > 0 && length < PATH_BYTES ? strrchr(above, '/') : NULL;
    if (slash && slash > above) {
        *slash = '\0';
        (void)mkdir(above, 0700);
    }
    (void)mkdir(path, 0700);
}

/* Locks the directory, so that processes change files one after another, and each process sees the
 * result of the previous change. Returns a descriptor; closing it unlocks the directory. Returns a
 * negative number if the directory could not be locked. */
static int lock_changes(const ls_math *math)
{
    const int lock = open(math->desc.cache_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock >= 0 && flock(lock, LOCK_EX) == 0)
        return lock;
    if (lock >= 0)
        close(lock);
    return -1;
}

/* Removes the file of a choice that cuDNN has refused, unless another process has replaced the
 * choice in the meantime. */
void ls_math_cache_drop(const ls_math *math, const char *key, const char *text)
{
    char path[PATH_BYTES];
    if (!math->desc.cache_dir || !path_of(path, math, key))
        return;
    ls_log(math->desc.host, LS_LOG_WARNING,
           "%s: cuDNN no longer accepts the plan in %.300s; it is replaced by a new one",
           math->desc.device, path);
    const int lock = lock_changes(math);
    char *now = lock >= 0 ? ls_math_cache_get(math, key) : NULL;
    if (now && strcmp(now, text) == 0)
        (void)unlink(path);
    ls_free(math->desc.host, now);
    if (lock >= 0)
        close(lock);
}

/* Renames the file `draft` to its final name, unless a valid file with that name exists. */
static void install(const ls_math *math, const char *key, const char *draft, const char *path)
{
    const int lock = lock_changes(math);
    char *now = lock >= 0 ? ls_math_cache_get(math, key) : NULL;
    if (lock < 0)
        (void)link(draft, path);
    else if (!now)
        (void)rename(draft, path);
    ls_free(math->desc.host, now);
    if (lock >= 0)
        close(lock);
}

void ls_math_cache_remark(const ls_math *math, const char *key, const char *text)
{
    char path[PATH_BYTES], draft[PATH_BYTES + 64];
    if (!math->desc.cache_dir || !path_of(path, math, key))
        return;
    snprintf(draft, sizeof draft, "%s.%ld.%p", path, (long)getpid(), (const void *)math);
    snprintf(strrchr(path, '.'), sizeof ".tried", ".tried");
    FILE *file = fopen(draft, "we");
    if (!file)
        return;
    const int good = fprintf(file, "%s\n%s", key, text) > 0;
    if (fclose(file) != 0 || !good || rename(draft, path) != 0)
        (void)unlink(draft);
}

void ls_math_cache_put(const ls_math *math, const char *key, const char *text)
{
    char path[PATH_BYTES], draft[PATH_BYTES + 64];
    if (!math->desc.cache_dir || !path_of(path, math, key))
        return;
    make_directory(math->desc.cache_dir);
    snprintf(draft, sizeof draft, "%s.%ld.%p", path, (long)getpid(), (const void *)math);
    if (write_file(draft, key, text))
        install(math, key, draft, path);
    else
        ls_log(math->desc.host, LS_LOG_WARNING, "%s: cannot write %.300s", math->desc.device,
               draft);
    (void)unlink(draft);
}
