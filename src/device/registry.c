/* SPDX-License-Identifier: MIT */
#include "device/registry.h"

#include "base/error.h"
#include "base/host.h"
#include "base/sized.h"

#include <stdio.h>
#include <string.h>

int ls_registry_create_empty(ls_registry **out, const ls_host *host, ls_error *err)
{
    int status = ls_host_check(host, err);
    *out = NULL;
    if (status)
        return status;
    ls_registry *registry = ls_alloc(host, sizeof *registry);
    if (!registry)
        return ls_fail(err, LS_ENOMEM, "out of memory for the list of back ends");
    registry->host = host;
    *out = registry;
    return LS_OK;
}

void ls_registry_destroy(ls_registry *registry)
{
    if (registry)
        ls_free(registry->host, registry);
}

int ls_registry_add(ls_registry *registry, const ls_backend *backend, ls_error *err)
{
    if (!registry || !backend)
        return ls_fail(err, LS_EINVAL, "ls_registry_add: no registry, or no back end");
    if (backend->abi != LS_PLUGIN_ABI || backend->size != sizeof *backend)
        return ls_fail(err, LS_EINVAL,
                       "a back end was built for plugin ABI %u, this library has %u: rebuild it",
                       (unsigned)backend->abi, (unsigned)LS_PLUGIN_ABI);
    if (!backend->name || !backend->probe || !backend->open)
        return ls_fail(err, LS_EINVAL, "a back end has no name, no `probe` or no `open`");
    if (ls_registry_find(registry, backend->name, strlen(backend->name)))
        return ls_fail(err, LS_EINVAL, "there already is a back end named '%s'", backend->name);
    if (registry->count == LS_BACKENDS_MAX)
        return ls_fail(err, LS_EINVAL, "more than %d back ends", LS_BACKENDS_MAX);
    registry->backend[registry->count++] = backend;
    return LS_OK;
}

const ls_backend *ls_registry_at(const ls_registry *registry, int index)
{
    return registry && index >= 0 && index < registry->count ? registry->backend[index] : NULL;
}

const ls_backend *ls_registry_find(const ls_registry *registry, const char *name, size_t length)
{
    for (int i = 0; i < registry->count; i++) {
        const char *known = registry->backend[i]->name;
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return registry->backend[i];
    }
    return NULL;
}

/* ---- lists of devices ------------------------------------------------------------------------ */

#define GRAMMAR "expected auto, cpu, cpu:COUNT, or KIND:INDEX,INDEX…, for example --devices cpu:2"

/* Writes the names of all back ends, such as "cpu, ref", for messages. */
static void list_kinds(char *text, size_t size, const ls_registry *registry)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < registry->count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "",
                                 registry->backend[i]->name);
}

/* Writes the error for a back end without devices. */
static int absent(const ls_backend *backend, const ls_backend_info *info, ls_error *err)
{
    return ls_fail(err, LS_EDEVICE, "no %s device: %s (%s)", backend->name, info->reason,
                   info->broken ? "broken" : "absent");
}

/* Takes all devices of a back end, but at most `max` if `max` is not 0. */
static int take_all(ls_device_list *out, const ls_backend *backend, int max, ls_error *err)
{
    ls_backend_info info = {0};
    backend->probe(&info);
    if (info.devices < 1)
        return absent(backend, &info, err);
    int count = info.devices < LS_DEVICES_MAX ? info.devices : LS_DEVICES_MAX;
    out->capped = max > 0 && count > max;
    if (out->capped)
        count = max;
    out->backend = backend;
    out->allowed = info.devices;
    out->count = count;
    for (int i = 0; i < count; i++)
        out->index[i] = i;
    return LS_OK;
}

