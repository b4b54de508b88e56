#!/usr/bin/env python3
"""Prints metric_cases.inc: random cases of metrics and what scikit-learn finds for them. test_metrics.c draws the same
rows. Needs numpy and scikit-learn; run it again only if the cases change: python3 metric_cases.py >metric_cases.inc"""
import numpy as np
from sklearn import metrics as sk


class Draw:
    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return self.state >> 8


def shape(seed):
    kind = "cbcv"[seed % 4]
    rows = 0 if seed % 25 == 0 else 1 + seed * 7 % 80
    outputs = {"c": 2 if seed % 3 else 3 + seed % 4, "b": 1 + seed % 3, "v": 2 + seed % 4}[kind]
    return kind, rows, outputs


def draw(seed, kind, rows, outputs):
    d, ties, one_kind = Draw(seed), seed % 2 == 0, seed % 10 == 7
    scores, targets, labels = np.zeros((rows, outputs)), np.zeros((rows, outputs)), np.zeros(rows, int)
    for i in range(rows):
        labels[i] = 1 if one_kind else d.next() % outputs
        repeat = i > 0 and d.next() % 3 == 0
        for k in range(outputs):
            word, target = d.next(), d.next()
            scores[i, k] = word % 65536 / 8192 - 4
            if repeat:
                scores[i, k] = scores[i - 1, k]
            elif ties and outputs < 3:
                scores[i, k] = word % 8 / 4 - 1
            targets[i, k] = np.float32(scores[i, k] + target % 64 / 16) if kind == "v" else target % 2
        if one_kind:
            targets[i, 0] = 1
    return scores, targets, labels


def decision(truth, scores):
    predicted = scores > 0
    auc = sk.roc_auc_score(truth, scores) if 0 < truth.sum() < len(truth) else np.nan
    ap = sk.average_precision_score(truth, scores) if truth.sum() else np.nan
    f1 = sk.f1_score(truth, predicted) if (truth | predicted).any() else np.nan
    return auc, ap, f1


def mean(rows):
    rows = np.array(rows, float)
    return [np.nan if np.isnan(c).all() else np.nanmean(c) for c in rows.T]


def found(kind, scores, targets, labels):
    outputs = scores.shape[1]
    if len(scores) == 0:
        return [np.nan] * 5
    if kind == "v":
        constant = np.ptp(targets, axis=0) == 0
        each = np.where(constant, np.nan, sk.r2_score(targets, scores, multioutput="raw_values") if len(scores) > 1 else np.nan)
        if constant.all():
            return [np.nan] * 5
        assert constant.any() or abs(each.mean() - sk.r2_score(targets, scores, multioutput="uniform_average")) < 1e-12
        total = 1 - ((targets - scores) ** 2).sum() / ((targets - targets.mean(0)) ** 2).sum()
        assert constant.any() or abs(total - sk.r2_score(targets, scores, multioutput="variance_weighted")) < 1e-9
        return [np.nan] * 3 + [total, np.nanmean(each)]
    if kind == "b":
        return mean([decision(targets[:, k] > 0.5, scores[:, k]) for k in range(outputs)]) + [np.nan] * 2
    if outputs == 2:
        return list(decision(labels == 1, scores[:, 1] - scores[:, 0])) + [np.nan] * 2
    less = scores - scores.max(1, keepdims=True)
    log_p = less - np.log(np.exp(less).sum(1, keepdims=True))
    auc = mean([decision(labels == k, log_p[:, k]) for k in range(outputs)])[0]
    if len(set(labels)) == outputs:
        p = np.exp(log_p)
        assert abs(auc - sk.roc_auc_score(labels, p / p.sum(1, keepdims=True), multi_class="ovr", average="macro")) < 1e-9
    return [auc] + [np.nan] * 4


def text(value):
    return "NAN" if np.isnan(value) else repr(float(value))


for seed in range(1, 101):
    kind, rows, outputs = shape(seed)
    values = found(kind, *draw(seed, kind, rows, outputs))
    print(f"{{{rows}, {outputs}, '{kind}', " + ", ".join(map(text, values)) + "},")
