/* As <urcu/urcu-qsbr.h>, with the names that do not say the flavour. */
#define URCU_API_MAP
#include <urcu/urcu-qsbr.h>
