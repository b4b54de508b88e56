/* The CPU back end: one row of the registry, and its devices. Each device is one worker's view of the same
 * CPU; an index only names the worker that uses it.
 *
 *     const ls_backend *cpu = ls_cpu_backend();
 *     ls_device_request r = {.size = sizeof r, .index = 0, .threads = 1};
 *     cpu->open(&device, &r, &err);
 *
 * Threads: more than plugin.h asks. Any may use and close a device, one at a time that sees what the last one did.
 */
#ifndef CPU_CPU_DEVICE_H
#define CPU_CPU_DEVICE_H

#include "cpu/cpu_team.h"
#include "cpu/lanes_kernels.h"

#include <lockstep/plugin.h>

typedef struct ls_cpu_device {
    ls_device device; /* first */
    const ls_host *host;
    const ls_lanes_kernels *kernels; /* those of the best instruction set, but in tests */
    ls_team *team;                   /* NULL: the worker alone */
    int index;
} ls_cpu_device;

/* The table. Static, constant, any thread. */
const ls_backend *ls_cpu_backend(void);

#endif
