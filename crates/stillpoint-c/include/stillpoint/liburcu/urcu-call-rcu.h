/* The name that <urcu/call-rcu.h> had. */
#include <urcu/call-rcu.h>
