/* The version of this library. Before 1.0.0 every release may change the API. */
#ifndef LOCKSTEP_VERSION_H
#define LOCKSTEP_VERSION_H

#define LS_VERSION_MAJOR 0
#define LS_VERSION_MINOR 2
#define LS_VERSION_PATCH 0
#define LS_VERSION "0.2.0"

#endif
