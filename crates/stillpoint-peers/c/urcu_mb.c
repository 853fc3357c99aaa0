/* liburcu, flavour mb: readers mark critical sections with full fences, writers interrupt no reader. */
#define _GNU_SOURCE
/* Selects the inline functions, which programs under a compatible licence may use. */
#define _LGPL_SOURCE
/* Selects the generic names, such as `rcu_read_lock`, for this flavour's functions. */
#define URCU_API_MAP
#include <urcu/urcu-mb.h>

#ifdef DROP_IN
#define NAME(function) stillpoint_drop_in_mb_##function
#else
#define NAME(function) stillpoint_urcu_mb_##function
#endif
#include "urcu_flavour.h"
