/* Trees whose nodes die together, lines that are freed in another order than they were made, and
 * messages that one thread makes and another frees. Blocks are checked
 * for overwrites; on an error the program exits with 1. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TREES = 60, DEPTH = 11, LINES = 600000, KEPT = 64, MESSAGES = 100000, QUEUE = 256 };

struct node {
    struct node *left, *right;
    unsigned long check;
    char *text;
};

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    _exit(1);
}

/* A text that grows by realloc, zeroed at first. */
static char *grown(unsigned long seed)
{
    char *text = calloc(3, 7);
    for (int i = 0; i < 21; i++)
        if (text[i])
            fail("a block of calloc is not zeroed");
    for (size_t length = 21; length < 21 + seed % 200; length += 60) {
        memset(text, (int)(seed & 127), length);
        text = realloc(text, length + 60);
        for (size_t i = 0; i < length; i++)
            if (text[i] != (char)(seed & 127))
                fail("realloc lost bytes");
    }
    if (malloc_usable_size(text) < 21)
        fail("a block is smaller than was asked for");
    memset(text, 1, malloc_usable_size(text));
    return text;
}

static struct node *tree(int depth, unsigned long seed)
{
    struct node *node = malloc(sizeof *node);
    if ((unsigned long)node % 16)
        fail("a block is not aligned");
    node->check = seed;
    node->text = depth % 4 ? NULL : grown(seed);
    node->left = depth ? tree(depth - 1, seed * 3 + 1) : NULL;
    node->right = depth ? tree(depth - 1, seed * 3 + 2) : NULL;
    return node;
}

static void cut(struct node *node, unsigned long seed)
{
    if (!node)
        return;
    if (node->check != seed)
        fail("a node was overwritten");
    cut(node->left, seed * 3 + 1);
    cut(node->right, seed * 3 + 2);
    free(node->text);
    free(node);
}

static char *line(unsigned number)
{
    size_t length = 17 + number % 180;
    char *text = malloc(length);
    text[0] = text[length - 1] = (char)(number & 127);
    return text;
}

/* Each line replaces one of those before it. */
static void lines(void)
{
    char *kept[KEPT] = { 0 };
    unsigned numbers[KEPT] = { 0 };
    for (unsigned number = 0; number < LINES; number++) {
        unsigned at = number * 2654435761u >> 26;
        char *old = kept[at];
        if (old && (old[0] != (char)(numbers[at] & 127) || old[16 + numbers[at] % 180] != old[0]))
            fail("a line was overwritten");
        free(old);
        kept[at] = line(number);
        numbers[at] = number;
    }
    for (int at = 0; at < KEPT; at++)
        free(kept[at]);
}

static unsigned long *queue[QUEUE];
static int made, taken;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static unsigned long *message(unsigned long number)
{
    unsigned long *words = malloc(6 * sizeof *words);
    for (int i = 0; i < 6; i++)
        words[i] = number + i;
    return words;
}

static void *consume(void *nothing)
{
    for (unsigned long number = 0; number < MESSAGES; number++) {
        pthread_mutex_lock(&lock);
        while (taken == made)
            pthread_cond_wait(&changed, &lock);
        unsigned long *words = queue[taken++ % QUEUE];
        if (made - taken == QUEUE / 2)
            pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        for (int i = 0; i < 6; i++)
            if (words[i] != number + i)
                fail("a message was overwritten");
        free(words);
    }
    return nothing;
}

int main(void)
{
    for (unsigned long round = 0; round < TREES; round++)
        cut(tree(DEPTH, round), round);
    lines();
    pthread_t thread;
    pthread_create(&thread, NULL, consume, NULL);
    for (unsigned long number = 0; number < MESSAGES; number++) {
        unsigned long *words = message(number);
        pthread_mutex_lock(&lock);
        while (made - taken == QUEUE)
            pthread_cond_wait(&changed, &lock);
        queue[made++ % QUEUE] = words;
        if (made - taken == 1)
            pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    pthread_join(thread, NULL);
    /* A child goes on with its parent's blocks. */
    struct node *kept = tree(DEPTH, 7);
    pid_t child = fork();
    if (child == 0) {
        cut(kept, 7);
        cut(tree(DEPTH, 8), 8);
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    cut(kept, 7);
    return status != 0;
}
