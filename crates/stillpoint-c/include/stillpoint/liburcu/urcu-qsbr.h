/* As <urcu/urcu-qsbr.h>, with the names without a flavour. */
#define URCU_API_MAP
#include <urcu/urcu-qsbr.h>
