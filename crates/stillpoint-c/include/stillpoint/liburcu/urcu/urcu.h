/* Flavour memb (RCU_MEMBARRIER, the default), or flavour mb (RCU_MB). */
#ifndef STILLPOINT_URCU_URCU_H
#define STILLPOINT_URCU_URCU_H

#if !defined(RCU_MEMBARRIER) && !defined(RCU_SIGNAL) && !defined(RCU_MB)
#define RCU_MEMBARRIER
#endif

#if defined(RCU_MEMBARRIER)
#include <urcu/urcu-memb.h>
#elif defined(RCU_MB)
#include <urcu/urcu-mb.h>
#else
#error "flavour signal does not exist any more, here as in liburcu 0.15: use memb"
#endif

#endif
