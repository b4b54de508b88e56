/* From a word such as "auto", "cpu:4" or "cuda:0,1" to the devices it means. */
#ifndef DEVICE_DEVICE_LIST_H
#define DEVICE_DEVICE_LIST_H

#include "device/registry.h"

#define LS_DEVICES_MAX 1024

typedef struct ls_device_list {
    const ls_backend *backend; /* one kind: a group never mixes back ends */
    int count;
    int index[LS_DEVICES_MAX];
    int allowed; /* devices of this kind that are there: fewer than `count` is worth a warning */
    int capped;  /* non-zero: max_devices cut the list */
} ls_device_list;

/* `spec` as in ls_device_pool_options.devices; NULL: "auto". `max` cuts "auto" and a bare kind; 0:
 * no limit. Errors: LS_EINVAL for a word that cannot be read, LS_EDEVICE for devices that are not
 * there, saying why. Any thread. */
int ls_device_list_parse(ls_device_list *out, const ls_registry *registry, const char *spec,
                         int max, ls_error *err);

#endif
