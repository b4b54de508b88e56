#include "comm/comm.h"

const ls_comm_type *const *ls_comm_types(void)
{
    static const ls_comm_type *const types[] = {&ls_comm_ordered, &ls_comm_naive, NULL};
    return types;
}
