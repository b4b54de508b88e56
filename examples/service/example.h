/* What an example is: a target, and a row behind it. Floats are those of the machine, little-endian. */
#ifndef SERVICE_EXAMPLE_H
#define SERVICE_EXAMPLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct example_form {
    uint32_t row_bytes;
    int floats;  /* a row is row_bytes / 4 floats, not an image of bytes */
    int targets; /* the target is so many floats; 0: one byte … */
    int classes; /* … which is below this */
    int bits;    /* targets are from 0 to 1 */
} example_form;

static inline size_t target_bytes(const example_form *form)
{
    return form->targets ? (size_t)form->targets * sizeof(float) : 1;
}

static inline size_t example_bytes(const example_form *form)
{
    return target_bytes(form) + form->row_bytes;
}

#endif
