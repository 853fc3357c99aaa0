/* The name that <urcu/pointer.h> had. */
#include <urcu/pointer.h>
