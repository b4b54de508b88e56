/* SPDX-License-Identifier: MIT */
/* A yes-or-no decision about rows that have a score and are positive or negative: how well the
 * scores rank the rows (AUC, average precision), and how well a threshold decides (F1).
 *
 * The definitions are those of scikit-learn's roc_auc_score, average_precision_score and f1_score,
 * without its replacements of undefined values:
 *
 * - AUC: each positive row is paired with each negative row. The AUC is the share of pairs in which
 *   the positive row has the larger score; a pair of equal scores counts half (the Mann-Whitney
 *   statistic). NaN if one kind of row is missing.
 * - average precision: Σ (recall of this step − recall of the step before) · precision of this
 * step, over the different scores in descending order, each as threshold. NaN without a positive
 * row.
 * - F1: 2·TP / (2·TP + FP + FN) with the numbers of true positive, false positive and false
 * negative rows. NaN if all three numbers are 0.
 *
 * If rows have weights, a row counts as its weight, and a pair as the product of both weights
 * (scikit-learn's sample_weight). A row of weight 0 is not counted: the caller leaves it out. All
 * sums are in double: as long as weights are whole numbers, and pairs fewer than 2^53, they are
 * exact.
 */
#ifndef CONFIG_RANKING_H
#define CONFIG_RANKING_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the key by which a row is ranked. Keys are ordered as the scores are, which must be
 * finite. The lowest bit of the key says whether the row is positive; the score loses its lowest
 * bit, which is 0 in the difference of two floats of similar size. */
uint64_t ls_rank_key(double score, bool positive);

/* Rows of a ranking: their keys, and their weights. */
typedef struct ls_ranked {
    uint64_t *key; /* [rows] */
    float *weight; /* [rows] weights above 0; NULL: all are 1 */
} ls_ranked;

/* Computes AUC and average precision of `rows` rows, which are sorted by their keys; rows with
 * equal keys keep their order, in which their weights are added. `room`: arrays as large as those
 * of `ranked`, for sorting. Takes linear time, and allocates nothing. */
void ls_rank(double *auc, double *average_precision, const ls_ranked *ranked, const ls_ranked *room,
             uint32_t rows);

/* Numbers of rows, or sums of their weights, by what they are and how they are predicted. */
typedef struct ls_decision {
    double true_positive, false_positive, true_negative, false_negative;
} ls_decision;

/* Counts a row as `weight`; 1: counts rows. */
void ls_decision_count(ls_decision *d, bool positive, bool predicted, double weight);
/* Returns the share of positive rows among those predicted positive; NaN if there are none. */
double ls_decision_precision(const ls_decision *d);
/* Returns the share of predicted rows among the positive ones; NaN if there are none. */
double ls_decision_recall(const ls_decision *d);
double ls_decision_f1(const ls_decision *d);

#endif
