/* What a checkpoint says besides weights and optimizer state: a JSON text in its metadata. */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include "train/trainer.h"
#include "json/fields.h"

#define LS_STATE_SCHEMA 2

typedef struct ls_state {
    ls_position position;
    int epochs;                      /* finished */
    double test_loss, test_accuracy; /* NaN: none was measured */
    ls_sink_mark metrics;            /* in metrics.jsonl: behind what came before */
    int shards;
    const char *isa, *library; /* the bits depend on them */
    uint64_t train_rows, test_rows;
    uint32_t data_crc32; /* of images and labels */
    const cJSON *recipe; /* ls_config_write_recipe */
} ls_state;

/* Writes the state of the trainer as it stands. */
void ls_state_write(ls_json_writer *w, const struct ls_trainer *trainer,
                    const ls_sink_mark *metrics, uint32_t data_crc32);

/* Reads it; texts and the recipe belong to `doc`. Errors: LS_EDATA with file, line and column. */
int ls_state_read(ls_state *out, const ls_json *doc, ls_error *err);

/* Of all images and labels, 0.05 s for 50 MB. */
uint32_t ls_data_crc32(const struct ls_trainer *trainer);

#endif
