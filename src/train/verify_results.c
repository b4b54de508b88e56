/* SPDX-License-Identifier: MIT */
/* Compares the end of a replay with the receipt and the records (verification.h). */
#include "train/verification.h"

#include "base/error.h"
#include "engine/view.h"
#include "train/run_records.h"

#include <string.h>

/* Replaces members of the replay's receipt that prove nothing by those of the prover: the version
 * of the program, and the names of files, whose contents are hashed. */
static void overlook(cJSON *mine, const cJSON *theirs)
{
    for (const ls_config_key *row = ls_config_keys; row->key; row++) {
        cJSON *own = cJSON_GetObjectItemCaseSensitive(mine, "recipe");
        const cJSON *other = member(theirs, "recipe");
        if (*row->object) {
            own = cJSON_GetObjectItemCaseSensitive(own, row->object);
            other = member(other, row->object);
        }
        if (!row->begins || !own || !cJSON_IsObject(other))
            continue;
        cJSON_DeleteItemFromObjectCaseSensitive(own, row->key);
        if (member(other, row->key))
            cJSON_AddItemToObject(own, row->key, cJSON_Duplicate(member(other, row->key), true));
    }
    if (cJSON_IsString(member(theirs, "program")))
        cJSON_ReplaceItemInObjectCaseSensitive(mine, "program",
                                               cJSON_Duplicate(member(theirs, "program"), true));
    ls_verify_leave_out(mine, theirs, "");
}

/* Checks that the receipt's file is the text that Lockstep writes, byte by byte. */
static int check_canonical(verification *v, ls_error *err)
{
    char mine[LS_SHA256_HEX], theirs[LS_SHA256_HEX];
    ls_json_writer w;
    ls_sha256 hash;
    size_t length;
    ls_json_writer_init(&w, 0, v->host);
    ls_json_put_node(&w, NULL, ls_verify_receipt(v));
    const char *text = ls_json_writer_text(&w, &length, err);
    int status = text ? ls_sha256_of_file(theirs, v->claim.receipt, "a receipt", err) : LS_ENOMEM;
    if (status == LS_OK) {
        ls_sha256_init(&hash);
        ls_sha256_update(&hash, text, length);
        ls_sha256_update(&hash, "\n", 1);
        ls_sha256_final_hex(&hash, mine);
        if (strcmp(mine, theirs) != 0)
            ls_verify_differs(v, "receipt.json",
                              "receipt.json is not in the form in which Lockstep writes "
                              "it (spaces, numbers or line ends)");
    }
    ls_json_writer_fini(&w);
    return status;
}

/* Gives the replay's receipt the hash of the file of weights that earlier versions write, if the
 * other receipt has it. */
static int take_former_hash(cJSON *mine, const verification *v, ls_error *err)
{
    const char *theirs = cJSON_GetStringValue(member(ls_verify_receipt(v), "weights_file_sha256"));
    cJSON *hash = cJSON_GetObjectItemCaseSensitive(mine, "weights_file_sha256");
    bool same = false;
    if (!theirs || !hash || strcmp(cJSON_GetStringValue(hash), theirs) == 0)
        return LS_OK;
    const float *weights = ls_engine_weights(v->trainer->engine)->canonical;
    int status = ls_verify_is_file_of(&same, v, weights, NULL, theirs, err);
    if (same)
        memcpy(hash->valuestring, theirs, LS_SHA256_HEX);
    return status;
}

static int compare_receipts(verification *v, ls_error *err)
{
    ls_json_difference found = {"", NULL, NULL};
    ls_json_writer w;
    ls_json_writer_init(&w, 0, v->host);
    int status = ls_compose_receipt(&w, v->trainer, &v->rows, err);
    cJSON *mine = status == LS_OK ? ls_json_written_tree(&w, "a receipt", err) : NULL;
    if (status == LS_OK && !mine)
        status = LS_ENOMEM;
    if (status == LS_OK)
        status = take_former_hash(mine, v, err);
    if (status == LS_OK) {
        overlook(mine, ls_verify_receipt(v));
        if (ls_json_differs(&found, mine, ls_verify_receipt(v)))
            ls_verify_value_differs(v, &found, "the replay has");
        status = check_canonical(v, err);
    }
    cJSON_Delete(mine);
    ls_json_writer_fini(&w);
    return status;
}

int ls_verify_results(verification *v, ls_error *err)
{
    int status = ls_record_run_end(v->trainer, LS_OK, "", err);
    if (status == LS_OK)
        ls_check_records_end(&v->records);
    if (status == LS_OK)
        status = v->claim.doc ? compare_receipts(v, err) : ls_verify_weights(v, err);
    return status;
}

void ls_verify_note_records(verification *v)
{
    const ls_records_check *r = &v->records;
    char place[40];
    if (!r->wrong[0])
        return;
    if (v->verdict.segment >= 0 && r->wrong_step > v->verdict.from &&
        r->wrong_step <= v->verdict.to)
        v->verdict.step = r->wrong_step;
    snprintf(place, sizeof place, "metrics.jsonl%s%.0d", r->wrong_line ? ":" : "", r->wrong_line);
    ls_verify_differs(v, place, "%s: %s", place, r->wrong);
}
