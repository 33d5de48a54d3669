// Reads a configuration into a tree of sections and entries, then starts workers that look things up in it for each request.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECTIONS = 40, ENTRIES = 25, WORKERS = 4, REQUESTS = 60000 };

struct entry {
    char *key, *value;
    struct entry *next;
};

struct section {
    char *name;
    struct entry *entries;
    struct section *next;
};

static struct section *configuration;

static struct entry *add_entry(struct entry *next, int section, int number)
{
    char text[64];
    struct entry *entry = malloc(sizeof *entry);
    snprintf(text, sizeof text, "key-%d-of-%d", number, section);
    entry->key = strdup(text);
    snprintf(text, sizeof text, "the value of entry number %d", section * number);
    entry->value = strdup(text);
    entry->next = next;
    return entry;
}

static struct section *load_configuration(void)
{
    struct section *sections = NULL;
    for (int i = 0; i < SECTIONS; i++) {
        char name[32];
        struct section *section = malloc(sizeof *section);
        snprintf(name, sizeof name, "section-%d", i);
        section->name = strdup(name);
        section->entries = NULL;
        for (int j = 0; j < ENTRIES; j++)
            section->entries = add_entry(section->entries, i, j);
        section->next = sections;
        sections = section;
    }
    return sections;
}

static const char *look_up(const char *name, const char *key)
{
    for (const struct section *section = configuration; section; section = section->next)
        if (!strcmp(section->name, name))
            for (const struct entry *entry = section->entries; entry; entry = entry->next)
                if (!strcmp(entry->key, key))
                    return entry->value;
    return "";
}

static void *serve(void *seed)
{
    unsigned long answered = 0;
    unsigned random = (unsigned)(size_t)seed;
    for (int i = 0; i < REQUESTS; i++) {
        char name[32], key[64];
        random = random * 1664525 + 1013904223;
        int section = (random >> 8) % SECTIONS, entry = (random >> 16) % ENTRIES;
        snprintf(name, sizeof name, "section-%d", section);
        snprintf(key, sizeof key, "key-%d-of-%d", entry, section);
        char *answer = strdup(look_up(name, key));
        answered += strlen(answer);
        free(answer);
    }
    return (void *)answered;
}

int main(void)
{
    configuration = load_configuration();
    pthread_t workers[WORKERS];
    for (size_t i = 0; i < WORKERS; i++)
        if (pthread_create(&workers[i], NULL, serve, (void *)(i + 1)))
            return 1;
    unsigned long all = 0;
    for (int i = 0; i < WORKERS; i++) {
        void *answered;
        pthread_join(workers[i], &answered);
        all += (unsigned long)answered;
    }
    return all > 0 ? 0 : 1;
}