/* Takes the devices of the first back end, in the registry's order, that has devices. */
static int take_auto(ls_device_list *out, const ls_registry *registry, int max, ls_error *err)
{
    for (int i = 0; i < registry->count; i++)
        if (take_all(out, registry->backend[i], max, NULL) == LS_OK)
            return LS_OK;
    return ls_fail(err, LS_EDEVICE, "no back end has a device; the program's --version says why");
}

/* Reads a decimal number of at most LS_DEVICES_MAX at *text and advances *text. Returns false if
 * there is no such number. */
static bool read_number(int *out, const char **text)
{
    const char *p = *text;
    long value = 0;
    while (*p >= '0' && *p <= '9' && value <= LS_DEVICES_MAX)
        value = value * 10 + (*p++ - '0');
    if (p == *text || value > LS_DEVICES_MAX)
        return false;
    *out = (int)value;
    *text = p;
    return true;
}

/* Reads the number of devices of a back end whose devices are alike, such as the 4 of "cpu:4". */
static int take_counted(ls_device_list *out, const char *numbers, const char *spec, ls_error *err)
{
    int count;
    size_t digits = strspn(numbers, "0123456789");
    if (digits == 0 || numbers[digits] != '\0')
        return ls_fail(err, LS_EINVAL, "cannot read devices '%.64s': " GRAMMAR, spec);
    if (!read_number(&count, &numbers))
        return ls_fail(err, LS_EINVAL,
                       "devices '%.64s' asks for too many: at most %d work together", spec,
                       LS_DEVICES_MAX);
    if (count == 0)
        return ls_fail(err, LS_EINVAL, "devices '%s' asks for none: at least 1 is needed", spec);
    out->count = count;
    for (int i = 0; i < count; i++)
        out->index[i] = i;
    return LS_OK;
}

/* Reads the list of devices of a back end whose devices have identities, such as the 0,1 of
 * "cuda:0,1". */
static int take_listed(ls_device_list *out, const char *numbers, const char *spec, ls_error *err)
{
    for (out->count = 0; out->count < LS_DEVICES_MAX; numbers++) {
        int index;
        if (!read_number(&index, &numbers))
            break;
        if (index >= out->allowed)
            return ls_fail(err, LS_EDEVICE, "devices '%.64s': there is no %s:%d, only 0 … %d", spec,
                           out->backend->name, index, out->allowed - 1);
        out->index[out->count++] = index;
        if (*numbers == '\0')
            return LS_OK;
        if (*numbers != ',')
            break;
    }
    return ls_fail(err, LS_EINVAL, "cannot read devices '%.64s': " GRAMMAR, spec);
}

int ls_device_list_parse(ls_device_list *out, const ls_registry *registry, const char *spec,
                         int max, ls_error *err)
{
    memset(out, 0, sizeof *out);
    if (!spec || strcmp(spec, "auto") == 0)
        return take_auto(out, registry, max, err);
    size_t kind = strcspn(spec, ":");
    out->backend = ls_registry_find(registry, spec, kind);
    if (!out->backend) {
        char kinds[128];
        list_kinds(kinds, sizeof kinds, registry);
        return ls_fail(err, LS_EINVAL, "cannot read devices '%.64s': " GRAMMAR "; kinds here: %s",
                       spec, kinds);
    }
    if (spec[kind] == '\0')
        return take_all(out, out->backend, max, err);
    ls_backend_info info = {0};
    out->backend->probe(&info);
    out->allowed = info.devices;
    if (info.devices < 1)
        return absent(out->backend, &info, err);
    const char *numbers = spec + kind + 1;
    return out->backend->counted ? take_counted(out, numbers, spec, err)
                                 : take_listed(out, numbers, spec, err);
}

void ls_device_list_first(char *out, size_t size, const ls_backend *backend, int count)
{
    size_t used = (size_t)snprintf(out, size, "%.32s:", backend->name);
    if (backend->counted)
        snprintf(out + used, size - used, "%d", count);
    for (int i = 0; !backend->counted && i < count && used + 6 < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%d", i ? "," : "", i);
}
