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

# A small request out and its answer in, on a socket that does not block; none of it holds a lock of the interpreter or runs Python.
cdef extern from *:
    """
    #define PYCLIENT_MOST_AWAITED 64
    #define PYCLIENT_MOST_PIECES 194
    #ifdef __linux__
    #include <errno.h>
    #include <string.h>
    #include <sys/uio.h>
    #include <unistd.h>

    /* Bytes that the kernel took of *before*, *records* and *after*; 0 when it is full or the socket is broken, which the loop must see. */
    static Py_ssize_t pyclient_send(int fd, char *before, Py_ssize_t before_size, char *records, Py_ssize_t records_size,
                                    char *after, Py_ssize_t after_size)
    {
        struct iovec pieces[3] = {{before, (size_t)before_size}, {records, (size_t)records_size}, {after, (size_t)after_size}};
        struct msghdr message = {0};
        ssize_t taken;
        message.msg_iov = pieces;
        message.msg_iovlen = 3;
        taken = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        return taken < 0 ? 0 : taken;
    }

    typedef struct iovec pyclient_piece;

    /* Bytes that the kernel took of so many pieces, as `send`. */
    static Py_ssize_t pyclient_send_vector(int fd, pyclient_piece *pieces, int count)
    {
        struct msghdr message = {0};
        ssize_t taken;
        message.msg_iov = pieces;
        message.msg_iovlen = (size_t)count;
        taken = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        return taken < 0 ? 0 : taken;
    }

    /* 1 when only *fd* is readable; 0 after *timeout_ms*, on a signal, when *bell* is readable and on a broken socket. */
    static int pyclient_await(int fd, int bell, int timeout_ms)
    {
        struct pollfd wanted[2] = {{fd, POLLIN, 0}, {bell, POLLIN, 0}};
        return poll(wanted, 2, timeout_ms) == 1 && wanted[0].revents == POLLIN;
    }

    /* Wait so long; 1 when that is over, 0 on a signal and when *bell* is readable. */
    static int pyclient_rest(int bell, double seconds)
    {
        struct pollfd wanted = {bell, POLLIN, 0};
        struct timespec left = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
        return ppoll(&wanted, 1, &left, NULL) == 0;
    }

    /* Bytes that the kernel took until all have left, *timeout_ms* are over, `await` would end, or bytes come. */
    static Py_ssize_t pyclient_send_all(int fd, int bell, char *at, Py_ssize_t size, int timeout_ms)
    {
        Py_ssize_t taken = 0;
        long long until = pyclient_ms() + timeout_ms, left;
        while (taken < size && (left = until - pyclient_ms()) > 0) {
            struct pollfd wanted[2] = {{fd, POLLIN | POLLOUT, 0}, {bell, POLLIN, 0}};
            ssize_t sent;
            if (poll(wanted, 2, (int)left) != 1 || wanted[0].revents != POLLOUT)
                break;
            sent = send(fd, at + taken, (size_t)(size - taken), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0)
                break;
            taken += sent;
        }
        return taken;
    }

    /* The place of the first readable one of *count* sockets, as `await` otherwise; -1 where that is 0. */
    static int pyclient_await_any(int *fds, int count, int bell, int timeout_ms)
    {
        struct pollfd wanted[PYCLIENT_MOST_AWAITED + 1];
        int at;
        for (at = 0; at < count; at++)
            wanted[at] = (struct pollfd){fds[at], POLLIN, 0};
        wanted[count] = (struct pollfd){bell, POLLIN, 0};
        if (poll(wanted, count + 1, timeout_ms) < 1 || wanted[count].revents)
            return -1;
        for (at = 0; at < count && !wanted[at].revents; at++)
            ;
        return wanted[at].revents == POLLIN ? at : -1;
    }

    /* The bytes of a frame that begins with its size: whole, unless *room* is too small, the rest does not come in time, or `await` ends. */
    static Py_ssize_t pyclient_receive_frame(int fd, int bell, unsigned char *at, Py_ssize_t room, int timeout_ms)
    {
        Py_ssize_t came = 0, size = 4;
        long long until = pyclient_ms() + timeout_ms, left;
        for (;;) {
            ssize_t got = recv(fd, at + came, (size_t)(room - came), MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
                return came;
            came += got > 0 ? got : 0;
            if (came >= 4)
                size = 4 + (Py_ssize_t)((unsigned long)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]);
            if (came >= size || size > room || (left = until - pyclient_ms()) <= 0 || !pyclient_await(fd, bell, (int)left))
                return came;
        }
    }

    /* What is there, without taking it; less than 1 at the end of the stream and on a broken socket. */
    static Py_ssize_t pyclient_peek(int fd, char *at, Py_ssize_t room)
    {
        return recv(fd, at, (size_t)room, MSG_DONTWAIT | MSG_PEEK);
    }

    /* Take what `peek` has shown. */
    static int pyclient_take(int fd, char *at, Py_ssize_t size)
    {
        return recv(fd, at, (size_t)size, MSG_DONTWAIT) == size;
    }

    /* Take the ring of a bell (an eventfd), if there is one. */
    static void pyclient_hush(int bell)
    {
        unsigned long long rings;
        if (read(bell, &rings, sizeof rings) < 0)
            return;
    }
    #else /* no loop is lent */
    static Py_ssize_t pyclient_send(int fd, char *before, Py_ssize_t before_size, char *records, Py_ssize_t records_size,
                                    char *after, Py_ssize_t after_size) { return 0; }
    typedef struct { void *iov_base; size_t iov_len; } pyclient_piece;
    static Py_ssize_t pyclient_send_vector(int fd, pyclient_piece *pieces, int count) { return 0; }
    static int pyclient_await(int fd, int bell, int timeout_ms) { return 0; }
    static int pyclient_rest(int bell, double seconds) { return 0; }
    static int pyclient_await_any(int *fds, int count, int bell, int timeout_ms) { return -1; }
    static Py_ssize_t pyclient_send_all(int fd, int bell, char *at, Py_ssize_t size, int timeout_ms) { return 0; }
    static Py_ssize_t pyclient_receive_frame(int fd, int bell, unsigned char *at, Py_ssize_t room, int timeout_ms) { return 0; }
    static Py_ssize_t pyclient_peek(int fd, char *at, Py_ssize_t room) { return -1; }
    static int pyclient_take(int fd, char *at, Py_ssize_t size) { return 0; }
    static void pyclient_hush(int bell) {}
    #endif
    """
    Py_ssize_t send_pieces "pyclient_send"(int fd, char* before, Py_ssize_t before_size, char* records, Py_ssize_t records_size,
                                           char* after, Py_ssize_t after_size) noexcept nogil
    ctypedef struct Piece "pyclient_piece":
        void* iov_base
        size_t iov_len
    int MOST_PIECES "PYCLIENT_MOST_PIECES"
    Py_ssize_t send_vector "pyclient_send_vector"(int fd, Piece* pieces, int count) noexcept nogil
    bint await_bytes "pyclient_await"(int fd, int bell, int timeout_ms) noexcept nogil
    bint rest "pyclient_rest"(int bell, double seconds) noexcept nogil
    Py_ssize_t send_all "pyclient_send_all"(int fd, int bell, char* at, Py_ssize_t size, int timeout_ms) noexcept nogil
    int await_any "pyclient_await_any"(int* fds, int count, int bell, int timeout_ms) noexcept nogil
    Py_ssize_t receive_frame "pyclient_receive_frame"(int fd, int bell, unsigned char* at, Py_ssize_t room, int timeout_ms) noexcept nogil
    int MOST_AWAITED "PYCLIENT_MOST_AWAITED"
    Py_ssize_t peek "pyclient_peek"(int fd, char* at, Py_ssize_t room) noexcept nogil
    bint take "pyclient_take"(int fd, char* at, Py_ssize_t size) noexcept nogil
    void hush "pyclient_hush"(int bell) noexcept nogil

cdef extern from "Python.h":
    Py_buffer* PyMemoryView_GET_BUFFER(object view)
