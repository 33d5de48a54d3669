// A thread makes messages, another one frees them.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 4096, MESSAGES = 400000 };

struct message {
    int number;
    char text[92];
};

static struct message *queue[PLACES];
static unsigned put, taken;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;

static struct message *make_message(int number)
{
    struct message *message = malloc(sizeof *message);
    message->number = number;
    memset(message->text, number, sizeof message->text);
    return message;
}

static void *produce(void *unused)
{
    (void)unused;
    for (int i = 0; i < MESSAGES;) {
        struct message *batch[64];
        int size = 0;
        while (size < 64 && i < MESSAGES)
            batch[size++] = make_message(i++);
        pthread_mutex_lock(&mutex);
        for (int j = 0; j < size; j++) {
            while (put - taken == PLACES)
                pthread_cond_wait(&not_full, &mutex);
            queue[put++ % PLACES] = batch[j];
        }
        pthread_cond_signal(&not_empty);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int main(void)
{
    pthread_t producer;
    if (pthread_create(&producer, NULL, produce, NULL))
        return 1;
    unsigned long sum = 0;
    for (int i = 0; i < MESSAGES;) {
        struct message *batch[256];
        int size = 0;
        pthread_mutex_lock(&mutex);
        while (put == taken)
            pthread_cond_wait(&not_empty, &mutex);
        while (size < 256 && put != taken)
            batch[size++] = queue[taken++ % PLACES];
        pthread_cond_signal(&not_full);
        pthread_mutex_unlock(&mutex);
        for (int j = 0; j < size; j++) {
            sum += batch[j]->number;
            free(batch[j]);
        }
        i += size;
    }
    pthread_join(producer, NULL);
    return sum == (unsigned long)MESSAGES * (MESSAGES - 1) / 2 ? 0 : 1;
}
