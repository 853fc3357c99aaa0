/* The parts of polled grace periods that all flavours share. */
#ifndef STILLPOINT_URCU_URCU_POLL_H
#define STILLPOINT_URCU_URCU_POLL_H

#include <stdbool.h>

struct urcu_gp_poll_state {
    unsigned long grace_period_id;
};

#endif
