/* SPDX-License-Identifier: MIT */
/* Ranks rows by their scores, and counts decisions (ranking.h). The keys are sorted digit by digit
 * (radix sort), in linear time and in memory that the caller lends: qsort may allocate. */
#include "config/ranking.h"

#include <math.h>
#include <string.h>

uint64_t ls_rank_key(double score, bool positive)
{
    const double one_zero = score + 0.0; /* −0 becomes 0 */
    const uint64_t sign = (uint64_t)1 << 63;
    uint64_t bits;
    memcpy(&bits, &one_zero, sizeof bits);
    bits = bits & sign ? ~bits : bits | sign;
    return (bits & ~(uint64_t)1) | positive;
}

enum { DIGIT = 11, DIGITS = 6, VALUES = 1 << DIGIT };

static uint32_t digit_of(uint64_t key, int d)
{
    return (uint32_t)(key >> (d * DIGIT)) & (VALUES - 1);
}

/* Sorts the rows by digit `d` of their keys, and keeps the order of equal digits. Returns false,
 * and changes nothing, if all keys have the same digit. */
static bool sort_digit(const ls_ranked *out, const ls_ranked *in, uint32_t rows, int d)
{
    uint32_t at[VALUES] = {0}, before = 0;
    for (uint32_t i = 0; i < rows; i++)
        at[digit_of(in->key[i], d)]++;
    if (at[digit_of(in->key[0], d)] == rows)
        return false;
    for (int v = 0; v < VALUES; v++) {
        const uint32_t count = at[v];
        at[v] = before;
        before += count;
    }
    for (uint32_t i = 0; i < rows; i++) {
        const uint32_t to = at[digit_of(in->key[i], d)]++;
        out->key[to] = in->key[i];
        if (in->weight)
            out->weight[to] = in->weight[i];
    }
    return true;
}

/* Sorts the rows and returns the arrays, one of the two, that have them. */
static const ls_ranked *sort(const ls_ranked *ranked, const ls_ranked *room, uint32_t rows)
{
    const ls_ranked *from = ranked, *to = room;
    for (int d = 0; d < DIGITS && rows > 1; d++)
        if (sort_digit(to, from, rows, d)) {
            const ls_ranked *last = from;
            from = to;
            to = last;
        }
    return from;
}

void ls_rank(double *auc, double *average_precision, const ls_ranked *ranked, const ls_ranked *room,
             uint32_t rows)
{
    const ls_ranked *sorted = sort(ranked, room, rows);
    const uint64_t *key = sorted->key;
    double pairs2 = 0; /* twice the number of pairs, so that a pair that counts half adds 1 */
    double negatives = 0, positives = 0, precisions = 0;
    /* the rows in descending order; all rows with equal scores at once */
    for (uint32_t i = rows, end; i > 0; i = end) {
        double here[2] = {0, 0};
        for (end = i; end > 0 && key[end - 1] >> 1 == key[i - 1] >> 1; end--)
            here[key[end - 1] & 1] += sorted->weight ? (double)sorted->weight[end - 1] : 1;
        pairs2 += here[0] * (2 * positives + here[1]);
        negatives += here[0];
        positives += here[1];
        precisions += here[1] * (positives / (positives + negatives));
    }
    *auc = positives > 0 && negatives > 0 ? pairs2 / 2 / (positives * negatives) : NAN;
    *average_precision = positives > 0 ? precisions / positives : NAN;
}

void ls_decision_count(ls_decision *d, bool positive, bool predicted, double weight)
{
    if (positive)
        *(predicted ? &d->true_positive : &d->false_negative) += weight;
    else
        *(predicted ? &d->false_positive : &d->true_negative) += weight;
}

/* Returns a / b, or NaN if b is 0. */
static double share(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

double ls_decision_precision(const ls_decision *d)
{
    return share(d->true_positive, d->true_positive + d->false_positive);
}

double ls_decision_recall(const ls_decision *d)
{
    return share(d->true_positive, d->true_positive + d->false_negative);
}

double ls_decision_f1(const ls_decision *d)
{
    return share(2 * d->true_positive,
                 2 * d->true_positive + d->false_positive + d->false_negative);
}
