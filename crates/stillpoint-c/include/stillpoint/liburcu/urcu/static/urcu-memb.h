/* The readers of flavour memb as inline code: see <stillpoint/urcu.h>. */
#ifndef STILLPOINT_URCU_STATIC_URCU_MEMB_H
#define STILLPOINT_URCU_STATIC_URCU_MEMB_H

#include "../../../urcu.h"
#include "../../../urcu-includes.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline void _urcu_memb_read_lock(void)
{
    still_urcu_lock_(&still_thread_->urcu[STILL_URCU_MEMB], STILL_URCU_MEMB);
}

static inline void _urcu_memb_read_unlock(void)
{
    still_urcu_unlock_(&still_thread_->urcu[STILL_URCU_MEMB], STILL_URCU_MEMB);
}

static inline int _urcu_memb_read_ongoing(void)
{
    return still_urcu_ongoing_(&still_thread_->urcu[STILL_URCU_MEMB]);
}

#ifdef __cplusplus
}
#endif

#endif
