/* SPDX-License-Identifier: MIT */
/* The preparation of rows: an accepted description is complete, is written as it was read, and
 * prepares rows. */
#include "fuzz/fuzz.h"
#include "prep/prep.h"

#include <math.h>
#include <string.h>

enum { INPUT = 4 };

static const char name[] = "card";

static void check_table(const ls_prep *p)
{
    double row[INPUT] = {0};
    float ready[INPUT];
    ls_error err;
    ls_prep_found found = LS_PREP_KNOWN;
    fuzz_check(p->features == INPUT, "columns make the model's input");
    for (int i = 0; i < p->columns; i++) {
        const ls_prep_column *c = &p->column[i];
        fuzz_check(ls_prep_find(p, c->name) == i, "each column is found by its name");
        for (int k = 0; k < c->levels; k++) {
            fuzz_check(ls_prep_level(c, c->level[k]) == k, "each level is found");
            fuzz_check(ls_prep_put(p, i, c->level[k], 0, row, "", &found, &err) == LS_OK &&
                           found == LS_PREP_KNOWN && row[c->first + k] == 1,
                       "a level is 1 in its place");
        }
        fuzz_check(c->deviation > 0 && isfinite(c->mean) && isfinite(c->missing),
                   "what scales and fills are numbers");
    }
    const int status = ls_prep_ready(p, row, true, ready, INPUT, &found, &err);
    fuzz_check(status == LS_OK || (status == LS_EDATA && p->unknown == LS_UNKNOWN_ERROR),
               "a whole row is prepared, or refused if the description says so");
    if (status || found == LS_PREP_UNKNOWN)
        return;
    for (int i = 0; i < INPUT; i++) {
        fuzz_check(isfinite(ready[i]), "a prepared row has numbers");
        fuzz_check(!(p->clip > 0) || fabsf(ready[i]) <= (float)p->clip,
                   "a limited value is within its limits");
    }
    for (int i = 0; i < p->columns; i++)
        fuzz_check(!(p->column[i].clip > 0) ||
                       fabsf(ready[p->column[i].first]) <= (float)p->column[i].clip,
                   "a limited number is within its limits");
}

static void check_written(const ls_prep *p, bool floats)
{
    ls_json_writer w[2];
    ls_json *doc;
    ls_prep *again = NULL;
    ls_error err;
    ls_json_writer_init(&w[0], 0, NULL);
    ls_json_writer_init(&w[1], 0, NULL);
    ls_prep_write(&w[0], NULL, p);
    const char *text = ls_json_writer_text(&w[0], NULL, NULL);
    fuzz_check(ls_json_parse(&doc, name, text, strlen(text), NULL, &err) == LS_OK, "it is JSON");
    fuzz_check(ls_prep_read(&again, doc, ls_json_root(doc), INPUT, floats, NULL, &err) == LS_OK,
               "what is written is read");
    if (again) {
        ls_prep_write(&w[1], NULL, again);
        fuzz_check(strcmp(text, ls_json_writer_text(&w[1], NULL, NULL)) == 0, "and is the same");
    }
    ls_prep_free(again);
    ls_json_destroy(doc);
    ls_json_writer_fini(&w[0]);
    ls_json_writer_fini(&w[1]);
}

static void read_for(const ls_json *doc, bool floats)
{
    ls_prep *p;
    ls_error err = {0};
    int status = ls_prep_read(&p, doc, ls_json_root(doc), INPUT, floats, NULL, &err);
    if (status) {
        fuzz_check(!p, "a refusal leaves nothing behind");
        fuzz_check_refusal(status, &err, name);
        return;
    }
    if (p->kind == LS_PREP_TABLE)
        check_table(p);
    fuzz_check(p->fills == 0 || p->fills == 1 || p->fills == INPUT,
               "one number fills all, or each has its own");
    check_written(p, floats);
    ls_prep_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_json *doc;
    if (ls_json_parse(&doc, name, (const char *)data, size, NULL, NULL) != LS_OK)
        return 0;
    read_for(doc, true);
    read_for(doc, false);
    ls_json_destroy(doc);
    return 0;
}
