/* The CPU back end: one row of the registry.
 *
 *     const ls_backend *cpu = ls_cpu_backend();
 *     ls_device *device;
 *     ls_device_request r = {.size = sizeof r, .index = 0, .threads = 1};
 *     cpu->open(&device, &r, &err);
 *
 * Every device of this back end is the same CPU; an index only names the worker that uses it.
 */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include <lockstep/plugin.h>

/* The table. Static, constant, any thread. */
const ls_backend *ls_cpu_backend(void);

#endif
