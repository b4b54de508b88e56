/* SPDX-License-Identifier: MIT */
/* trainer init DATA --from FILE: what the config has to say about a trained network with which
 * training begins. */
#ifndef CLI_INIT_FROM_H
#define CLI_INIT_FROM_H

#include "cli/cli.h"
#include "config/origin.h"
#include "data/inspect.h"
#include "json/writer.h"

/* The network of --from. */
typedef struct init_from {
    const char *path; /* the value of --from; NULL: there is none */
    ls_origin origin;
    const char
        *guessed;   /* the keys of `data` that are a guess, as the start of a sentence; or NULL */
    char *absolute; /* the absolute path, if the config is in another directory; or NULL */
    cli_list set;   /* the assignments of `--set`, after those that the network needs */
    char text[2][160]; /* the assignments that the network needs */
} init_from;

/* Reads the network, if there is one. `to`: the config's path; NULL: not known. `set`: the
 * assignments of --set. The caller calls init_from_end, also after a failure. Errors: those of
 * ls_origin_read. */
int init_from_begin(init_from *from, const char *to, const cli_list *set, const ls_host *host,
                    ls_error *err);
/* Gives pictures that were looked at the size and channels that the network reads, unless the user
 * has set these, and fills from->set. `set`: the assignments of --set. Errors: LS_EUNSUPPORTED if
 * the network reads other rows than the data have. */
int init_from_fit(init_from *from, ls_inspection *look, const cli_list *set, ls_error *err);
/* Writes the keys model, init, freeze, freeze_epochs and lr_factors, and how long the network is
 * trained and at which rate. `rows`: number of training rows. Errors: LS_ENOMEM. */
int init_from_put(ls_json_writer *w, const init_from *from, uint32_t rows, ls_error *err);
/* Prints what is taken over, and how it is trained. `data`: the object of the config. `outputs`:
 * number of classes or targets. */
void init_from_print(const init_from *from, const cJSON *config, int outputs, FILE *stream);
void init_from_end(init_from *from);

#endif
