/* What the columns of a training table are, as they were read. */
#include "base/host.h"
#include "data/csv.h"
#include "prep/number.h"

#include <math.h>
#include <string.h>

static ls_column_use use_of(const ls_csv *c, int i)
{
    const ls_csv_kind kind = c->column[i].kind;
    if (i == c->target)
        return kind == LS_CSV_TEXT ? LS_COLUMN_CLASS : LS_COLUMN_VALUE;
    return kind == LS_CSV_TEXT      ? LS_COLUMN_LEVELS
           : kind == LS_CSV_DROPPED ? LS_COLUMN_DROPPED
                                    : LS_COLUMN_NUMBER;
}

/* Of the target a number with a comma is one, too: nobody has said yet how it is to be read. */
static void see_level(const ls_csv *c, int i, const char *text, ls_column_seen *seen)
{
    const unsigned commas = LS_FORM_COMMA | LS_FORM_COMMA_OR_GROUP | LS_FORM_COMMA_GROUPS;
    double value;
    unsigned form = 0;
    if (!ls_number_read(text, strlen(text), c->column[i].decimal, &value, &form) ||
        (form & commas && i != c->target))
        return;
    seen->numeric++;
    seen->broken += value != floor(value) || form & commas;
}

static void see_column(const ls_csv *c, int i, ls_column_seen *seen)
{
    const ls_csv_column *at = &c->column[i];
    seen->use = use_of(c, i);
    seen->levels = at->kind == LS_CSV_NUMBER ? 0 : at->levels.count;
    for (int k = 0; k < seen->levels; k++)
        see_level(c, i, at->levels.level[k].text, seen);
    seen->named = ls_csv_names(&c->o->spec->keys.categorical, at->name);
    seen->counts = at->kind == LS_CSV_NUMBER && at->slot >= 0 && c->cells.rows > 9;
    seen->mean = at->mean;
    seen->deviation = at->deviation;
}

/* Row by row, as cells lie in memory. */
static void see_cells(const ls_csv *c, ls_column_seen *seen)
{
    const float *before = NULL;
    for (size_t r = 0; r < c->cells.rows; r++) {
        const float *row = ls_row_blocks_at(&c->cells, r);
        for (int i = 0; i < c->columns; i++) {
            const int slot = c->column[i].slot;
            if (slot < 0)
                continue;
            if (isnan(row[slot]))
                seen[i].missing++;
            if (seen[i].counts)
                seen[i].counts =
                    before ? row[slot] == before[slot] + 1 : row[slot] == floorf(row[slot]);
        }
        before = row;
    }
}

int ls_csv_see(const ls_csv *c, ls_resident *r)
{
    r->seen = ls_alloc_array(c->o->host, (size_t)c->columns, sizeof *r->seen);
    if (!r->seen)
        return ls_csv_no_memory(c);
    r->base.info.column = r->seen;
    for (int i = 0; i < c->columns; i++) {
        r->base.info.columns = i + 1;
        r->seen[i].name = ls_strdup(c->o->host, c->column[i].name);
        if (!r->seen[i].name)
            return ls_csv_no_memory(c);
        see_column(c, i, &r->seen[i]);
    }
    see_cells(c, r->seen);
    return LS_OK;
}
