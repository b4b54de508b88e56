#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints metric_cases.inc: random cases of metrics and what scikit-learn finds for them, without and with weights of the
rows (sample_weight; rows of weight 0 are left out). test_metrics.c draws the same rows. Needs numpy and scikit-learn; run it again only if the cases change: python3 metric_cases.py >metric_cases.inc"""
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
            targets[i, k] = np.float32(scores[i, k] + target % 64 / 16 - 2) if kind == "v" else target % 2
        if one_kind:
            targets[i, 0] = 1
    return scores, targets, labels


def draw_weights(seed, rows):
    d = Draw(seed + 1000)
    return np.array([0 if d.next() % 4 == 0 else np.float32(d.next() % 50) / np.float32(10) for _ in range(rows)])


def decision(truth, scores, w):
    predicted = scores > 0
    auc = sk.roc_auc_score(truth, scores, sample_weight=w) if 0 < truth.sum() < len(truth) else np.nan
    ap = sk.average_precision_score(truth, scores, sample_weight=w) if truth.sum() else np.nan
    f1 = sk.f1_score(truth, predicted, sample_weight=w) if (truth | predicted).any() else np.nan
    return auc, ap, f1


def mean(rows):
    rows = np.array(rows, float)
    return [np.nan if np.isnan(c).all() else np.nanmean(c) for c in rows.T]


NAMES = ("auc", "average_precision", "f1", "r2", "r2_mean", "accuracy", "top5", "precision", "recall", "mae", "pinball",
         "coverage", "huber", "deviance")


def of_values(scores, targets, w):
    """The loss huber has delta 1.5, and quantile the quantile 0.3. Counts are the absolute values of the targets."""
    far, outputs = np.abs(targets - scores), scores.shape[1]
    each = {"mae": sk.mean_absolute_error(targets, scores, sample_weight=w),
            "pinball": sk.mean_pinball_loss(targets, scores, sample_weight=w, alpha=0.3),
            "coverage": np.average((targets <= scores).mean(1), weights=w),
            "huber": np.average(np.where(far < 1.5, far ** 2 / 2, 1.5 * (far - 0.75)).mean(1), weights=w),
            "deviance": np.mean([sk.mean_poisson_deviance(np.abs(targets[:, k]), np.exp(scores[:, k]), sample_weight=w)
                                 for k in range(outputs)])}
    constant = np.ptp(targets, axis=0) == 0
    if constant.all():
        return each
    r2 = np.where(constant, np.nan, sk.r2_score(targets, scores, sample_weight=w, multioutput="raw_values"))
    away = targets - np.average(targets, axis=0, weights=w)
    total = 1 - np.average((targets - scores) ** 2, axis=0, weights=w).sum() / np.average(away ** 2, axis=0, weights=w).sum()
    for way, value, most in (("uniform_average", r2.mean(), 1e-12), ("variance_weighted", total, 1e-9)):
        assert constant.any() or abs(value - sk.r2_score(targets, scores, sample_weight=w, multioutput=way)) < most
    return {**each, "r2": total, "r2_mean": np.nanmean(r2)}


def of_classes(scores, labels, w):
    outputs, best = scores.shape[1], scores.argmax(1)
    one = {"labels": [0], "average": None, "zero_division": np.nan, "sample_weight": w}
    each = {"accuracy": sk.accuracy_score(labels, best, sample_weight=w),
            "top5": sk.top_k_accuracy_score(labels, scores, k=5, labels=range(outputs), sample_weight=w) if outputs > 5 else 1,
            "precision": sk.precision_score(labels, best, **one)[0], "recall": sk.recall_score(labels, best, **one)[0]}
    if outputs == 2:
        return {**each, **dict(zip(NAMES, decision(labels == 1, scores[:, 1] - scores[:, 0], w)))}
    less = scores - scores.max(1, keepdims=True)
    log_p = less - np.log(np.exp(less).sum(1, keepdims=True))
    auc = mean([decision(labels == k, log_p[:, k], w) for k in range(outputs)])[0]
    if len(set(labels)) == outputs:
        p = np.exp(log_p)
        total = sk.roc_auc_score(labels, p / p.sum(1, keepdims=True), multi_class="ovr", average="macro", sample_weight=w)
        assert abs(auc - total) < 1e-9
    return {**each, "auc": auc}


def found(kind, scores, targets, labels, w):
    outputs = scores.shape[1]
    if len(scores) == 0:
        each = {}
    elif kind == "v":
        each = of_values(scores, targets, w)
    elif kind == "c":
        each = of_classes(scores, labels, w)
    else:
        truth = targets > 0.5
        right = ((scores > 0) == truth).all(1)
        each = dict(zip(NAMES, mean([decision(truth[:, k], scores[:, k], w) for k in range(outputs)])))
        each["accuracy"] = sk.accuracy_score(np.ones(len(right), bool), right, sample_weight=w)
    return [each.get(name, np.nan) for name in NAMES]


def text(values):
    return "{" + ", ".join("NAN" if np.isnan(v) else repr(float(v)) for v in values) + "}"


for seed in range(1, 101):
    kind, rows, outputs = shape(seed)
    drawn, w = draw(seed, kind, rows, outputs), draw_weights(seed, rows)
    plain = found(kind, *drawn, None)
    weighted = found(kind, *(part[w > 0] for part in drawn), w[w > 0])
    print(f"{{{rows}, {outputs}, '{kind}', {text(plain)},\n {text(weighted)}}},")
