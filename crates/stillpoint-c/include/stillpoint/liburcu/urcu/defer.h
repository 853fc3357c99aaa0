/* The functions are declared with their flavours. */
#ifndef STILLPOINT_URCU_DEFER_H
#define STILLPOINT_URCU_DEFER_H

#include <pthread.h>
#include <stdlib.h>

#endif
