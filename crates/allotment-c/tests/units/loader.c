/* Loads two plugins that share nothing. One destroys ARALs of the other. The program itself uses no ARAL. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct aral ARAL;

struct plugin {
    ARAL *(*made)(const char *name);
    size_t (*counted)(ARAL *ar);
    void (*ended)(ARAL *ar);
};

static void find(void *library, const char *name, void *function)
{
    void *found = library == NULL ? NULL : dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    memcpy(function, &found, sizeof found);
}

static struct plugin load(const char *path)
{
    struct plugin plugin;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    find(library, "made_in_plugin", &plugin.made);
    find(library, "counted_in_plugin", &plugin.counted);
    find(library, "ended_in_plugin", &plugin.ended);
    return plugin;
}

int main(int count, char **arguments)
{
    if (count != 3) {
        fprintf(stderr, "usage: loader PLUGIN PLUGIN\n");
        return 2;
    }
    struct plugin one = load(arguments[1]), other = load(arguments[2]);
    ARAL *arals[6];
    for (int i = 0; i < 6; i++)
        arals[i] = one.made("of one");
    ARAL *others = other.made("of the other");
    /* The newest, the oldest, one between others. */
    static const int order[] = {5, 0, 2, 3, 1};
    for (size_t i = 0; i < 5; i++) {
        other.ended(arals[order[i]]);
        if (one.counted(arals[4]) != 5 - i || other.counted(arals[4]) != 5 - i || other.counted(others) != 1) {
            fprintf(stderr, "%zu destroyed: %zu of one are left\n", i + 1, one.counted(arals[4]));
            return 1;
        }
    }
    one.ended(others);
    one.ended(arals[4]);
    one.ended(one.made("after all"));
    other.ended(other.made("after all"));
    return 0;
}
