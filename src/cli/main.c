/* SPDX-License-Identifier: MIT */
#include "cli/cli.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    ls_registry *registry;
    ls_error err;
    if (ls_registry_create(&registry, NULL, &err) != LS_OK) {
        cli_set_program(argc > 0 ? argv[0] : NULL);
        cli_say("%s", err.text);
        return EXIT_OS;
    }
    return cli_main(argc, argv, registry);
}
