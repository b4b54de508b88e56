/* SPDX-License-Identifier: MIT */
/* Compares the file of weights with the receipt, or with the end of a replay (verification.h).
 *
 * The file must be the one that the program writes for these weights, byte by byte, except for a
 * threshold, which `eval --keep` adds to the description of the model; the verdict names it. */
#include "train/verification.h"

#include "base/error.h"
#include "base/host.h"
#include "config/card.h"
#include "engine/view.h"
#include "nn/safetensors.h"

#include <string.h>
#include <sys/stat.h>

#define HEADER_MOST (100u << 20) /* greatest size of a safetensors file's header in bytes */

/* Returns whether the file is larger than any file of the model's weights. It is not hashed then: a
 * file with holes can be of any size. */
static bool is_too_large(const verification *v)
{
    struct stat s;
    const uint64_t most = (uint64_t)v->trainer->model->floats * sizeof(float) + HEADER_MOST;
    return stat(v->claim.weights, &s) == 0 && S_ISREG(s.st_mode) && (uint64_t)s.st_size > most;
}

/* Computes the SHA-256 of the file that the program writes for `weights` at the end of the run.
 * `threshold`: that of its description; NULL: none. `checksum` false: without a checksum, as
 * earlier versions wrote it. */
static int hash_file(char out[LS_SHA256_HEX], const verification *v, const float *weights,
                     const double *threshold, bool checksum, ls_error *err)
{
    ls_network model = *v->trainer->model;
    char *card = NULL;
    if (threshold && model.card) {
        card = ls_card_with_threshold(model.card, *threshold, v->host);
        if (!card)
            return ls_fail(err, LS_ENOMEM, "out of memory for the model's card");
        model.card = card;
    }
    int status = ls_safetensors_sha256(out, &model, weights, v->claim.end, checksum, v->host, err);
    ls_free(v->host, card);
    return status;
}

int ls_verify_is_file_of(bool *is, const verification *v, const float *weights,
                         const double *threshold, const char *sha256, ls_error *err)
{
    char mine[LS_SHA256_HEX];
    int status = hash_file(mine, v, weights, threshold, true, err);
    *is = status == LS_OK && strcmp(mine, sha256) == 0;
    if (status || *is)
        return status;
    status = hash_file(mine, v, weights, threshold, false, err);
    *is = status == LS_OK && strcmp(mine, sha256) == 0;
    return status;
}

/* Reads the threshold in the file's description of the model. Returns false if it has none. */
static bool read_threshold(double *out, const ls_tensor_file *file, const verification *v)
{
    const char *card = ls_tensor_file_card(file);
    ls_json *doc = NULL;
    const cJSON *node = NULL;
    if (card && ls_json_parse(&doc, "the card", card, strlen(card), v->host, NULL) == LS_OK)
        node = member(ls_json_root(doc), "threshold");
    const bool found = cJSON_IsNumber(node);
    *out = found ? node->valuedouble : 0;
    ls_json_destroy(doc);
    return found;
}

/* Sets *kept: the file, whose tensors are in v->values[0] and whose SHA-256 is `found`, is the file
 * with the SHA-256 `wanted` to which a threshold was added. Keeps the threshold for the verdict. */
static int find_threshold(bool *kept, verification *v, const ls_tensor_file *file,
                          const char *found, const char *wanted, ls_error *err)
{
    bool with = false;
    double threshold;
    *kept = false;
    if (!read_threshold(&threshold, file, v))
        return LS_OK;
    int status = ls_verify_is_file_of(kept, v, v->values[0], NULL, wanted, err);
    if (status == LS_OK && *kept)
        status = ls_verify_is_file_of(&with, v, v->values[0], &threshold, found, err);
    *kept = *kept && with;
    if (*kept)
        v->threshold = threshold;
    return status;
}

