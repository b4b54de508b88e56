/* SPDX-License-Identifier: MIT */
/* Rows of new data with values that are unknown to the model (unknown.h). */
#include "data/unknown.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"

#include <stdio.h>
#include <string.h>

enum { MOST_TOLD = 3 };

/* Adds a place, or dots if there are enough. */
static void tell(ls_unknown_places *p, const ls_unknown_place *at)
{
    char text[120];
    const size_t used = strlen(p->text);
    if (p->count == MOST_TOLD)
        snprintf(p->text + used, sizeof p->text - used, "; …");
    if (p->count++ >= MOST_TOLD)
        return;
    if (at->column)
        snprintf(text, sizeof text, "%s %zu, column \"%.30s\": \"%.30s\"%s", at->unit, at->number,
                 at->column, at->text, at->other_coding ? " (not UTF-8)" : "");
    else
        snprintf(text, sizeof text, "%s %zu: %.80s", at->unit, at->number, at->text);
    snprintf(p->text + used, sizeof p->text - used, "%s%s", used ? "; " : "", text);
}

int ls_unknown_rows_add(ls_unknown_rows *u, uint32_t row, ls_prep_found found,
                        const ls_unknown_place *place, const char *why, ls_error *err)
{
    if (found == LS_PREP_KNOWN)
        return LS_OK;
    tell(found == LS_PREP_ZEROED ? &u->zeroed_places : &u->places, place);
    u->zeroed += found == LS_PREP_ZEROED;
    if (found == LS_PREP_ZEROED)
        return LS_OK;
    u->refused |= place->refused;
    u->numbers |= !place->is_text;
    ls_unknown_row *all = ls_grown(u->host, u->row, u->count, &u->capacity, sizeof *all);
    if (all) {
        u->row = all;
        all[u->count] = (ls_unknown_row){row, ls_strdup(u->host, why)};
    }
    if (!all || !all[u->count].why)
        return ls_fail(err, LS_ENOMEM, "out of memory for %zu rows", u->count + 1);
    u->count++;
    return LS_OK;
}

void ls_unknown_rows_tell_zeroed(const ls_unknown_rows *u, const char *source, size_t rows)
{
    if (u->zeroed)
        ls_log(u->host, LS_LOG_WARNING,
               "%.140s: %u of %zu rows %s a text that no training row has, which counts as none of "
               "the texts of its column: %s",
               source, (unsigned)u->zeroed, rows, ls_plural(u->zeroed, "has", "have"),
               u->zeroed_places.text);
}

const char *ls_unknown_rows_why(const ls_unknown_rows *u)
{
    return u->refused ? ls_plural(u->count, "the model cannot read its value",
                                  "the model cannot read a value of theirs")
                      : ls_plural(u->count, "no training row has its value",
                                  "no training row has a value of theirs");
}

int ls_unknown_rows_tell_left_out(const ls_unknown_rows *u, const char *source, size_t rows,
                                  const char *cure, ls_error *err)
{
    if (u->count == rows && rows > 0)
        return cure && !u->numbers
                   ? ls_fail(err, LS_EDATA, "%.100s: no row can be predicted, because %s; %s: %s",
                             source, ls_unknown_rows_why(u), cure, u->places.text)
                   : ls_fail(err, LS_EDATA, "%s", u->row[0].why);
    if (u->count > 0)
        ls_log(u->host, LS_LOG_WARNING, "%.140s: %zu of %zu rows %s left out, because %s: %s",
               source, u->count, rows, ls_plural(u->count, "is", "are"), ls_unknown_rows_why(u),
               u->places.text);
    return LS_OK;
}

void ls_unknown_rows_free(ls_unknown_rows *u)
{
    for (size_t i = 0; i < u->count; i++)
        ls_free(u->host, u->row[i].why);
    ls_free(u->host, u->row);
    *u = (ls_unknown_rows){0};
}
