// Makes known numbers of a call that no other code makes, in a thread, in a child, in a program that the child
// becomes, and in a thread of that; and so many allocations that the recorder needs memory.

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile keep;

static void *call(void *times)
{
    for (long i = 0; i < (long)times; i++)
        syscall(SYS_getpgid, 0);
    return 0;
}

static void in_a_thread(long times)
{
    pthread_t thread;
    pthread_create(&thread, 0, call, (void *)times);
    pthread_join(thread, 0);
}

static void *become(void *name)
{
    execl(name, name, "again", NULL);
    _exit(1);
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "again") == 0) {
        call((void *)10000);
        in_a_thread(20000);
        // One byte less than is small, and one that isn't any more; two that fail.
        char bytes[512];
        int null = open("/dev/zero", 0);
        for (int i = 0; i < 30; i++)
            if (pread(null, bytes, 511, 0) != 511 || pread(null, bytes, 512, 0) != 512)
                return 1;
        syscall(SYS_getpgid, -1);
        syscall(SYS_getpgid, -1);
        return 0;
    }
    call((void *)100);
    in_a_thread(200);
    for (int i = 0; i < 200000; i++)
        keep = malloc(100 + i % 50), free(keep);
    int status = 0;
    if (fork() == 0) {
        call((void *)1000);
        // By another thread than the first, whose number the new program gets.
        pthread_t thread;
        pthread_create(&thread, 0, become, words[0]);
        pthread_join(thread, 0);
    }
    wait(&status);
    return status != 0;
}
