/* liburcu, flavour memb: readers mark critical sections, writers call membarrier. */
#define _GNU_SOURCE
/* Selects the inline functions, which programs under a compatible licence may use. */
#define _LGPL_SOURCE
/* Selects the generic names, such as `rcu_read_lock`, for this flavour's functions. */
#define URCU_API_MAP
#include <urcu/urcu-memb.h>

#ifdef DROP_IN
#define NAME(function) stillpoint_drop_in_memb_##function
#else
#define NAME(function) stillpoint_urcu_memb_##function
#endif
#include "urcu_flavour.h"
