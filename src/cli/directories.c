/* SPDX-License-Identifier: MIT */
/* Finds the directories of data and of the cache from the environment. */
#include "cli/cli.h"

#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Returns whether a home directory is usable. The home directory of a service's user is often /,
 * where the program must not create files. */
static bool is_home(const char *home)
{
    return home && home[0] == '/' && home[1] != '\0';
}

/* Composes the path of the directory `name` below the directory that the environment variable
 * `variable` (XDG) names, or, if it is not set, below $HOME/`in_home`. The path is short enough
 * that a file name can be appended. Returns false if neither `variable` nor HOME is usable. */
static bool find_place(char out[4096], const char *variable, const char *in_home, const char *name)
{
    const char *xdg = getenv(variable), *home = getenv("HOME");
    int length = 0;
    if (xdg && xdg[0] == '/')
        length = snprintf(out, 4096, "%s/%s", xdg, name);
    else if (is_home(home))
        length = snprintf(out, 4096, "%s/%s/%s", home, in_home, name);
    return length > 0 && length < 4000;
}

const char *cli_find_cache_dir(char out[4096])
{
    return find_place(out, "XDG_CACHE_HOME", ".cache", "lockstep") ? out : NULL;
}

/* ---- a config that is not a regular file ----------------------------------------------------- */

static bool is_stream(const char *path)
{
    struct stat st;
    if (strcmp(path, "-") == 0)
        return true;
    return stat(path, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

/* Reads a stream to its end and returns the text, or NULL if it cannot be read. A text that is
 * longer than a config may be is truncated; it is then invalid JSON, and its reader reports
 * that. */
static char *read_stream(const char *path)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    size_t used = 0, capacity = 0;
    char *text = NULL;
    while (f && !feof(f) && !ferror(f) && used <= LS_JSON_BYTES) {
        if (used + 1 >= capacity) {
            char *larger = realloc(text, capacity = 2 * capacity + 65536);
            if (!larger)
                break;
            text = larger;
        }
        used += fread(text + used, 1, capacity - used - 1, f);
    }
    const bool whole = f && feof(f) && !ferror(f);
    if (f && f != stdin)
        fclose(f);
    if (whole && text)
        text[used] = '\0';
    else {
        free(text);
        text = NULL;
    }
    return text;
}

/* Text of a config that came from a pipe. It is kept until the program ends, because it cannot be
 * read again, and a sweep needs the config for every run. This global belongs to the program, not
 * to the library. */
static struct {
    const char *path;
    char *text;
} stream;

static void take_stream(ls_trainer_options *o)
{
    if (!o->config_path || !is_stream(o->config_path))
        return;
    if (!stream.text) {
        stream.path = o->config_path;
        stream.text = read_stream(o->config_path);
    }
    if (!stream.text || strcmp(stream.path, o->config_path) != 0)
        return; /* reading the config reports the error */
    o->config_text = stream.text;
    o->config_path = NULL;
}

enum { CACHE_GIB = 20 };

/* Returns the largest total size of the packed image files in the cache, in bytes:
 * $LOCKSTEP_CACHE_GIB, in GiB, by default CACHE_GIB. */
static uint64_t cache_bytes(void)
{
    const char *text = getenv("LOCKSTEP_CACHE_GIB");
    char *end = NULL;
    const double gib = text && text[0] ? strtod(text, &end) : CACHE_GIB;
    const bool good = !text || !text[0] || (*end == '\0' && gib >= 0 && gib <= 1e6);
    const double bytes = (good ? gib : CACHE_GIB) * 0x1p30;
    return bytes < 1 ? 1 : (uint64_t)bytes; /* 0 stands for the library's default */
}

ls_trainer_options cli_options(cli_directories *places, const char *config, const cli_list *set,
                               const ls_registry *registry, bool quiet, const ls_host *host)
{
    const char *own = getenv("LOCKSTEP_DATA");
    int count = 0;
    if (own && own[0])
        places->data[count++] = own;
    if (find_place(places->xdg, "XDG_DATA_HOME", ".local/share", "datasets"))
        places->data[count++] = places->xdg;
    places->data[count++] = "/usr/share/datasets";
    ls_trainer_options options = {
        .size = sizeof(ls_trainer_options),
        .config_path = config,
        .set = set->item,
        .set_count = set->count,
        .data_dirs = places->data,
        .data_dir_count = count,
        .registry = registry,
        .cache_dir = cli_find_cache_dir(places->cache),
        .cache_bytes = cache_bytes(),
        .sys = &places->sys,
        .host = host,
    };
    cli_watch_folder(&places->folder, quiet);
    places->sys = (ls_trainer_sys){.size = sizeof places->sys,
                                   .pictures = lockstep_pictures(),
                                   .folder_watch = &places->folder.watch,
                                   .program = cli_program()};
    take_stream(&options);
    return options;
}
