/* SPDX-License-Identifier: MIT */
/* Writes the keys that the hashes of a run's states contain (ls_config_write_hashed). */
#include "config/config.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 80 }; /* size of a key's dotted name in bytes, the zero included */

static void name_of(char out[NAME], const ls_config_key *row)
{
    snprintf(out, NAME, "%s%s%s", row->object, *row->object ? "." : "", row->key);
}

/* Returns whether a config that is the same apart from this key, and has for it the member of
 * `object`, or no such key if `object` is empty, is written as `text`. `w`: a buffer. */
static bool is_written_alike(ls_json_writer *w, const ls_config *config, const ls_config_key *row,
                             const cJSON *object, const char *text)
{
    ls_config other = *config;
    ls_error unread;
    ls_fields f;
    other.written = false;
    ls_fields_begin(&f, NULL, object, row->object, &unread);
    ls_config_read_key(&other, &f, row);
    const char *found = f.status == LS_OK && !f.missing ? ls_config_key_text(w, &other, row) : NULL;
    return found && strcmp(found, text) == 0;
}

/* Returns `whole`, {"KEY": {…}}, without the members of the inner object without which the config
 * would be the same; frees `whole`. NULL: out of memory. */
static cJSON *reduce(cJSON *whole, ls_json_writer *w, const ls_config *config,
                     const ls_config_key *row, const char *text)
{
    const cJSON *inner = whole ? whole->child : NULL;
    for (int i = 0; i < cJSON_GetArraySize(inner);) {
        cJSON *less = cJSON_Duplicate(whole, true);
        if (!less)
            break;
        cJSON_DeleteItemFromArray(less->child, i);
        const bool alike = is_written_alike(w, config, row, less, text);
        cJSON_Delete(alike ? whole : less);
        whole = alike ? less : whole;
        inner = whole->child;
        i += !alike;
    }
    return whole;
}

static void write_key(ls_json_writer *out, const ls_config *config, const ls_config_key *row)
{
    static const cJSON nothing = {.type = cJSON_Object};
    char name[NAME];
    ls_json_writer mine, other;
    ls_json *doc = NULL;
    ls_json_writer_init(&mine, 0, config->host);
    ls_json_writer_init(&other, 0, config->host);
    const char *text = ls_config_key_text(&mine, config, row);
    name_of(name, row);
    if (!text || ls_json_parse(&doc, name, text, strlen(text), config->host, NULL) != LS_OK) {
        out->out.failed = true;
    } else if (!is_written_alike(&other, config, row, &nothing, text)) {
        cJSON *kept = reduce(cJSON_Duplicate(ls_json_root(doc), true), &other, config, row, text);
        if (kept && kept->child)
            ls_json_put_node(out, name, kept->child);
        out->out.failed |= !kept;
        cJSON_Delete(kept);
    }
    ls_json_destroy(doc);
    ls_json_writer_fini(&other);
    ls_json_writer_fini(&mine);
}

/* Returns the row of the recipe on which steps depend whose name follows `last` most closely;
 * NULL: there is none. Its name becomes `last`. */
static const ls_config_key *next_row(char last[NAME], const ls_config_key *rows,
                                     const ls_config *config)
{
    const ls_config_key *next = NULL;
    char name[NAME], least[NAME] = "";
    for (const ls_config_key *row = rows; row->key; row++) {
        name_of(name, row);
        if (row->begins || !ls_config_key_is_of_recipe(config, row) || strcmp(name, last) <= 0 ||
            (next && strcmp(name, least) >= 0))
            continue;
        next = row;
        memcpy(least, name, sizeof least);
    }
    memcpy(last, least, sizeof least);
    return next;
}

void ls_config_write_hashed(ls_json_writer *w, const char *key, const ls_config *config, int shards,
                            const ls_config_key *rows)
{
    ls_config resolved = *config;
    char name[NAME] = "";
    resolved.shards = shards;
    ls_json_open_object(w, key);
    for (const ls_config_key *row = next_row(name, rows, config); row;
         row = next_row(name, rows, config))
        write_key(w, &resolved, row);
    ls_json_close(w);
}
