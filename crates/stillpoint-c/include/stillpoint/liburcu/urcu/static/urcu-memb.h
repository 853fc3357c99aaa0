/* The readers of flavour memb as inline code: see <stillpoint/urcu.h>. */
#ifndef STILLPOINT_URCU_STATIC_URCU_MEMB_H
#define STILLPOINT_URCU_STATIC_URCU_MEMB_H

#include "../../../urcu.h"

/* What liburcu's file of this name includes. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <urcu/pointer.h>
#ifndef STILL_URCU_ALONE
#if __has_include(<urcu/config.h>)
#include <urcu/config.h>
#endif
#if __has_include(<urcu/system.h>)
#include <urcu/system.h>
#endif
#if __has_include(<urcu/list.h>)
#include <urcu/list.h>
#endif
#if __has_include(<urcu/futex.h>)
#include <urcu/futex.h>
#endif
#if __has_include(<urcu/tls-compat.h>)
#include <urcu/tls-compat.h>
#endif
#if __has_include(<urcu/debug.h>)
#include <urcu/debug.h>
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

static inline void _urcu_memb_read_lock(void)
{
    still_urcu_lock_(&still_urcu_memb_reader_, STILL_URCU_MEMB);
}

static inline void _urcu_memb_read_unlock(void)
{
    still_urcu_unlock_(&still_urcu_memb_reader_, STILL_URCU_MEMB);
}

static inline int _urcu_memb_read_ongoing(void)
{
    return still_urcu_ongoing_(&still_urcu_memb_reader_);
}

#ifdef __cplusplus
}
#endif

#endif
