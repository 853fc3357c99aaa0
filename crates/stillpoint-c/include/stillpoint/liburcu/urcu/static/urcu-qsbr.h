/* The readers of flavour qsbr as inline code: see <stillpoint/urcu.h>. */
#ifndef STILLPOINT_URCU_STATIC_URCU_QSBR_H
#define STILLPOINT_URCU_STATIC_URCU_QSBR_H

#include "../../../urcu.h"
#include "../../../urcu-includes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A thread that is online is in a read-side section. */
static inline void _urcu_qsbr_read_lock(void)
{
#ifdef DEBUG_RCU
    if (!still_urcu_ongoing_(&still_thread_->urcu[STILL_URCU_QSBR]))
        abort();
#endif
}

static inline void _urcu_qsbr_read_unlock(void)
{
#ifdef DEBUG_RCU
    if (!still_urcu_ongoing_(&still_thread_->urcu[STILL_URCU_QSBR]))
        abort();
#endif
}

static inline void _urcu_qsbr_quiescent_state(void)
{
    still_urcu_quiescent_(&still_thread_->urcu[STILL_URCU_QSBR]);
}

static inline void _urcu_qsbr_thread_offline(void)
{
    still_urcu_offline_();
}

static inline void _urcu_qsbr_thread_online(void)
{
    still_urcu_online_();
}

static inline int _urcu_qsbr_read_ongoing(void)
{
    return still_urcu_ongoing_(&still_thread_->urcu[STILL_URCU_QSBR]);
}

#ifdef __cplusplus
}
#endif

#endif
