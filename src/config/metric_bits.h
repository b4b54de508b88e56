/* SPDX-License-Identifier: MIT */
/* The bits of metrics, and the parts of the sums of weights. metrics.c and measure.c use them. */
#ifndef CONFIG_METRIC_BITS_H
#define CONFIG_METRIC_BITS_H

#include "config/metrics.h"

/* The bit of a metric in a mask. */
#define LS_BIT(metric) (1u << LS_METRIC_##metric)
/* The metrics of yes-or-no decisions. */
#define LS_DECISION_METRICS (LS_BIT(AUC) | LS_BIT(AVERAGE_PRECISION) | LS_BIT(F1))

/* Arrays of ls_measured.class_weight */
enum { LS_OF_CLASS, LS_AS_CLASS, LS_OF_AND_AS_CLASS, LS_CLASS_WEIGHTS };

#endif
