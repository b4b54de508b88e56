#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ls_fail(ls_error *err, int status, const char *format, ...)
{
    if (!err)
        return status;
    err->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}

const char *ls_reason(char out[LS_REASON], int error)
{
    if (strerror_r(error, out, LS_REASON) != 0)
        snprintf(out, LS_REASON, "error %d", error);
    return out;
}

const char *ls_status_name(int status)
{
    switch ((ls_status)status) {
    case LS_OK: return "LS_OK";
    case LS_EINVAL: return "LS_EINVAL";
    case LS_ENOMEM: return "LS_ENOMEM";
    case LS_ENOENT: return "LS_ENOENT";
    case LS_EIO: return "LS_EIO";
    case LS_EDATA: return "LS_EDATA";
    case LS_ECONFIG: return "LS_ECONFIG";
    case LS_EUNSUPPORTED: return "LS_EUNSUPPORTED";
    case LS_EDEVICE: return "LS_EDEVICE";
    case LS_EABORTED: return "LS_EABORTED";
    case LS_ETIMEDOUT: return "LS_ETIMEDOUT";
    case LS_ESTALLED: return "LS_ESTALLED";
    case LS_ECANCELED: return "LS_ECANCELED";
    case LS_EINTERRUPTED: return "LS_EINTERRUPTED";
    case LS_EAGAIN: return "LS_EAGAIN";
    case LS_ECLOSED: return "LS_ECLOSED";
    case LS_ENONFINITE: return "LS_ENONFINITE";
    case LS_ESYSTEM: return "LS_ESYSTEM";
    case LS_EINTERNAL: return "LS_EINTERNAL";
    case LS_EDIVERGED: return "LS_EDIVERGED";
    }
    return "unknown status";
}
