/* SPDX-License-Identifier: MIT */
/* Compares results of chains. */
#include "ops/op_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const op_item *op_result_item(const op_result *r, const char *name)
{
    for (int i = 0; i < r->items; i++)
        if (strcmp(r->item[i].name, name) == 0)
            return &r->item[i];
    return NULL;
}

static void items_near(const char *who, const op_chain *chain, const op_item *a, const op_item *b,
                       double tolerance)
{
    double error = 0, norm = 0;
    if (a->n != b->n)
        fail_msg("%s: %s\n    %s has %zu elements, not %zu", who, op_chain_text(chain), a->name,
                 a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        double d = (double)a->data[i] - (double)b->data[i];
        error += d * d;
        norm += (double)b->data[i] * (double)b->data[i];
    }
    if (a->n < 16)
        tolerance *= 10;
    /* Also true for NaN. */
    if (!(sqrt(error) <= tolerance * (sqrt(norm) + 0.1 * sqrt((double)a->n))))
        fail_msg("%s: %s\n    %s (%zu elements): ‖Δ‖ %.3g, ‖reference‖ %.3g, ratio %.3g > %.3g",
                 who, op_chain_text(chain), a->name, a->n, sqrt(error), sqrt(norm),
                 sqrt(error / norm), tolerance);
}

void op_expect_near(const char *who, const op_chain *chain, const op_result *a, const op_result *b,
                    double tolerance)
{
    for (int i = 0; i < a->items; i++) {
        const op_item *other = op_result_item(b, a->item[i].name);
        if (other)
            items_near(who, chain, &a->item[i], other, tolerance);
    }
    if (!a->has_stats || !b->has_stats)
        return;
    /* The bound also grows with the number of rows: a loss near zero is a difference of numbers of
     * size one in each row. */
    double scale = fabs((double)b->stats[0]) + chain->op[0].x.rows;
    /* after other ops the logits already have rounding errors */
    double most = chain->count == 1 ? 1e-6 : tolerance;
    if (!(fabs((double)a->stats[0] - (double)b->stats[0]) <= most * scale))
        fail_msg("%s: %s\n    loss %.9g, not %.9g", who, op_chain_text(chain), (double)a->stats[0],
                 (double)b->stats[0]);
    if (a->stats[1] != b->stats[1])
        fail_msg("%s: %s\n    correct %g, not %g", who, op_chain_text(chain), (double)a->stats[1],
                 (double)b->stats[1]);
}

void op_expect_same(const char *who, const op_chain *chain, const op_result *a, const op_result *b)
{
    assert_int_equal(a->items, b->items);
    for (int i = 0; i < a->items; i++)
        if (a->item[i].n != b->item[i].n ||
            memcmp(a->item[i].data, b->item[i].data, a->item[i].n * sizeof(float)) != 0)
            fail_msg("%s: %s\n    the bits of %s differ", who, op_chain_text(chain),
                     a->item[i].name);
    if (memcmp(a->stats, b->stats, sizeof a->stats) != 0)
        fail_msg("%s: %s\n    the bits of the loss differ", who, op_chain_text(chain));
    if (memcmp(a->labels, b->labels, sizeof a->labels) != 0)
        fail_msg("%s: %s\n    the labels differ", who, op_chain_text(chain));
}

void op_result_destroy(op_result *result)
{
    for (int i = 0; result && i < result->items; i++)
        free(result->item[i].data);
    free(result);
}
