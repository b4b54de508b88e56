/* SPDX-License-Identifier: MIT */
/* The members of a receipt, and those that only one of two versions knows (verification.h). */
#include "train/verification.h"

#include "config/metrics.h"

#include <stdio.h>
#include <string.h>

/* The members of the first receipts: each receipt has those that its run can have. A member that a
 * later version adds does not belong here, because earlier receipts lack it; it is listed in
 * `later`. */
static const char *const first[] = {"format",
                                    "program",
                                    "library",
                                    "device",
                                    "recipe",
                                    "hashed",
                                    "evaluations",
                                    "epochs",
                                    "data",
                                    "data.training",
                                    "data.training.file_sha256",
                                    "data.training.labels_file_sha256",
                                    "data.training.rows",
                                    "data.training.rows_sha256",
                                    "data.test",
                                    "data.test.file_sha256",
                                    "data.test.labels_file_sha256",
                                    "data.test.rows",
                                    "data.test.rows_sha256",
                                    "init_file_sha256",
                                    "first_weights",
                                    "chain",
                                    "end",
                                    "evaluation",
                                    "evaluation.test_loss",
                                    "evaluation.test_accuracy",
                                    "evaluation.metric",
                                    "evaluation.value",
                                    "weights_sha256",
                                    "weights_file_sha256",
                                    NULL};

/* Further members. Version 0.2 leaves "evaluation.metrics" out if the run was resumed after its
 * last evaluation. */
static const char *const later[] = {"evaluation.metrics", NULL};

static bool is_in(const char *const *list, const char *place)
{
    while (*list && strcmp(*list, place) != 0)
        list++;
    return *list != NULL;
}

static void place_of(char out[LS_JSON_PLACE], const char *object, const cJSON *item)
{
    snprintf(out, LS_JSON_PLACE, "%s%s%.60s", object, *object ? "." : "", item->string);
}

void ls_verify_leave_out(cJSON *mine, const cJSON *theirs, const char *object)
{
    char place[LS_JSON_PLACE];
    for (cJSON *m = mine ? mine->child : NULL, *next; m; m = next) {
        const cJSON *other = member(theirs, m->string);
        next = m->next;
        place_of(place, object, m);
        if (!other && !is_in(first, place))
            cJSON_Delete(cJSON_DetachItemViaPointer(mine, m));
        else if (cJSON_IsObject(m) && cJSON_IsObject(other) && strcmp(place, "hashed") != 0)
            ls_verify_leave_out(m, other, place);
    }
}

static bool is_metric(const char *name)
{
    for (int m = 0; m < LS_METRICS; m++)
        if (strcmp(ls_metric_names[m], name) == 0)
            return true;
    return false;
}

/* Returns whether an object of a receipt, `object`, has a member that this version does not know.
 */
static bool has_unknown(char found[LS_JSON_PLACE], const cJSON *node, const char *object)
{
    char place[LS_JSON_PLACE];
    bool unknown = false;
    for (const cJSON *m = node ? node->child : NULL; m && !unknown; m = m->next) {
        place_of(place, object, m);
        if (strcmp(object, "evaluation.metrics") == 0)
            unknown = !is_metric(m->string);
        else
            unknown = !is_in(first, place) && !is_in(later, place);
        if (unknown)
            memcpy(found, place, sizeof place);
        else if (strcmp(place, "data") == 0 || strncmp(place, "data.", 5) == 0 ||
                 strcmp(place, "evaluation") == 0 || strcmp(place, "evaluation.metrics") == 0)
            unknown = has_unknown(found, cJSON_IsObject(m) ? m : NULL, place);
    }
    return unknown;
}

bool ls_verify_unknown(char place[LS_JSON_PLACE], const cJSON *receipt)
{
    return has_unknown(place, receipt, "");
}
