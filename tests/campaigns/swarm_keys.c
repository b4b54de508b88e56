/* SPDX-License-Identifier: MIT */
/* Finds the keys that a config may have, and those that cases of the swarm have used. The readers
 * of src/json/fields.h know them: the program is linked so that two of their functions are
 * intercepted here (-Wl,--wrap). */
#include "campaigns/swarm.h"
#include "json/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 512 };

typedef struct seen_key {
    char group[32], key[48];
    int there;  /* in any config */
    long count; /* in how many that count */
} seen_key;

static seen_key keys[KEYS];
static int key_count, counting;

int __real_ls_fields_end(ls_fields *f);
int __wrap_ls_fields_end(ls_fields *f);
int __real_ls_field_choice(ls_fields *f, const char *key, const char *const *choices,
                           const int *fallback, int *out);
int __wrap_ls_field_choice(ls_fields *f, const char *key, const char *const *choices,
                           const int *fallback, int *out);

static void note(const char *group, const char *key, int there)
{
    int i = 0;
    while (i < key_count && (strcmp(keys[i].group, group) != 0 || strcmp(keys[i].key, key) != 0))
        i++;
    if (i == KEYS) {
        fprintf(stderr, "swarm: more than %d keys; raise KEYS\n", KEYS);
        exit(2);
    }
    if (i == key_count) {
        snprintf(keys[i].group, sizeof keys[i].group, "%s", group);
        snprintf(keys[i].key, sizeof keys[i].key, "%s", key);
        key_count++;
    }
    keys[i].there |= there;
    keys[i].count += there && counting;
}

static const char *text_of(const ls_fields *f, const char *key)
{
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(f->object, key);
    return cJSON_IsString(node) ? node->valuestring : NULL;
}

/* "conv2d" of "conv2d 'stem'", "layer" of "layer 3", "optimizer sgd": its keys hang on its name. */
static void group_of(char out[32], const ls_fields *f, int named)
{
    const char *which = NULL;
    size_t length = strcspn(f->what, "'");
    if (named && (strcmp(f->what, "optimizer") == 0 || strcmp(f->what, "schedule") == 0))
        which = text_of(f, "name");
    if (strncmp(f->what, "layer ", 6) == 0)
        length = 5;
    while (length > 0 && f->what[length - 1] == ' ')
        length--;
    snprintf(out, 32, "%.*s%s%.12s", length > 18 ? 18 : (int)length, f->what, which ? " " : "",
             which ? which : "");
}

/* The trainer wrote it, into a file of its own: no generator of configs can reach each of its
 * keys and choices. */
static int of_no_config(const ls_fields *f)
{
    static const char *const theirs[] = {"the model's card", "preparation", "a column",
                                         "the state",        "best",        "position"};
    if (!f->doc) /* an object that the program has made: one key of a config */
        return 1;
    for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++)
        if (strcmp(f->what, theirs[i]) == 0)
            return 1;
    return 0;
}

/* Whether the key is one of a config that only the trainer writes: "source" says from which ONNX
 * file the layers are, and a run that begins with it needs the file's weights. */
static int is_written(const ls_fields *f, const char *key)
{
    return strcmp(f->what, "model") == 0 && strcmp(key, "source") == 0;
}

int __wrap_ls_fields_end(ls_fields *f)
{
    char group[32];
    if (of_no_config(f))
        return __real_ls_fields_end(f);
    group_of(group, f, 1);
    for (int i = 0; i < f->count; i++)
        if (!is_written(f, f->known[i]))
            note(group, f->known[i],
                 cJSON_GetObjectItemCaseSensitive(f->object, f->known[i]) != NULL);
    return __real_ls_fields_end(f);
}

int __wrap_ls_field_choice(ls_fields *f, const char *key, const char *const *choices,
                           const int *fallback, int *out)
{
    const char *text = text_of(f, key);
    char group[32], pair[48];
    if (of_no_config(f))
        return __real_ls_field_choice(f, key, choices, fallback, out);
    group_of(group, f, 0);
    for (int i = 0; choices[i]; i++) {
        snprintf(pair, sizeof pair, "%.20s=%.24s", key, choices[i]);
        note(group, pair, text && strcmp(text, choices[i]) == 0);
    }
    return __real_ls_field_choice(f, key, choices, fallback, out);
}

void swarm_keys_count(int on)
{
    counting = on;
}

void swarm_keys_print(void)
{
    printf("\"features\":{");
    for (int i = 0; i < key_count; i++)
        printf("%s\"%s %s\":%ld", i ? "," : "", keys[i].group, keys[i].key, keys[i].count);
    printf("}");
}

int swarm_keys_missing(const char **name)
{
    static char text[96];
    int missing = 0;
    *name = NULL;
    for (int i = 0; i < key_count; i++) {
        if (keys[i].there)
            continue;
        if (missing++ == 0)
            snprintf(text, sizeof text, "\"%.47s\" of %.31s", keys[i].key, keys[i].group);
        *name = text;
    }
    return missing;
}
