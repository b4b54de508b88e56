/* On which CPUs the calling thread runs, and the threads that it makes. */
#ifndef SERVICE_AFFINITY_H
#define SERVICE_AFFINITY_H

#include <lockstep/status.h>

/* `list` as taskset -c has it, "0" or "0,2-3"; NULL: nothing is changed. Errors: LS_EINVAL. */
int affinity_set(const char *list, ls_error *err);

#endif
