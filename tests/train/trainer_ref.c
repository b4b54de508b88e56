/* SPDX-License-Identifier: MIT */
/* The program `trainer` with the reference back end, which is plain C, in addition to the built-in
 * back ends, so that the whole program can run under ThreadSanitizer. */
#include "cli/cli.h"
#include "ref/ref.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    ls_registry *registry;
    ls_error err;
    if (ls_registry_create(&registry, NULL, &err) != LS_OK ||
        ls_registry_add(registry, ls_ref_backend(), &err) != LS_OK ||
        ls_registry_add(registry, ls_ref64_backend(), &err) != LS_OK) {
        cli_set_program(argc > 0 ? argv[0] : NULL);
        cli_say("%s", err.text);
        return EXIT_OS;
    }
    return cli_main(argc, argv, registry);
}
