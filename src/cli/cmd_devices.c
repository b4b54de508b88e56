/* trainer devices */
#include "cli/trained_args.h"
#include "device/registry.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: trainer devices\n"
    "\n"
    "Lists the back ends of this program and their devices, and what --devices auto means here.\n";

static int is_alone(const ls_backend_info *info)
{
    return info->devices == 1;
}

/* One device, opened for a moment to ask what it is. */
static void print_device(const ls_backend *backend, int index)
{
    ls_error err;
    ls_device *device;
    ls_device_info info;
    const ls_device_request request = {.size = sizeof request, .index = index, .threads = 1};
    if (backend->open(&device, &request, &err) != LS_OK) {
        printf("  %s(%d)  %s\n", backend->name, index, err.text);
        return;
    }
    device->ops->describe(device, &info);
    printf("  %-8s %s", info.name, info.model);
    if (info.isa[0])
        printf(", %s", info.isa);
    if (info.memory_bytes)
        printf(", %.1f GB", (double)info.memory_bytes / 1e9);
    putchar('\n');
    device->ops->close(device);
}

static void print_backend(const ls_backend *backend)
{
    ls_backend_info info = {0};
    backend->probe(&info);
    if (info.devices == 0) {
        printf("%s: %s: %s\n", backend->name, info.broken ? "broken" : "absent", info.reason);
        return;
    }
    if (backend->counted) /* all alike: one stands for them */
        printf("%s: %s; %d CPU%s, each a device of its own or several a team (`threads`)\n",
               backend->name, info.version, info.devices, is_alone(&info) ? "" : "s");
    else
        printf("%s: %s\n", backend->name, info.version);
    for (int i = 0; i < (backend->counted ? 1 : info.devices); i++)
        print_device(backend, i);
}

int cli_devices(int argc, char **argv, const ls_registry *registry)
{
    ls_device_list list;
    ls_error err;
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        fputs(help, stdout);
        return cli_flush();
    }
    if (argc > 1)
        return cli_verb_usage("devices", "do not know what to do with ", argv[1]);
    for (int i = 0; ls_registry_at(registry, i); i++)
        print_backend(ls_registry_at(registry, i));
    int status = ls_device_list_parse(&list, registry, "auto", 0, &err);
    if (status)
        return cli_fail(status, &err);
    printf("auto: %s:%d\n", list.backend->name, list.count);
    return cli_flush();
}
