/* Does one of several things that the tests of `allot advise` look for. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct node {
    struct node *next;
    char text[40];
};

/* Builds a list and frees it, `count` times. */
__attribute__((noinline)) static void rounds(int count) {
    for (int round = 0; round < count; round++) {
        struct node *list = 0;
        for (int i = 0; i < 200; i++) {
            struct node *node = malloc(sizeof *node);
            memset(node->text, round, sizeof node->text);
            node->next = list;
            list = node;
        }
        while (list) {
            struct node *next = list->next;
            free(list);
            list = next;
        }
    }
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "nothing")) return 0;
    if (!strcmp(what, "mark")) { /* Leaves a line in a file, so that one sees how often it ran. */
        FILE *file = fopen(words[2], "a");
        fputs("ran\n", file);
        fclose(file);
        rounds(50);
        return 0;
    }
    if (!strcmp(what, "count")) { /* The bytes of its standard input, into a file. */
        long bytes = 0;
        while (getchar() != EOF) bytes++;
        FILE *file = fopen(words[2], "a");
        fprintf(file, "%ld\n", bytes);
        fclose(file);
        return 0;
    }
    rounds(50);
    if (!strcmp(what, "exit")) return 3;
    if (!strcmp(what, "crash")) raise(SIGSEGV);
    if (!strcmp(what, "wait")) {
        puts("ready");
        fflush(stdout);
        for (;;) pause();
    }
    if (!strcmp(what, "long")) { /* Enough for a replay that can be interrupted. */
        rounds(3000);
        puts("ready");
        fflush(stdout);
        for (;;) pause();
    }
    if (!strcmp(what, "fork")) {
        if (fork() == 0) {
            rounds(500);
            _exit(0);
        }
        wait(0);
    }
    if (!strcmp(what, "daemon")) {
        if (daemon(1, 0) != 0) return 1;
        /* Long enough to be there still when the program is over. */
        sleep(3);
        return 0;
    }
    puts("what the program prints");
    fputs("what it complains of\n", stderr);
    return 0;
}
