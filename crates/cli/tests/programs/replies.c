// A server that answers each request on a connection, and its clients in a child process: no buffer
// can save a call. With an argument, each reply is written in two parts, which one call could send.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS = 10, REQUESTS = 3000 };

static void ask(const struct sockaddr_in *server)
{
    int connections[CLIENTS];
    char reply[64];
    for (int i = 0; i < CLIENTS; i++) {
        connections[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(connections[i], (const struct sockaddr *)server, sizeof *server))
            _exit(1);
    }
    for (int request = 0; request < REQUESTS; request++) {
        for (int i = 0; i < CLIENTS; i++)
            if (send(connections[i], "ask\n", 4, 0) != 4)
                _exit(2);
        for (int i = 0; i < CLIENTS; i++)
            if (recv(connections[i], reply, 4, MSG_WAITALL) != 4)
                _exit(3);
    }
    _exit(0);
}

int main(int count, char **words)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0), left = CLIENTS, status;
    if (bind(listening, (struct sockaddr *)&address, length) || listen(listening, CLIENTS) ||
        getsockname(listening, (struct sockaddr *)&address, &length))
        return 1;
    if (!fork())
        ask(&address);
    struct epoll_event event = {EPOLLIN, {.fd = listening}}, events[CLIENTS];
    epoll_ctl(poll, EPOLL_CTL_ADD, listening, &event);
    while (left > 0) {
        int ready = epoll_wait(poll, events, CLIENTS, -1);
        for (int i = 0; i < ready; i++) {
            int connection = events[i].data.fd;
            char request[64];
            if (connection == listening) {
                event.data.fd = accept(listening, 0, 0);
                epoll_ctl(poll, EPOLL_CTL_ADD, event.data.fd, &event);
                continue;
            }
            ssize_t got = read(connection, request, sizeof request);
            if (got <= 0) {
                close(connection);
                left--;
                continue;
            }
            char *reply = malloc(got);
            memcpy(reply, request, got);
            ssize_t first = count > 1 ? 1 : got;
            if (write(connection, reply, first) != first)
                return 2;
            if (first < got && write(connection, reply + first, got - first) != got - first)
                return 3;
            free(reply);
        }
    }
    (void)words;
    return wait(&status) < 0 ? 4 : status;
}
