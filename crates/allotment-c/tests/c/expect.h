/* For the programs of this directory: a check that reports where it failed, and cases that must abort. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                              \
    do {                                                                                               \
        if (!(condition)) {                                                                            \
            fprintf(stderr, "%s:%d: %s: not so\n", __FILE__, __LINE__, #condition);                    \
            exit(1);                                                                                   \
        }                                                                                              \
    } while (0)

/* A case that has to abort with `text` on standard error. */
struct deadly {
    const char *name;
    const char *text;
    void (*run)(void);
};

/* The whole of `main` for a program with cases: names them, runs one, or does the work that has to end well. */
static inline int main_of(int count, char **arguments, const struct deadly *cases, size_t len, void (*work)(void))
{
    if (count < 2) {
        work();
        return 0;
    }
    for (size_t i = 0; i < len; i++) {
        if (strcmp(arguments[1], "--cases") == 0)
            printf("%s\t%s\n", cases[i].name, cases[i].text);
        else if (strcmp(arguments[1], cases[i].name) == 0) {
            cases[i].run();
            fprintf(stderr, "%s went unnoticed\n", cases[i].name);
            return 1;
        }
    }
    return 0;
}

#endif
