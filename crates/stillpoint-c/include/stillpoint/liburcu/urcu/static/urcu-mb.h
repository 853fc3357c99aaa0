/* The readers of flavour mb as inline code: see <stillpoint/urcu.h>. */
#ifndef STILLPOINT_URCU_STATIC_URCU_MB_H
#define STILLPOINT_URCU_STATIC_URCU_MB_H

#include "../../../urcu.h"
#include "../../../urcu-includes.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline void _urcu_mb_read_lock(void)
{
    still_urcu_lock_(&still_thread_->urcu[STILL_URCU_MB], STILL_URCU_MB);
}

static inline void _urcu_mb_read_unlock(void)
{
    still_urcu_unlock_(&still_thread_->urcu[STILL_URCU_MB], STILL_URCU_MB);
}

static inline int _urcu_mb_read_ongoing(void)
{
    return still_urcu_ongoing_(&still_thread_->urcu[STILL_URCU_MB]);
}

#ifdef __cplusplus
}
#endif

#endif
