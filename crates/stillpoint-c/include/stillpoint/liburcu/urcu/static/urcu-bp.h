/* The readers of flavour bp as inline code: see <stillpoint/urcu.h>. */
#ifndef STILLPOINT_URCU_STATIC_URCU_BP_H
#define STILLPOINT_URCU_STATIC_URCU_BP_H

#include "../../../urcu.h"
#include "../../../urcu-includes.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline void _urcu_bp_read_lock(void)
{
    still_urcu_lock_(&still_thread_->urcu[STILL_URCU_BP], STILL_URCU_BP);
}

static inline void _urcu_bp_read_unlock(void)
{
    still_urcu_unlock_(&still_thread_->urcu[STILL_URCU_BP], STILL_URCU_BP);
}

static inline int _urcu_bp_read_ongoing(void)
{
    return still_urcu_ongoing_(&still_thread_->urcu[STILL_URCU_BP]);
}

#ifdef __cplusplus
}
#endif

#endif
