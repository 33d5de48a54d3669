// One thread reads measurements and makes a message of each; another thread adds them up by sensor and frees the messages.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef ADVISED
#include <allotment.h>
#endif

enum { MESSAGES = 12000000, SENSORS = 1000, WAITING = 4096, BATCH = 64 };

struct message {
    struct message *next;
    unsigned sensor, number;
    double value;
    char unit[8];
    char place[24];
};

struct sensor {
    unsigned count;
    double sum, least, most;
    unsigned long places;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct message *first, **end = &first;
static int waiting, finished, messages = MESSAGES;
static struct sensor sensors[SENSORS];

#ifdef ADVISED
static allot_slab *slab;
#endif

static struct message *read_message(unsigned number, unsigned seed)
{
#ifdef ADVISED
    struct message *message = allot_slab_alloc(slab);
#else
    struct message *message = malloc(sizeof *message);
#endif
    message->next = NULL;
    message->sensor = (seed >> 8) % SENSORS;
    message->number = number;
    message->value = (seed >> 16) / 16.0;
    memcpy(message->unit, "kelvin", 7);
    memcpy(message->place, "hall 00, row 00", 16);
    message->place[5] += message->sensor / 100;
    message->place[13] += message->sensor / 10 % 10;
    return message;
}

static void send(struct message *batch, struct message **batch_end, int count)
{
    pthread_mutex_lock(&mutex);
    while (waiting > WAITING)
        pthread_cond_wait(&changed, &mutex);
    *end = batch;
    end = batch_end;
    waiting += count;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void *read_all(void *unused)
{
    unsigned seed = 1;
    for (int i = 0; i < messages; i += BATCH) {
        struct message *batch, **batch_end = &batch;
        for (int j = 0; j < BATCH; j++) {
            seed = seed * 1664525 + 1013904223;
            *batch_end = read_message(i + j, seed);
            batch_end = &(*batch_end)->next;
        }
        send(batch, batch_end, BATCH);
    }
    pthread_mutex_lock(&mutex);
    finished = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return unused;
}

static void add(const struct message *message)
{
    struct sensor *sensor = &sensors[message->sensor];
    if (sensor->count == 0 || message->value < sensor->least)
        sensor->least = message->value;
    if (sensor->count == 0 || message->value > sensor->most)
        sensor->most = message->value;
    sensor->count++;
    sensor->sum += strcmp(message->unit, "kelvin") == 0 ? message->value : 0;
    for (const char *letter = message->place; *letter; letter++)
        sensor->places = sensor->places * 31 + *letter;
    sensor->places ^= message->number;
}

static void add_all(void)
{
    for (;;) {
        pthread_mutex_lock(&mutex);
        while (!first && !finished)
            pthread_cond_wait(&changed, &mutex);
        struct message *message = first;
        first = NULL;
        end = &first;
        waiting = 0;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
        if (!message)
            return;
        while (message) {
            struct message *next = message->next;
            add(message);
#ifdef ADVISED
            allot_slab_free(slab, message);
#else
            free(message);
#endif
            message = next;
        }
    }
}

int main(int count, char **words)
{
    if (count > 1)
        messages = atoi(words[1]);
    pthread_t reader;
    unsigned long places = 0;
    double sum = 0;
#ifdef ADVISED
    slab = allot_slab_create(sizeof(struct message), _Alignof(struct message), NULL);
#endif
    pthread_create(&reader, NULL, read_all, NULL);
    add_all();
    pthread_join(reader, NULL);
    for (int i = 0; i < SENSORS; i++) {
        sum += sensors[i].sum + sensors[i].most - sensors[i].least;
        places ^= sensors[i].places;
    }
    printf("%.3f %lx\n", sum, places);
#ifdef ADVISED
    allot_slab_destroy(slab);
#endif
    return 0;
}
