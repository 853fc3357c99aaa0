/* Loads and stores of pointers that readers follow. */
#ifndef STILLPOINT_URCU_POINTER_H
#define STILLPOINT_URCU_POINTER_H

#ifndef STILL_URCU_ALONE
#if __has_include(<urcu/uatomic.h>)
#include <urcu/compiler.h>
#include <urcu/arch.h>
#include <urcu/uatomic.h>
#else
#define STILL_URCU_ALONE
#endif
#endif

#ifdef STILL_URCU_ALONE
#include "../../urcu-alone.h"
#endif

#include <urcu/static/pointer.h>

#define rcu_dereference _rcu_dereference
#define rcu_cmpxchg_pointer _rcu_cmpxchg_pointer
#define rcu_xchg_pointer _rcu_xchg_pointer
#define rcu_set_pointer _rcu_set_pointer
#define rcu_assign_pointer(p, v) _rcu_set_pointer(&(p), v)

#endif
