/* SPDX-License-Identifier: MIT */
/* Digests: how the workers of a run find out in every step that their replicas are still equal.
 *
 * WHAT IS SUMMED. The state of a replica is the weights, the optimizer's states (momentum, moving
 * averages) and the running statistics of batch norm. An update reads all of them to change them.
 * While it does so it also sums what it reads, *before* the change (<lockstep/sys/plugin.h> has the
 * formula, ls_digest_weight computes it). Frozen parameters and statistics, which no update reads,
 * are summed beside it. So the sum of step n is about the state after step n − 1, that is, about
 * the very numbers from which step n has computed its gradient. A step that is skipped has no
 * update; a pass of its own then computes a checksum of the state. Otherwise the sum causes no
 * memory traffic, because it uses numbers that the update needs in the first-level cache anyway.
 *
 * THE CHAIN. A worker keeps one number, its *digest*: after step n it is d(n) = d(n − 1) · f +
 * s(n), where s(n) is the sum of step n and f is odd. The product with an odd number is a
 * bijection, so once two digests differ they stay different, as long as the later sums are equal.
 * Therefore it does not matter that a flipped bit is often rounded away in the next update: the
 * digest still says that the gradient of one step came from other weights.
 *
 * EVERY FLIPPED BIT CHANGES THE SUM. Bit k < 32 of the float at position p counts ±2ᵏ·w, where the
 * weight w of the position is odd. 2ᵏ·w is not divisible by 2⁶⁴, so the sum changes. Two flipped
 * bits in the same lane (p mod 16) of different vectors cannot cancel either: they count ±2ᵏ·(2r +
 * 1) and ±2ˡ·(2q + 1), up to a common odd factor, with r ≠ q below 2³¹. If k ≠ l, the powers of two
 * differ; if k = l, the sum or difference is a non-zero number below 2⁶⁴. More than two flipped
 * bits cancel only if their positions and bits happen to fulfil an exact equation.
 *
 * THE ORDER DOES NOT MATTER. Integers modulo 2⁶⁴ can be added in any order. So the sum is the same
 * on every instruction set, for any number of threads of a worker, and for an update that works
 * piece by piece.
 *
 * ON A GPU the kernels of the updates sum. The sum stays on the GPU, as the total over all steps so
 * far, and is copied to the host after each update, without a wait. It arrives when the worker
 * waits for the result of the next step. Therefore a worker on a GPU shows d(n − 2) in the merge of
 * step n, one step less than below; it does so even if it happens to have d(n − 1) already, because
 * other workers perhaps do not.
 *
 * WHAT IS COMPARED WHEN. In the merge of step n every worker shows d(n − 1) beside its partial sums
 * (ls_merge_begin), and in a run of several processes the header of the sum over the processes
 * contains the digest (cluster/progress.h). All workers and all processes see all digests, so all
 * reach the same verdict, before any of them applies step n. A difference that arises in the memory
 * after step n − 1 is in s(n), and is found in the merge of step n + 1. The steps up to n + 1 might
 * be saved before: therefore whoever saves, shares or ends first computes the checksum of the state
 * that is to be written, in a pass of its own, and compares checksums and digests of all workers
 * and processes (ls_agreement_compare in train/agreement.h).
 *
 * MEMORY ORDER. A rank writes its digest into the group before it arrives at the first meeting of a
 * merge, and the other ranks read it after that meeting and before they arrive at the next one. So
 * the barrier orders these accesses as it orders those of the partial sums (merge/group.h); a rank
 * that wakes late in an aborted group reads the digests of that group, which nobody writes any
 * more. Threads of one worker add their parts of a sum to an atomic number; the end of the team's
 * job orders these additions before the worker reads the number. On a GPU each block of threads
 * adds its part with one atomic addition, which needs no order, because the sum is the same in any
 * order; the copy to the host follows the kernel in the same stream, and the host reads the copy
 * after it has waited for that stream. The digest for other processes is handed over like the other
 * fields of an order (cluster/cluster.h, "Memory order", 1).
 *
 * WHAT IS NOT SEEN. All workers have the same digests if all apply the same wrong sum: a worker
 * that computes a wrong gradient from right weights is not noticed. A worker that is alone has
 * nothing to compare with, and sums nothing. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_DIGEST_FACTOR UINT64_C(0x9e3779b97f4a7c15) /* f; odd */

/* A source that compiles ls_digest_weight for another kind of device defines this before. */
#ifndef LS_DIGEST_FN
#define LS_DIGEST_FN static inline
#endif

/* Returns the odd number by which the bits of the float at position `at` are multiplied. */
LS_DIGEST_FN uint64_t ls_digest_weight(size_t at)
{
    uint64_t weight = 2 * (uint64_t)(at / 16) + 1;
    for (size_t lane = 0; lane <= at % 16; lane++)
        weight *= LS_DIGEST_FACTOR;
    return weight;
}

/* Returns the digest after a step whose update has the sum `sum`. */
static inline uint64_t ls_digest_next(uint64_t digest, uint64_t sum)
{
    return digest * LS_DIGEST_FACTOR + sum;
}

/* Returns whether the `count` digests are equal. */
bool ls_digests_agree(const uint64_t *digest, int count);

/* Returns the name of copy number `i` for a message; valid until the next call. */
typedef const char *ls_digest_name(void *user, int i);

/* Writes what is wrong with digests that differ to `out`: names the copies that differ from a
 * majority. If there is no majority, as with two copies, says that it is unknown which is wrong. */
void ls_digest_explain(char *out, size_t size, const uint64_t *digest, int count,
                       ls_digest_name *name, void *user);

#endif
