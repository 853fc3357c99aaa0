/* liburcu, flavour memb, as most programs use it: they link its functions instead of inlining them. */
#define _GNU_SOURCE
#define URCU_API_MAP
#include <urcu/urcu-memb.h>

#include "peer.h"

#ifdef DROP_IN
#define NAME(function) stillpoint_drop_in_linked_##function
#else
#define NAME(function) stillpoint_urcu_linked_##function
#endif

void NAME(micro_pin)(uint64_t iterations)
{
    rcu_register_thread();
    REPEAT(iterations, { rcu_read_lock(); rcu_read_unlock(); });
    rcu_unregister_thread();
}
