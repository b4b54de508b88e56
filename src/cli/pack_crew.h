/* Images that are decoded on all cores. Inside of pack.c. */
#ifndef CLI_PACK_CREW_H
#define CLI_PACK_CREW_H

#include "cli/pack_list.h"

enum { CLI_NAMED = 20 /* broken images */ };

/* Images that one thread has decoded, side by side. */
typedef struct cli_chunk {
    const cli_entry *entry;
    size_t count;
    bool ready, ends_block; /* at its end, broken images end the packing */
    uint8_t *pixels;
    char *failed;                /* [count] */
    uint64_t sum[3], squares[3]; /* of the samples of each channel */
    ls_error why[CLI_NAMED];
    size_t broken;
} cli_chunk;

typedef struct cli_crew cli_crew;

/* Errors: LS_ENOMEM. */
int cli_crew_make(cli_crew **out, cli_packing *k);
void cli_crew_free(cli_crew *w);

/* Threads take chunks of the list in turns; the caller awaits them in their order, until there are none (NULL),
 * gives each back, and ends the threads. */
void cli_crew_begin(cli_crew *w, const cli_listing *list);
cli_chunk *cli_crew_await(cli_crew *w);
void cli_crew_give_back(cli_crew *w, cli_chunk *c);
void cli_crew_end(cli_crew *w);

#endif
