/* The old name of <urcu/call-rcu.h>. */
#include <urcu/call-rcu.h>
