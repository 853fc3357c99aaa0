/* A library that takes BYTES of the memory for thread-local variables of late libraries. */
static __thread char taken[BYTES] __attribute__((tls_model("initial-exec")));

char *greedy(void);
char *greedy(void)
{
    return taken;
}
