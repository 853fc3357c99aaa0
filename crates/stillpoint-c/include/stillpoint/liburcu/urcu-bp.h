/* As <urcu/urcu-bp.h>, with the names that do not say the flavour. */
#define URCU_API_MAP
#include <urcu/urcu-bp.h>
