/* SPDX-License-Identifier: MIT */
/* State hashes and the chain that they form (chain.h). */
#include "checkpoint/chain.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <string.h>

/* ---- the state hash ------------------------------------------------------------------------- */

/* Hashes the text of the state: the position, and the keys of the recipe that differ from their
 * defaults. */
static int hash_text(ls_sha256 *hash, const ls_hashed *s, ls_error *err)
{
    ls_json_writer w;
    size_t length;
    ls_json_writer_init(&w, 0, s->config->host);
    ls_json_open_object(&w, NULL);
    ls_json_put_uint(&w, "steps", s->position->steps);
    if (s->position->lr > 0)
        ls_json_put_double(&w, "lr", s->position->lr);
    ls_config_write_hashed(&w, "recipe", s->config, s->shards, ls_config_keys);
    ls_json_close(&w);
    const char *text = ls_json_writer_text(&w, &length, err);
    if (text) {
        ls_sha256_update(hash, text, length);
        ls_sha256_update(hash, "\n", 1);
    }
    ls_json_writer_fini(&w);
    return text ? LS_OK : LS_ENOMEM;
}

static void hash_tensor(ls_sha256 *hash, const char *prefix, const ls_param *p, const float *values)
{
    char name[160];
    const int length =
        snprintf(name, sizeof name, "%s%s %llu\n", prefix, p->name, (unsigned long long)p->count);
    ls_sha256_update(hash, name, (size_t)length);
    ls_floats_hash(hash, values + p->offset, p->count);
}

int ls_state_sha256(uint8_t out[LS_SHA256_BYTES], const ls_hashed *s, ls_error *err)
{
    static const char domain[] = "lockstep state 2\n";
    const ls_optimizer *optimizer = &s->config->optimizer;
    char prefix[LS_STATE_PREFIX];
    ls_sha256 hash;
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, domain, sizeof domain - 1);
    int status = hash_text(&hash, s, err);
    if (status)
        return status;
    for (int i = 0; i < s->model->params + s->model->stats; i++)
        hash_tensor(&hash, "", s->model->tensor[i], s->values.weights);
    for (int k = 0; k < ls_optimizer_states(optimizer); k++) {
        ls_name_state(prefix, optimizer, k);
        for (int i = 0; i < s->model->params; i++)
            hash_tensor(&hash, prefix, s->model->param[i], s->values.slot[k]);
    }
    ls_sha256_final(&hash, out);
    return LS_OK;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static int hash_form(ls_sha256 *hash, const ls_dataset_info *info, const ls_host *host,
                     ls_error *err)
{
    static const char domain[] = "lockstep rows 1\n";
    const int shape[] = {info->channels, info->height, info->width};
    ls_json_writer w;
    size_t length;
    ls_json_writer_init(&w, 0, host);
    ls_json_open_object(&w, NULL);
    ls_json_put_uint(&w, "rows", info->rows);
    ls_json_open_array(&w, "shape");
    for (int i = 0; i < 3; i++)
        ls_json_put_int(&w, NULL, shape[i]);
    ls_json_close(&w);
    ls_json_put_string(&w, "type", info->row_type == LS_ROW_U8 ? "u8" : "f32");
    ls_json_put_int(&w, "targets", info->targets);
    ls_json_put_int(&w, "classes", info->classes);
    ls_json_put_bool(&w, "weighted", info->weighted);
    ls_json_close(&w);
    const char *text = ls_json_writer_text(&w, &length, err);
    ls_sha256_update(hash, domain, sizeof domain - 1);
    if (text) {
        ls_sha256_update(hash, text, length);
        ls_sha256_update(hash, "\n", 1);
    }
    ls_json_writer_fini(&w);
    return text ? LS_OK : LS_ENOMEM;
}

static void hash_class(ls_sha256 *hash, int32_t class)
{
    uint8_t bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)((uint32_t) class >> 8 * i);
    ls_sha256_update(hash, bytes, sizeof bytes);
}

