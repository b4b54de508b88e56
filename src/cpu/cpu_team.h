/* A worker's team: its own thread and helpers that divide the outputs of an op among them.
 *
 *     ls_team_run(team, rows, compute_row, &pass);   calls compute_row(&pass, i) for every i < rows
 *
 * What is divided are outputs, never a sum: call i alone writes what belongs to i, so a team of any size gives
 * the same bits. Calls are handed out one by one, in ascending order, to whoever is free; a helper that has
 * no CPU just now takes none, and nobody waits for it. Make an item some microseconds of work.
 *
 * Why that is safe. One word holds how many items the job has and which is the next. The worker writes the job,
 * then the word (release); a claim is a read-modify-write of the word (acquire), so whoever gets an item sees
 * the job and all that the worker wrote before it, whichever claims came between (they continue the release
 * sequence). A claim behind the last item gets none, and looks at nothing. When an item is done, it is counted
 * (release); the worker waits until all are (acquire), and so sees all outputs. The job is only written anew
 * behind that, when no item is claimed and not done: a helper that was held up between looking at the word and
 * its claim finds an item of the job that is there then, or none. Helpers without work spin for a moment and
 * park (sync/park.h).
 *
 * Threads: one thread at a time creates, runs and destroys. Helpers take no signals but those of their own
 * faults, inherit the creator's CPUs and floating-point modes, and are gone when destroy returns. In the child of
 * a fork there are none: run does the work alone, destroy only frees.
 */
#ifndef CPU_CPU_TEAM_H
#define CPU_CPU_TEAM_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdint.h>

typedef struct ls_team ls_team;

/* Computes item `index`. Must not run the team it is called by. */
typedef void ls_team_work(void *arg, uint32_t index);

/* A team of `threads` ≥ 1, the caller's among them. Errors: LS_EINVAL, LS_ENOMEM, LS_ESYSTEM (the system
 * refuses a thread). */
int ls_team_create(ls_team **out, int threads, const ls_host *host, ls_error *err);

/* Ends and joins the helpers. NULL is allowed. */
void ls_team_destroy(ls_team *team);

/* How many threads there are; 1 for NULL, which is a team of the caller alone. */
int ls_team_size(const ls_team *team);

/* Calls work(arg, i) for every i < items, and returns when all are done. Allocates nothing. */
void ls_team_run(ls_team *team, uint32_t items, ls_team_work *work, void *arg);

#endif
