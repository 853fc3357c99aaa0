/* Loads the library, or a plugin that is linked with it, uses it on threads, and closes it before they end. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "stillpoint.h"

static struct still_domain *(*domain_default)(void);
static int (*barrier)(const struct still_domain *, int64_t);
static const char *(*error)(void);
static struct still_reader *(*reader_new)(const struct still_domain *, uint32_t);
static struct still_domain *domain;
static int is_plugin;
static pthread_barrier_t used, closed;

static void *uses(void *unused)
{
    /* The thread's end frees the reader. */
    if (reader_new(domain, STILL_LAYOUT) == NULL)
        abort();
    /* Uses a thread-local variable with a destructor. While there is such a variable, glibc keeps the library in which it lies. */
    if (!is_plugin && (barrier(domain, STILL_FOREVER) != 0 || barrier(NULL, 0) != -22 || error()[0] == 0))
        abort();
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    return unused;
}

int main(int count, char **arguments)
{
    is_plugin = count > 1;
    void *library = dlopen(is_plugin ? arguments[1] : "libstillpoint.so.0.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&domain_default = dlsym(library, "still_domain_default");
    *(void **)&barrier = dlsym(library, "still_barrier");
    *(void **)&error = dlsym(library, "still_error");
    *(void **)&reader_new = dlsym(library, "still_reader_new_");
    domain = domain_default();
    if (domain == NULL)
        return 1;
    pthread_barrier_init(&used, NULL, 2);
    pthread_barrier_init(&closed, NULL, 2);
    pthread_t thread;
    if (pthread_create(&thread, NULL, uses, NULL) != 0)
        return 1;
    pthread_barrier_wait(&used);
    if (dlclose(library) != 0)
        return 1;
    pthread_barrier_wait(&closed);
    return pthread_join(thread, NULL);
}
