/* SPDX-License-Identifier: MIT */
/* A worker's team: the worker's own thread and *helper* threads, which divide the outputs of an op.
 * A *job* is one call of ls_team_run. An *item* of a job is a part of the op's outputs, such as one
 * row or a few channels. A thread *claims* an item before it computes it.
 *
 *     ls_team_run(team, rows, compute_row, &pass);   calls compute_row(&pass, i) for every i < rows
 *
 * A team divides outputs, never a sum: call i alone writes the outputs of item i. Therefore a team
 * of any size computes the same bits. Threads claim items one by one in ascending order. A helper
 * that has no CPU at the moment claims no item, and no thread waits for that helper. An item should
 * take some microseconds. A job costs a wake-up and a join, so an op should be one job, or few.
 *
 * *Parts* are items whose computation needs working memory (ls_team_run_parts). The items of such a
 * job are *slots*, one for each thread at most. Whoever computes a slot claims parts until none is
 * left, and computes all of them in the memory of that slot.
 *
 * Why this is safe. One atomic word holds the number of items of the current job (upper half) and
 * the next item to claim (lower half). Its only writers are the worker, which stores a new job's
 * word with release, and claims, which are read-modify-writes with acquire.
 * A second atomic word, `done`, counts the items of the job that have been computed.
 * 1. Publication. The worker writes the job's fields and sets `done` to 0, then stores the word. A
 *    claim that gets an item of a job reads a value that descends from that job's store through
 *    claims alone. The claim therefore reads from the release sequence of the store and
 *    synchronizes with that store: all that the worker wrote before the store happens before the
 *    item is computed, whichever claims came in between.
 * 2. Claims beyond the end. Each thread looks at the word before it claims. A thread that was
 *    delayed between its look and its claim gets an item of the job that is current at the claim,
 *    or a number beyond the last item. With a number beyond the last item it reads nothing of the
 *    job, and it sees at its next look that no items are left. The thread that claimed the last
 *    item also sees at its next look that no items are left. One job therefore has at most as many
 *    claims beyond the end as there are helpers.
 * 3. Completion. A thread computes an item, then adds 1 to `done` with release. Until the next job
 *    resets it, `done` is changed by these read-modify-writes alone, so each addition heads a
 *    release sequence that reaches the last one. The worker waits until an acquire load reads the
 *    number of items; that load synchronizes with every addition, and all outputs happen before
 *    ls_team_run returns.
 * 4. Reuse. The worker overwrites the job's fields and `done` only after step 3. Every read of the
 *    fields by a thread with an item precedes its addition to `done`, and every addition of the old
 *    job happens before the reset. No addition of the new job can precede the reset either, because
 *    its claim synchronizes with the new job's store, which follows the reset.
 * 5. Parts. A job of parts has a counter of its own, the next part, in memory of the worker. The
 *    worker sets the counter before the job begins, so by step 1 every claim of a part follows
 *    this store. The claims are relaxed read-modify-writes: each part is claimed once. What a part
 *    reads and writes is ordered like the reads and writes of the slot that computes it, which is
 *    an item (steps 1 and 3). The parts of one slot follow one another in one thread. A slot that
 *    begins after the last part has been claimed computes nothing. The counter is no longer used
 *    when ls_team_run_parts returns, because every slot has then ended.
 * Helpers without work spin for a moment and then park (sleep until they are woken). The argument
 * in sync/park.h shows that no wake-up is lost, because the word, `done` and `ended` (the team
 * is being destroyed) are changed before ls_park_wake is called.
 *
 * Threads: one thread at a time creates, runs and destroys a team. Helpers block all signals except
 * those of their own faults (such as SIGSEGV), inherit the creator's CPU affinity and
 * floating-point modes, and have ended when ls_team_destroy returns. In a child process, after
 * fork(), a team has no helpers: ls_team_run computes all items in the caller, and ls_team_destroy
 * only frees memory. */
#ifndef CPU_CPU_TEAM_H
#define CPU_CPU_TEAM_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdint.h>

typedef struct ls_team ls_team;

/* Computes item `index`. It must not run the team that calls it. */
typedef void ls_team_work(void *arg, uint32_t index);

/* Computes part `part` in the working memory of `slot`. No two calls with the same slot run at the
 * same time. It must not run the team that calls it. */
typedef void ls_team_part(void *arg, uint32_t slot, uint32_t part);

/* Counts of a team's work since its creation. A run in which the caller computes everything,
 * because it has one item or the team one thread, is not counted. */
typedef struct ls_team_counts {
    uint64_t jobs;  /* number of jobs; each job has one join */
    uint64_t items; /* number of items and of parts of these jobs */
} ls_team_counts;

/* Creates a team of `threads` threads, 1 to 1024, the caller's included. Returns LS_OK and the team
 * in `*out`, or LS_EINVAL, LS_ENOMEM, or LS_ESYSTEM if the system refuses to start a thread. */
int ls_team_create(ls_team **out, int threads, const ls_host *host, ls_error *err);

/* Ends and joins the helpers and frees the team. `team` may be NULL. */
void ls_team_destroy(ls_team *team);

/* Returns the number of threads, the caller's included: 1 for NULL, which stands for the caller
 * alone. */
int ls_team_size(const ls_team *team);

/* Returns into how many pieces, 1 to `most`, a caller should cut each of `items` items so that each
 * thread has at least two pieces; 1 if the team has one thread. */
uint32_t ls_team_cuts(const ls_team *team, uint32_t items, uint32_t most);

/* Calls work(arg, i) for every i < items and returns when all calls have returned. Allocates
 * nothing. */
void ls_team_run(ls_team *team, uint32_t items, ls_team_work *work, void *arg);

/* Calls work(arg, slot, i) for every i < parts, with slots below ls_team_size(team), and returns
 * when all calls have returned. Allocates nothing. */
void ls_team_run_parts(ls_team *team, uint32_t parts, ls_team_part *work, void *arg);

/* Returns the counts of a team; zeros for NULL. Thread: the one that runs the team. */
ls_team_counts ls_team_counted(const ls_team *team);

#endif
