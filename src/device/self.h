/* Where the running code lies. */
#ifndef DEVICE_SELF_H
#define DEVICE_SELF_H

#include <stddef.h>

/* Writes the folder of the file that holds this code: liblockstep.so, or the program that it was
 * linked into; "" when the system does not say. Any thread. */
void ls_library_folder(char *out, size_t size);

/* Likewise the folder of the running program. */
void ls_program_folder(char *out, size_t size);

#endif
