#include "sync/heartbeat.h"

uint64_t ls_heartbeat_count(const ls_heartbeat *heartbeat)
{
    return atomic_load_explicit(&heartbeat->word, memory_order_relaxed) >> 24;
}

int ls_heartbeat_place(const ls_heartbeat *heartbeat)
{
    return (int)(atomic_load_explicit(&heartbeat->word, memory_order_relaxed) & LS_PLACE_MAX);
}
