/* SPDX-License-Identifier: MIT */
/* The strict JSON reader and the writer: an accepted value can be found by its key and its place,
 * and reads the same after it was written. */
#include "fuzz/fuzz.h"
#include "json/json.h"

#include <string.h>

static const char name[] = "fuzz.json";

/* Every node has a place in the text, and every member is the one that its key finds. */
static void check_tree(const ls_json *doc, const cJSON *node, int *budget)
{
    int line;
    int column;
    for (const cJSON *child = node->child; child; child = child->next) {
        if (--*budget < 0)
            return;
        fuzz_check(ls_json_where(doc, child, false, &line, &column) == LS_OK && line > 0 &&
                       column > 0,
                   "every node has a place");
        if (child->string)
            fuzz_check(cJSON_GetObjectItemCaseSensitive(node, child->string) == child,
                       "a key stands once in an object");
        check_tree(doc, child, budget);
    }
}

static const char *write_text(ls_json_writer *w, const ls_json *doc, size_t *length)
{
    ls_json_put_node(w, NULL, ls_json_root(doc));
    const char *text = ls_json_writer_text(w, length, NULL);
    fuzz_check(text != NULL, "what was read can be written");
    return text;
}

static void check_rewriting(const ls_json *doc)
{
    ls_json_writer first;
    ls_json_writer second;
    ls_json *again = NULL;
    size_t length;
    size_t length2;
    ls_json_writer_init(&first, 0, NULL);
    ls_json_writer_init(&second, 0, NULL);
    const char *text = write_text(&first, doc, &length);
    fuzz_check(ls_json_parse(&again, "written", text, length, NULL, NULL) == LS_OK,
               "what was written is accepted");
    const char *text2 = write_text(&second, again, &length2);
    fuzz_check(length == length2 && memcmp(text, text2, length) == 0,
               "what was written reads the same");
    ls_json_destroy(again);
    ls_json_writer_fini(&second);
    ls_json_writer_fini(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_json *doc = NULL;
    ls_error err = {0};
    int budget = 200;
    int rc = ls_json_parse(&doc, name, (const char *)data, size, NULL, &err);
    if (rc != LS_OK) {
        fuzz_check(doc == NULL, "a refusal leaves nothing behind");
        fuzz_check_refusal(rc, &err, name);
        fuzz_check(size > LS_JSON_BYTES || fuzz_names_place(err.text, name),
                   "a refusal names line and column");
        return 0;
    }
    check_tree(doc, ls_json_root(doc), &budget);
    check_rewriting(doc);
    ls_json_destroy(doc);
    return 0;
}
