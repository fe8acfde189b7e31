# Calls of the system on sockets, without a lock of the interpreter.

# What is there on a socket, and what comes soon after.
cdef extern from *:
    """
    #ifdef _WIN32
    static Py_ssize_t pyclient_receive(int fd, char *at, Py_ssize_t room, int patience_ms, int limit_ms)
    {
        return 0;  /* the loop's own way is the only one */
    }
    #else
    #include <errno.h>
    #include <poll.h>
    #include <sys/socket.h>
    #include <time.h>

    static long long pyclient_ms(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
    }

    /* Bytes that came, at most *room*. Ends when nothing comes for *patience_ms*, after *limit_ms*, and at whatever else the loop has to see. */
    static Py_ssize_t pyclient_receive(int fd, char *at, Py_ssize_t room, int patience_ms, int limit_ms)
    {
        Py_ssize_t came = 0;
        long long until = pyclient_ms() + limit_ms;
        struct pollfd wanted = {fd, POLLIN, 0};
        while (came < room && pyclient_ms() < until) {
            ssize_t got = recv(fd, at + came, (size_t)(room - came), MSG_DONTWAIT);
            if (got > 0)
                came += got;
            else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK) || poll(&wanted, 1, patience_ms) != 1)
                break;
        }
        return came;
    }
    #endif
    """
    Py_ssize_t receive "pyclient_receive"(int fd, char* at, Py_ssize_t room, int patience_ms, int limit_ms) noexcept nogil
