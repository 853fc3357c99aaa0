/* The headers that liburcu's files of inline functions include. The drop-in's files with the same names include this file. */
#ifndef STILLPOINT_URCU_INCLUDES_H
#define STILLPOINT_URCU_INCLUDES_H

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

#endif
