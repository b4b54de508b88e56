/* liblockstep-cuda.so over the doubles: what a rehearsal of the suite loads. The world begins
 * with the library and ends with the program, which then says what the doubles complained about.
 * */
#include "doubles/control.h"

#include <stdio.h>
#include <unistd.h>

static void begin(void) __attribute__((constructor));
static void end(void) __attribute__((destructor));

static void begin(void)
{
    dbl_begin(&(dbl_options){.mode = DBL_THREADS,
                             .devices = 1,
                             .memory_bytes = (size_t)4 << 30,
                             .patience_ns = 300 * (uint64_t)1000000000});
}

static void end(void)
{
    const char *wrong = dbl_end();
    if (!wrong[0])
        return;
    fprintf(stderr, "the doubles complain:\n%s\n", wrong);
    _exit(1);
}