/* Notes that the file is another one than that of the receipt. */
static void note_other_than_receipt(verification *v, const ls_tensor_file *file,
                                    const char *weights_sha256)
{
    char mine[LS_SHA256_HEX], steps[100] = "";
    uint64_t end;
    ls_error why;
    ls_weights_sha256(mine, v->trainer->model, v->values[0]);
    const bool same = weights_sha256 && strcmp(mine, weights_sha256) == 0;
    if (ls_safetensors_read_steps(&end, file, &why) == LS_OK && end != v->claim.end &&
        end != LS_STEPS_UNKNOWN)
        snprintf(steps, sizeof steps, "; they are those after step %llu, not after step %llu",
                 (unsigned long long)end, (unsigned long long)v->claim.end);
    ls_verify_differs(v, "weights.safetensors",
                      "weights.safetensors is another file than that of the receipt "
                      "(weights_file_sha256)%s%s",
                      same ? ": it has the receipt's weights (weights_sha256), but describes them "
                             "in another way, or has other tensors too"
                           : ", with other weights (weights_sha256)",
                      steps);
}

/* Notes that the file is another one than that of the replay, whose tensors it should have. */
static void note_other_than_replay(verification *v)
{
    char tensors[400] = "";
    ls_verify_name_tensors(tensors, sizeof tensors, v, v->values, 0);
    if (tensors[0])
        ls_verify_differs(v, "weights.safetensors", "the replay ends with other weights: %s",
                          tensors);
    else
        ls_verify_differs(
            v, "weights.safetensors",
            "weights.safetensors has the weights of the replay, but describes the model in "
            "another way, or has other tensors too");
}

/* Compares a file that is not the one with the SHA-256 `wanted`, and whose tensors are in
 * v->values[0]. */
static int compare_read(verification *v, const ls_tensor_file *file, const char *found,
                        const char *wanted, ls_error *err)
{
    const cJSON *receipt = ls_verify_receipt(v);
    bool kept;
    int status = find_threshold(&kept, v, file, found, wanted, err);
    if (status || kept)
        return status;
    if (receipt)
        note_other_than_receipt(v, file, cJSON_GetStringValue(member(receipt, "weights_sha256")));
    else
        note_other_than_replay(v);
    return LS_OK;
}

/* Reads and compares a file that is not the one with the SHA-256 `wanted`. */
static int compare_other(verification *v, const char *found, const char *wanted, ls_error *err)
{
    ls_tensor_file *file;
    ls_error why;
    int status = ls_tensor_file_open(&file, v->claim.weights, v->host, &why);
    if (status == LS_OK)
        status = ls_safetensors_read(v->values[0], file, v->trainer->model, "", v->host, &why);
    if (status == LS_OK)
        status = compare_read(v, file, found, wanted, err);
    else {
        ls_verify_differs(v, "weights.safetensors",
                          "weights.safetensors is another file than that of the %s, and cannot be "
                          "read: %.400s",
                          ls_verify_receipt(v) ? "receipt (weights_file_sha256)" : "replay",
                          why.text);
        status = LS_OK;
    }
    ls_tensor_file_close(file);
    return status;
}

int ls_verify_weights(verification *v, ls_error *err)
{
    const cJSON *receipt = ls_verify_receipt(v);
    const char *claimed = cJSON_GetStringValue(member(receipt, "weights_file_sha256"));
    char wanted[LS_SHA256_HEX] = "", found[LS_SHA256_HEX];
    bool same;
    ls_error why;
    if (!v->claim.weights[0])
        return LS_OK;
    if (is_too_large(v)) {
        ls_verify_differs(
            v, "weights.safetensors",
            "weights.safetensors is larger than a file of the model's weights can be");
        return LS_OK;
    }
    if (ls_sha256_of_file(found, v->claim.weights, "a file of weights", &why) != LS_OK) {
        ls_verify_differs(v, "weights.safetensors", "the weights cannot be read: %.400s", why.text);
        return LS_OK;
    }
    memcpy(v->verdict.weights_file_sha256, found, sizeof found);
    if (receipt) {
        snprintf(wanted, sizeof wanted, "%s", claimed ? claimed : "");
        return strcmp(found, wanted) == 0 ? LS_OK : compare_other(v, found, wanted, err);
    }
    const float *weights = ls_engine_weights(v->trainer->engine)->canonical;
    int status = ls_verify_is_file_of(&same, v, weights, NULL, found, err);
    if (status == LS_OK && !same)
        status = hash_file(wanted, v, weights, NULL, true, err);
    return status || same ? status : compare_other(v, found, wanted, err);
}
