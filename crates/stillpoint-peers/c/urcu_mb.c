/* liburcu, flavour mb: readers mark critical sections with full fences, writers interrupt no reader. */
#define _GNU_SOURCE
/* The inline functions, as for a program under a compatible licence. */
#define _LGPL_SOURCE
/* The generic names (`rcu_read_lock`) for this flavour's functions. */
#define URCU_API_MAP
#include <urcu/urcu-mb.h>

#ifdef DROP_IN
#define NAME(function) stillpoint_drop_in_mb_##function
#else
#define NAME(function) stillpoint_urcu_mb_##function
#endif
#include "urcu_flavour.h"
