/* How things are cut into parts: the inside name of <lockstep/split.h>. Any thread. */
#ifndef BASE_SPLIT_H
#define BASE_SPLIT_H

#include <lockstep/split.h>

#endif