/* Hashes row number `row`. `values` and `target`: memory for one row and its target. */
static int hash_row(ls_sha256 *hash, const ls_dataset *rows, uint32_t row, void *values,
                    void *target, ls_error *err)
{
    const ls_dataset_info *info = ls_dataset_describe(rows);
    const size_t bytes = ls_dataset_image_bytes(rows);
    int status = ls_dataset_read(rows, &row, 1, values, target, err);
    if (status)
        return status;
    if (info->row_type == LS_ROW_U8)
        ls_sha256_update(hash, values, bytes);
    else
        ls_floats_hash(hash, values, bytes / sizeof(float));
    if (info->targets > 0)
        ls_floats_hash(hash, target, (size_t)info->targets);
    else
        hash_class(hash, *(const int32_t *)target);
    const ls_dataset_view view = ls_dataset_resident(rows);
    if (view.weights)
        ls_floats_hash(hash, view.weights + (view.row ? view.row[row] : row), 1);
    return LS_OK;
}

int ls_rows_sha256(uint8_t out[LS_SHA256_BYTES], const ls_dataset *rows, const ls_host *host,
                   ls_error *err)
{
    const size_t values = ls_dataset_image_bytes(rows), target = ls_dataset_target_bytes(rows);
    void *memory[] = {ls_alloc(host, values + 1), ls_alloc(host, target + 1)};
    ls_sha256 hash;
    ls_sha256_init(&hash);
    int status = memory[0] && memory[1] ? hash_form(&hash, ls_dataset_describe(rows), host, err)
                                        : ls_fail(err, LS_ENOMEM, "out of memory for a row");
    for (uint32_t i = 0; i < ls_dataset_rows(rows) && status == LS_OK; i++)
        status = hash_row(&hash, rows, i, memory[0], memory[1], err);
    ls_sha256_final(&hash, out);
    ls_free(host, memory[0]);
    ls_free(host, memory[1]);
    return status;
}

/* ---- positions ------------------------------------------------------------------------------ */

/* Returns the distance of the positions after more than `steps` steps. */
static uint64_t distance(uint64_t steps, uint32_t batch_size)
{
    const uint64_t rows = batch_size > 0 ? batch_size : 1;
    uint64_t apart = (LS_CHAIN_ROWS + rows - 1) / rows;
    apart = apart < LS_CHAIN_STEPS ? LS_CHAIN_STEPS : apart;
    while (steps / apart >= LS_CHAIN_DENSE)
        apart *= 2;
    return apart;
}

uint64_t ls_chain_next(uint64_t steps, uint32_t batch_size)
{
    const uint64_t apart = distance(steps, batch_size);
    return (steps / apart + 1) * apart;
}

bool ls_chain_has(uint64_t steps, uint32_t batch_size)
{
    return steps > 0 && ls_chain_next(steps - 1, batch_size) == steps;
}

uint32_t ls_chain_count(uint64_t steps, uint32_t batch_size)
{
    uint32_t count = 0;
    for (uint64_t at = ls_chain_next(0, batch_size); at <= steps;
         at = ls_chain_next(at, batch_size))
        count++;
    return count;
}

/* ---- the chain ------------------------------------------------------------------------------ */

void ls_chain_add(ls_chain *chain, const uint8_t state[LS_SHA256_BYTES])
{
    memcpy(chain->state[chain->count++], state, LS_SHA256_BYTES);
}

void ls_chain_follow(uint8_t out[LS_SHA256_BYTES], const uint8_t link[LS_SHA256_BYTES],
                     uint64_t steps, const uint8_t state[LS_SHA256_BYTES])
{
    uint8_t position[8];
    ls_sha256 hash;
    for (int i = 0; i < 8; i++)
        position[i] = (uint8_t)(steps >> 8 * i);
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, link, LS_SHA256_BYTES);
    ls_sha256_update(&hash, position, sizeof position);
    ls_sha256_update(&hash, state, LS_SHA256_BYTES);
    ls_sha256_final(&hash, out);
}

void ls_chain_link(uint8_t out[LS_SHA256_BYTES], const ls_chain *chain, uint32_t count,
                   uint32_t batch_size)
{
    static const char domain[] = "lockstep chain 1\n";
    uint64_t at = 0;
    ls_sha256 hash;
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, domain, sizeof domain - 1);
    ls_sha256_update(&hash, chain->first, LS_SHA256_BYTES);
    ls_sha256_final(&hash, out);
    for (uint32_t i = 0; i < count; i++) {
        at = ls_chain_next(at, batch_size);
        ls_chain_follow(out, out, at, chain->state[i]);
    }
}
