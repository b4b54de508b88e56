/* SPDX-License-Identifier: MIT */
/* The devices whose parity with PyTorch is checked: every family of kernels in the build. */
#ifndef PARITY_PARITY_DEVICES_H
#define PARITY_PARITY_DEVICES_H

#include <lockstep/sys/plugin.h>

typedef struct parity_device {
    const char *name;
    int (*open)(ls_device **out, ls_error *err);
} parity_device;

extern const parity_device parity_devices[];
extern const int parity_device_count;

#endif
