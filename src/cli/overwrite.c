/* SPDX-License-Identifier: MIT */
/* No command writes a file that it reads (overwrite.h). Files are compared by device and inode, so
 * that another spelling of the path, or a link, is recognised. */
#define _DEFAULT_SOURCE /* realpath */
#include "cli/overwrite.h"

#include "base/host.h"
#include "json/json.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Returns whether `path` is an existing regular file, and describes it in *st. */
static bool is_regular(const char *path, struct stat *st)
{
    return path && stat(path, st) == 0 && S_ISREG(st->st_mode);
}

/* Returns whether an output may replace a file in a directory that is read: the name has the ending
 * of an output, and is not that of a file in which a run keeps what it knows. */
static bool is_output(const char *directory, const char *path)
{
    static const char *const endings[] = {".csv", ".jsonl", ".json",       ".html",
                                          ".svg", ".onnx",  ".safetensors"};
    static const char *const kept[] = {"/config.json", "/metrics.jsonl", "/notes.jsonl",
                                       "/weights.safetensors"};
    char records[LS_PATH_BYTES];
    struct stat st;
    const bool run = stat(ls_path_join(records, directory, "metrics.jsonl"), &st) == 0;
    bool out = false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        out |= ls_path_ends_with(path, endings[i]);
    for (size_t i = 0; i < sizeof kept / sizeof *kept && run; i++)
        out &= !ls_path_ends_with(path, kept[i]);
    return out;
}

/* Returns whether the file `to` is in the directory or below it, and is one that is read. */
static bool is_read_in(const char *directory, const char *to)
{
    char *const above = realpath(directory, NULL), *const file = realpath(to, NULL);
    const size_t length = above ? strlen(above) : 0;
    const bool in = above && file && strncmp(file, above, length) == 0 && file[length] == '/' &&
                    !is_output(above, file);
    free(above);
    free(file);
    return in;
}

bool cli_is_read(const char *to, const char *input)
{
    struct stat out, in;
    if (!input || !is_regular(to, &out) || stat(input, &in) != 0)
        return false;
    if (S_ISDIR(in.st_mode))
        return is_read_in(input, to);
    return out.st_dev == in.st_dev && out.st_ino == in.st_ino;
}

int cli_spare(const char *verb, const char *option, const char *to, const char *input)
{
    char text[2 * LS_PATH_BYTES + 200];
    if (!cli_is_read(to, input))
        return 0;
    const char *const inside = strcmp(to, input) == 0 ? "" : input;
    snprintf(text, sizeof text,
             "--%s %s: this command reads that file%s%s%s, and would replace it; name another file",
             option, to, inside[0] ? " (as " : "", inside, inside[0] ? ")" : "");
    return cli_usage(verb, text, "");
}

/* Does the same for the texts in a config that name a file: data.path, init.weights and so on. */
static int spare_texts(const char *verb, const char *option, const char *to, const cJSON *node)
{
    struct stat st;
    const cJSON *item;
    const char *text = cJSON_GetStringValue(node);
    int code = 0;
    if (text && stat(text, &st) == 0)
        code = S_ISREG(st.st_mode) || (node->string && strstr(node->string, "path"))
                   ? cli_spare(verb, option, to, text)
                   : 0;
    cJSON_ArrayForEach(item, node)
    {
        code = code ? code : spare_texts(verb, option, to, item);
    }
    return code;
}

int cli_spare_config(const char *verb, const char *option, const char *to,
                     const ls_trainer_options *options)
{
    struct stat st;
    char *text = NULL;
    ls_json *doc = NULL;
    int code = 0;
    if (!is_regular(to, &st))
        return 0;
    if (ls_config_resolve(&text, options, NULL) == LS_OK && /* else the run says what is wrong */
        ls_json_parse(&doc, "the config", text, strlen(text), options->host, NULL) == LS_OK)
        code = spare_texts(verb, option, to, ls_json_root(doc));
    ls_json_destroy(doc);
    ls_text_free(text);
    return code;
}
