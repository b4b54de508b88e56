/* SPDX-License-Identifier: MIT */
#include "device/fake_backend.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

fake_state fake;

void fake_reset(void)
{
    memset(&fake, 0, sizeof fake);
    fake.devices = 4;
    fake.reason = "no such card";
    fake.fail_open_at = fake.fail_bind_at = -1;
}

static void describe(const ls_device *device, ls_device_info *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "fake(%d)", ((const fake_device *)device)->index);
    out->flags = LS_DEVICE_HOST_MEMORY;
    out->threads = 1;
}

static int bind(ls_device *base, ls_error *err)
{
    fake_device *device = (fake_device *)base;
    if (device->index == fake.fail_bind_at)
        return ls_fail(err, LS_EDEVICE, "fake(%d): cannot be bound", device->index);
    device->bound_by = pthread_self();
    device->bound++;
    return LS_OK;
}

static void close_device(ls_device *base)
{
    fake_device *device = (fake_device *)base;
    if (!device)
        return;
    device->closed_by = pthread_self();
    atomic_fetch_add(&device->closed, 1);
}

static const ls_device_ops ops = {
    .size = sizeof ops, .describe = describe, .bind = bind, .close = close_device};

static void probe(ls_backend_info *out)
{
    memset(out, 0, sizeof *out);
    out->devices = fake.devices;
    out->broken = fake.broken;
    snprintf(out->version, sizeof out->version, "fake 1.0");
    snprintf(out->reason, sizeof out->reason, "%s", fake.reason);
}

static int open_device(ls_device **out, const ls_device_request *request, ls_error *err)
{
    if (request->index == fake.fail_open_at)
        return ls_fail(err, LS_EDEVICE, "fake(%d): cannot be opened", request->index);
    fake_device *device = &fake.device[atomic_fetch_add(&fake.opened, 1)];
    device->base.ops = &ops;
    device->index = request->index;
    device->threads = request->threads;
    device->opened_by = pthread_self();
    *out = &device->base;
    return LS_OK;
}

const ls_backend fake_listed = {
    .abi = LS_PLUGIN_ABI,
    .size = sizeof(ls_backend),
    .name = "fake",
    .counted = 0,
    .probe = probe,
    .open = open_device,
};

const ls_backend fake_counted = {
    .abi = LS_PLUGIN_ABI,
    .size = sizeof(ls_backend),
    .name = "many",
    .counted = 1,
    .probe = probe,
    .open = open_device,
};
