/* liburcu, flavour qsbr: readers report quiescent states. */
#define _GNU_SOURCE
/* The inline functions, as for a program under a compatible licence. */
#define _LGPL_SOURCE
/* The generic names (`rcu_read_lock`) for this flavour's functions. */
#define URCU_API_MAP
#include <urcu/urcu-qsbr.h>

#define FLAVOUR_QSBR
#ifdef DROP_IN
#define NAME(function) stillpoint_drop_in_qsbr_##function
#else
#define NAME(function) stillpoint_urcu_qsbr_##function
#endif
#include "urcu_flavour.h"
