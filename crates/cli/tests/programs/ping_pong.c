// Two threads that send each other one byte at a time: no buffer can save a call.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TURNS = 20000 };

static int there[2], back[2];

static void *answer(void *nothing)
{
    char byte;
    for (int turn = 0; turn < TURNS; turn++)
        if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
            exit(1);
    return nothing;
}

int main(void)
{
    char byte = 'x', *name = malloc(100);
    pthread_t other;
    if (pipe(there) || pipe(back) || pthread_create(&other, 0, answer, 0))
        return 1;
    for (int turn = 0; turn < TURNS; turn++)
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
            return 1;
    pthread_join(other, 0);
    free(name);
    return 0;
}
