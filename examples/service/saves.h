/* Checkpoints of the trainer. What a save has seen of the journal is part of its name, so that weights and
 * position are on the disk together or not at all:
 *
 *     <state>/saves/step-000000001200-example-000000051234.safetensors
 */
#ifndef SERVICE_SAVES_H
#define SERVICE_SAVES_H

#include <lockstep/trainer.h>

/* Loads the newest save that is whole; damaged ones are set aside with a warning. Without any, the position
 * is 0 and the weights stay. Errors: LS_EDATA (none is whole), LS_ECONFIG (of another recipe), LS_EIO. */
int saves_load(ls_trainer *trainer, const char *directory, uint64_t *position, ls_error *err);

/* How many examples the saves have seen, whole ones or not: so many were on the disk. */
int saves_known(const char *directory, uint64_t *position, ls_error *err);

/* Saves the trainer, which has seen the examples before `position`, and removes all but the newest two.
 * Errors: those of ls_trainer_save. */
int saves_write(ls_trainer *trainer, const char *directory, uint64_t position, ls_error *err);

#endif
