#include "json/doc.h"

#include "base/error.h"
#include "base/host.h"

#include <stdlib.h>
#include <string.h>

typedef struct member {
    const char *key;
    uint32_t index; /* of its place */
} member;

typedef struct walk {
    const ls_json_places *places;
    const char *name;
    const char *text;
    const ls_host *host;
    ls_error *err;
    uint32_t next; /* the place of the next node in pre-order */
} walk;

static int by_key_then_index(const void *a, const void *b)
{
    const member *x = a;
    const member *y = b;
    int order = strcmp(x->key, y->key);
    if (order != 0)
        return order;
    return (x->index > y->index) - (x->index < y->index);
}

/* Sorting keeps this fast for an object with a million members. */
static int check_members(walk *w, member *members, size_t count)
{
    const member *again = NULL; /* the earliest repetition in the text */
    const member *first = NULL;
    int line[2];
    int column[2];
    qsort(members, count, sizeof *members, by_key_then_index);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(members[i].key, members[i - 1].key) == 0 &&
            (!again || members[i].index < again->index)) {
            again = &members[i];
            first = &members[i - 1];
        }
    }
    if (!again)
        return LS_OK;
    ls_json_line_column(w->text, w->places->items[first->index].key, &line[0], &column[0]);
    ls_json_line_column(w->text, w->places->items[again->index].key, &line[1], &column[1]);
    return ls_fail(w->err, LS_ECONFIG,
                   "%s:%d:%d: expected each key once, found \"%.64s\" again (first at %d:%d); "
                   "remove one of the two",
                   w->name, line[1], column[1], again->key, line[0], column[0]);
}

/* The scan has bounded the depth. */
static int check_node(walk *w, const cJSON *node)
{
    int rc = LS_OK;
    member *members = NULL;
    size_t count = 0;
    w->next++;
    if (cJSON_IsObject(node) && node->child && node->child->next) {
        members = ls_alloc_array(w->host, (size_t)cJSON_GetArraySize(node), sizeof *members);
        if (!members)
            return ls_fail(w->err, LS_ENOMEM, "%s: out of memory", w->name);
    }
    for (const cJSON *child = node->child; child && rc == LS_OK; child = child->next) {
        if (members)
            members[count++] = (member){.key = child->string, .index = w->next};
        rc = check_node(w, child);
    }
    if (rc == LS_OK && count > 1)
        rc = check_members(w, members, count);
    ls_free(w->host, members);
    return rc;
}

int ls_json_check_keys(const cJSON *root, const ls_json_places *places, const char *name,
                       const char *text, const ls_host *host, ls_error *err)
{
    walk w = {.places = places, .name = name, .text = text, .host = host, .err = err};
    return check_node(&w, root);
}
