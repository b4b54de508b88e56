/* Where data and what can be made again lie, by what the environment says. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>

/* A directory where XDG's `variable` points to, else in that place of the home; names of files fit behind it. False:
 * there is none. */
static bool find_place(char out[4096], const char *variable, const char *in_home, const char *name)
{
    const char *xdg = getenv(variable), *home = getenv("HOME");
    int length = 0;
    if (xdg && xdg[0] == '/')
        length = snprintf(out, 4096, "%s/%s", xdg, name);
    else if (home && home[0] == '/')
        length = snprintf(out, 4096, "%s/%s/%s", home, in_home, name);
    return length > 0 && length < 4000;
}

const char *cli_find_cache_dir(char out[4096])
{
    return find_place(out, "XDG_CACHE_HOME", ".cache", "lockstep") ? out : NULL;
}

uint64_t cli_cache_bytes(void)
{
    const char *text = getenv("LOCKSTEP_CACHE_GIB");
    char *end = NULL;
    const double gib = text && text[0] ? strtod(text, &end) : CLI_CACHE_GIB;
    const bool good = !text || !text[0] || (*end == '\0' && gib >= 0 && gib <= 1e6);
    return (uint64_t)((good ? gib : CLI_CACHE_GIB) * 0x1p30);
}

ls_trainer_options cli_options(cli_places *places, const char *config, const cli_list *set,
                               const ls_registry *registry, const ls_host *host)
{
    const char *own = getenv("LOCKSTEP_DATA");
    int count = 0;
    if (own && own[0])
        places->data[count++] = own;
    if (find_place(places->xdg, "XDG_DATA_HOME", ".local/share", "datasets"))
        places->data[count++] = places->xdg;
    places->data[count++] = "/usr/share/datasets";
    return (ls_trainer_options){
        .size = sizeof(ls_trainer_options),
        .config_path = config,
        .set = set->item,
        .set_count = set->count,
        .data_dirs = places->data,
        .data_dir_count = count,
        .registry = registry,
        .cache_dir = cli_find_cache_dir(places->cache),
        .host = host,
    };
}
