// Counts a letter of a file: asks the kernel for each byte, or takes bytes from a buffer; or writes each one to another file.

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long count_by_calls(const char *path)
{
    long count = 0;
    char letter;
    int file = open(path, O_RDONLY);
    while (read(file, &letter, 1) == 1)
        count += letter == 'A';
    close(file);
    return count;
}

static long count_from_buffer(const char *path)
{
    long count = 0;
    int letter;
    FILE *file = fopen(path, "r");
    while ((letter = getc(file)) != EOF)
        count += letter == 'A';
    fclose(file);
    return count;
}

static long copy_by_calls(const char *path, const char *copy)
{
    long count = 0;
    int letter, to = open(copy, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    FILE *file = fopen(path, "r");
    while ((letter = getc(file)) != EOF) {
        char byte = letter;
        count += write(to, &byte, 1);
    }
    close(to);
    fclose(file);
    return count;
}

int main(int count, char **words)
{
    char *name = strdup(words[2]);
    long letters = strcmp(words[1], "calls") == 0    ? count_by_calls(name)
                   : strcmp(words[1], "buffer") == 0 ? count_from_buffer(name)
                                                     : copy_by_calls(name, words[3]);
    printf("%ld\n", letters);
    free(name);
    return 0;
}
