/* SPDX-License-Identifier: MIT */
/* A minimal plugin. FLAVOUR selects what is wrong with it. */
#include <lockstep/sys/plugin.h>

#include <string.h>

#define GOOD 0
#define OTHER_ABI 1
#define NO_ENTRY 2
#define OTHER_NAME 3
#define UNDEFINED 4

#if FLAVOUR == UNDEFINED
int lockstep_symbol_that_is_nowhere(void);
#endif

static void probe(ls_backend_info *out)
{
    memset(out, 0, sizeof *out);
    out->devices = 3;
#if FLAVOUR == UNDEFINED
    out->devices = lockstep_symbol_that_is_nowhere();
#endif
}

static int refuse(ls_device **out, const ls_device_request *request, ls_error *err)
{
    *out = NULL;
    (void)request;
    if (err)
        err->status = LS_EDEVICE;
    return LS_EDEVICE;
}

static const ls_backend backend = {
    FLAVOUR == OTHER_ABI ? LS_PLUGIN_ABI + 1 : LS_PLUGIN_ABI,
    sizeof(ls_backend),
    FLAVOUR == OTHER_NAME ? "other" : "fake",
    0,
    probe,
    refuse,
};

#if FLAVOUR == NO_ENTRY
const ls_backend *fake_nothing(void);
const ls_backend *fake_nothing(void)
{
    return &backend;
}
#else
ls_plugin_entry_fn ls_plugin_backend;

const ls_backend *ls_plugin_backend(void)
{
    return &backend;
}
#endif
