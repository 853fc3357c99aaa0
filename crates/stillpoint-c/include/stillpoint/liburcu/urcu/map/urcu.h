/* The names without a flavour, for the flavour of <urcu/urcu.h>. */
#if defined(RCU_MB) && !defined(RCU_MEMBARRIER)
#include <urcu/map/urcu-mb.h>
#else
#include <urcu/map/urcu-memb.h>
#endif
