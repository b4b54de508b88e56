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

/* Sorts the keys by digit `d`, and keeps the order of equal digits. Returns false, and changes
 * nothing, if all keys have the same digit. */
static bool sort_digit(uint64_t *out, const uint64_t *key, uint32_t rows, int d)
{
    uint32_t at[VALUES] = {0}, before = 0;
    for (uint32_t i = 0; i < rows; i++)
        at[digit_of(key[i], d)]++;
    if (at[digit_of(key[0], d)] == rows)
        return false;
    for (int v = 0; v < VALUES; v++) {
        const uint32_t count = at[v];
        at[v] = before;
        before += count;
    }
    for (uint32_t i = 0; i < rows; i++)
        out[at[digit_of(key[i], d)]++] = key[i];
    return true;
}

/* Sorts the keys and returns the array, one of the two, that has them. */
static const uint64_t *sort(uint64_t *key, uint64_t *room, uint32_t rows)
{
    uint64_t *from = key, *to = room;
    for (int d = 0; d < DIGITS && rows > 1; d++)
        if (sort_digit(to, from, rows, d)) {
            uint64_t *last = from;
            from = to;
            to = last;
        }
    return from;
}

void ls_rank(double *auc, double *average_precision, uint64_t *key, uint64_t *room, uint32_t rows)
{
    const uint64_t *sorted = sort(key, room, rows);
    uint64_t pairs2 = 0; /* twice the number of pairs, so that a pair that counts half adds 1 */
    uint64_t negatives = 0, positives = 0;
    double precisions = 0;
    /* the rows in descending order; all rows with equal scores at once */
    for (uint32_t i = rows, end; i > 0; i = end) {
        uint64_t here[2] = {0, 0};
        for (end = i; end > 0 && sorted[end - 1] >> 1 == sorted[i - 1] >> 1; end--)
            here[sorted[end - 1] & 1]++;
        pairs2 += here[0] * (2 * positives + here[1]);
        negatives += here[0];
        positives += here[1];
        precisions += (double)here[1] * ((double)positives / (double)(positives + negatives));
    }
    *auc =
        positives && negatives ? (double)pairs2 / 2 / ((double)positives * (double)negatives) : NAN;
    *average_precision = positives ? precisions / (double)positives : NAN;
}

void ls_decision_count(ls_decision *d, bool positive, bool predicted)
{
    if (positive)
        *(predicted ? &d->true_positive : &d->false_negative) += 1;
    else
        *(predicted ? &d->false_positive : &d->true_negative) += 1;
}

/* Returns a / b, or NaN if b is 0. */
static double share(uint64_t a, uint64_t b)
{
    return b ? (double)a / (double)b : NAN;
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
